// Command suite is the test run that `make test` and CI share: it checks the
// machine, the formatting and the static rules, runs the Go tests (again under the
// race detector where there are goroutines), builds and tests the Python wheels,
// holds every skip to docs/skips.md and ends in one line "N passed, N failed".
//
// It runs its steps one after another; those of pytest's lanes have a goroutine each,
// which writes to its lane alone until it is through.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

type step struct {
	name  string
	share time.Duration // what the step may take on two cores with a warm cache
	run   func(*suite) error
}

type suite struct {
	ctx      context.Context
	root     string
	tools    string // folder with staticcheck and gofumpt
	venv     string // Python environment of the tests
	spark    string // the one with pyspark 4
	ci       bool
	listed   []skipRow
	passed   int
	failed   int
	skipped  int
	failures []string
	unsteady []string // failed once, passed alone
}

var steps = []step{
	{"machine", time.Minute, (*suite).machine},
	{"format", time.Minute, (*suite).format},
	{"vet", 2 * time.Minute, (*suite).vet},
	{"platforms", 2 * time.Minute, (*suite).platforms},
	{"go", 6 * time.Minute, (*suite).goTests},
	{"race", 4 * time.Minute, (*suite).raceTests},
	{"bench", 2 * time.Minute, (*suite).speed},
	{"wheel", 2 * time.Minute, (*suite).wheel},
	{"python", 17 * time.Minute, (*suite).pythonTests},
}

// asked are the steps that run only where they are named.
var asked = []step{
	{"spark", 5 * time.Minute, (*suite).sparkTests},
	{"sparks", 50 * time.Minute, (*suite).sparksTests},
}

func main() {
	only := flag.String("only", "", "comma-separated steps to run (default: all); spark is the part of python that needs a Spark session, "+
		"sparks all tests of it on each pyspark")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := open(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(2)
	}
	os.Exit(s.runAll(*only))
}

func open(ctx context.Context) (*suite, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	root := filepath.Dir(here)
	if _, err := os.Stat(filepath.Join(root, "layout_test.go")); err != nil {
		return nil, fmt.Errorf("find the repository: run this from tools/ (make test does): %w", err)
	}
	s := &suite{ctx: ctx, root: root, ci: os.Getenv("CI") == "true"}
	if s.listed, err = readSkips(filepath.Join(root, "docs", "skips.md")); err != nil {
		return nil, err
	}
	for what, into := range map[string]*string{"venv": &s.venv, "tools": &s.tools, "spark-4": &s.spark} {
		if *into, err = environment(ctx, root, what); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// environment is the folder that make deps has for something.
func environment(ctx context.Context, root, what string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "tools/deps.sh", "path", what)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask tools/deps.sh for the %s folder: %w; run make deps", what, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (s *suite) runAll(only string) int {
	began := time.Now()
	type timing struct {
		name        string
		took, share time.Duration
		cpu         time.Duration // of its processes that were waited for
	}
	var timings []timing
	for _, st := range asked {
		if strings.Contains(","+only+",", ","+st.name+",") {
			steps = append(steps, st)
		}
	}
	for _, st := range steps {
		if only != "" && !strings.Contains(","+only+",", ","+st.name+",") {
			continue
		}
		fmt.Printf("\n== %s\n", st.name)
		start, used := time.Now(), processorTime()
		err := st.run(s)
		timings = append(timings, timing{st.name, time.Since(start), st.share, processorTime() - used})
		if err != nil {
			s.fail(st.name + ": " + err.Error())
		}
		if s.ctx.Err() != nil {
			fmt.Println("interrupted")
			return 130
		}
	}
	fmt.Printf("\n== time (what a step may take on 2 cores, caches warm, in brackets), and processor time\n")
	for _, t := range timings {
		fmt.Printf("%-10s %6.1f s (%.0f) %6.1f s\n", t.name, t.took.Seconds(), t.share.Seconds(), t.cpu.Seconds())
	}
	fmt.Printf("all        %6.1f s\n", time.Since(began).Seconds())
	if len(s.unsteady) > 0 {
		fmt.Printf("\n== unsteady: failed once, passed when run again alone\n")
		for _, u := range s.unsteady {
			fmt.Println(u)
		}
	}
	if len(s.failures) > 0 {
		fmt.Printf("\n== failures\n")
		for _, f := range s.failures {
			fmt.Println(f)
		}
	}
	fmt.Printf("\n%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	if s.failed > 0 || s.passed == 0 {
		return 1
	}
	return 0
}

// processorTime is what all children that have ended took, and theirs.
func processorTime() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func (s *suite) fail(what string) {
	s.failed++
	s.failures = append(s.failures, what)
	fmt.Println("FAIL", what)
}

// command prepares a program run from the repository root whose output is shown.
func (s *suite) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.ctx, name, args...)
	cmd.Dir = s.root
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// check runs a program and counts it as one passed test if it exits 0.
func (s *suite) check(what string, cmd *exec.Cmd) error {
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %s: %w", what, strings.Join(cmd.Args, " "), err)
	}
	s.passed++
	fmt.Println("ok  ", what)
	return nil
}
