package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

func (s *suite) goTests() error {
	return s.goTest("go test", "go", "test", "-json", "-timeout", "15m", "./...")
}

// raceTests covers every package whose sources start a goroutine, and leaves out
// cmd/libhora: the race detector cannot run inside somebody else's process.
func (s *suite) raceTests() error {
	found, err := exec.CommandContext(s.ctx, "git", "-C", s.root, "grep", "-lE", `(^|[^a-z])go (func|[a-z]+(\.|\())|[a-z]\.Go\(`, "--", "*.go").Output()
	if err != nil {
		return fmt.Errorf("look for packages with goroutines: %w", err)
	}
	seen := map[string]bool{}
	args := []string{"test", "-race", "-short", "-json", "-timeout", "15m"}
	for _, file := range strings.Fields(string(found)) {
		dir := filepath.Dir(file)
		if seen[dir] || strings.HasPrefix(dir, "tools") || strings.HasPrefix(dir, "examples") ||
			strings.Contains(dir, "testdata") || dir == "cmd/libhora" {
			continue
		}
		seen[dir] = true
		args = append(args, "./"+dir)
	}
	if len(seen) == 0 {
		return fmt.Errorf("found no package with goroutines: the search is broken")
	}
	return s.goTest("go test -race", "go", args...)
}

// goTest runs `go test -json`, prints a line a package and the whole output of what
// failed, and gives the failed tests their second run.
func (s *suite) goTest(what, name string, args ...string) error {
	first := &tally{}
	err := s.runGo(first, name, args...)
	s.add(first)
	if len(first.failed) == 0 {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	for pkg, tests := range first.byPackage() {
		flags := args[1 : slices.Index(args, "-json")+1]
		again := append(append([]string{"test"}, flags...), "-count=1", "-timeout", "10m", "-run", "^("+strings.Join(tests, "|")+")$", pkg)
		s.secondRun(
			what+" "+pkg, tests, len(first.failed),
			func(second *tally) error { return s.runGo(second, name, again...) },
		)
	}
	return nil
}

// runGo counts one `go test -json` into t.
func (s *suite) runGo(t *tally, name string, args ...string) error {
	cmd := s.command(name, args...)
	// Under the race detector a process sleeps for a second before it ends, and the tests start hundreds.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=20 "+os.Getenv("GORACE"))
	cmd.Stdout = nil
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.readEvents(t, pipe)
	return cmd.Wait()
}

func (s *suite) readEvents(t *tally, from io.Reader) {
	output := map[string]*strings.Builder{}
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 1<<20), 1<<26)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Println(lines.Text()) // build errors come as plain text
			continue
		}
		key := e.Package + " " + e.Test
		if output[key] == nil {
			output[key] = &strings.Builder{}
		}
		switch e.Action {
		case "output", "build-output":
			output[key].WriteString(e.Output)
			if e.Action == "build-output" {
				fmt.Print(e.Output)
			}
			continue
		case "pass", "fail", "skip":
			s.count(t, e, output[key].String())
			delete(output, key)
		}
	}
}

func (s *suite) count(t *tally, e event, output string) {
	if e.Test == "" {
		if e.Action == "fail" {
			fmt.Printf("FAIL %s (%.1f s)\n%s", e.Package, e.Elapsed, output)
			t.packages = append(t.packages, e.Package)
		} else {
			fmt.Printf("%-4s %s (%.1f s)\n", map[string]string{"pass": "ok", "skip": "-"}[e.Action], e.Package, e.Elapsed)
		}
		return
	}
	switch e.Action {
	case "pass":
		t.passed++
	case "fail":
		t.failed = append(t.failed, failure{e.Package, e.Test})
		fmt.Printf("FAIL %s %s (%.1f s)\n%s", e.Package, e.Test, e.Elapsed, output)
	case "skip":
		s.skip(e.Package+"."+e.Test, output)
	}
}

// skip shows why a test was left out; in CI only a reason that docs/skips.md lists
// will do.
func (s *suite) skip(test, output string) {
	s.skipped++
	fmt.Printf("skip %s: %s\n", test, reason(output))
	for _, row := range s.listed {
		if strings.Contains(output, row.reason) {
			return
		}
	}
	if s.ci {
		s.fail(fmt.Sprintf("%s was skipped for a reason that docs/skips.md does not list", test))
	}
}

func reason(output string) string {
	for _, line := range strings.Split(output, "\n") {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			return line
		}
	}
	return "no reason given"
}

// skipRow is a line of docs/skips.md: the words that the skip prints.
type skipRow struct{ reason string }

// readSkips takes the first column of every table row, the words in backquotes.
func readSkips(path string) ([]skipRow, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var rows []skipRow
	for _, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		words, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "`")
		if ok && len(words) >= 8 {
			rows = append(rows, skipRow{words})
		}
	}
	return rows, nil
}
