package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/internal/hosttest"
	"hora/launch"
)

func TestDemoTrainsTwoProcesses(t *testing.T) {
	r := horaCommand(t, "demo")
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.err)
	}
	if !strings.Contains(r.out, "all ranks agree bit for bit") {
		t.Errorf("the ranks' agreement is not shown:\n%s", r.out)
	}
	found := regexp.MustCompile(`test accuracy +([0-9.]+) %`).FindStringSubmatch(r.out)
	if found == nil {
		t.Fatalf("no accuracy in:\n%s", r.out)
	}
	if accuracy, err := strconv.ParseFloat(found[1], 64); err != nil || accuracy < 97 {
		t.Errorf("test accuracy %s %%, want 97 with training seed 1", found[1])
	}
	if strings.Contains(r.out, "\x1b") {
		t.Errorf("escape sequences in piped output:\n%q", r.out)
	}
	if n := strings.Count(r.out, "\nepoch "); n != 20 {
		t.Errorf("%d epochs are shown, want 20", n)
	}
}

// TestReadmeCapture holds README's first screen to what the program prints: the same
// lines when every number is taken out.
func TestReadmeCapture(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "held by TestReadmeCapture -->\n```\n")
	shown, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatal("README.md has no capture of hora demo")
	}
	r := command(t, t.TempDir(), "go run ./cmd/hora", "demo", "--plain")
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.err)
	}
	r.out = regexp.MustCompile(`  cores +busy:.*\n`).ReplaceAllString(r.out, "") // by other work
	var want []string
	lines := strings.Split(shown, "\n")
	got := strings.Split(withoutNumbers(r.out), "\n")
	for _, line := range lines {
		if line == "…" { // epochs left out
			for len(got) > 0 && strings.HasPrefix(got[0], "epoch") && !strings.HasPrefix(got[1], "-") &&
				strings.HasPrefix(got[1], "epoch") {
				got = got[1:]
			}
			continue
		}
		want = append(want, withoutNumbers(line))
		if len(got) == 0 || got[0] != withoutNumbers(line) {
			t.Fatalf("README shows %q where the program prints %q", line, strings.Join(got[:min(len(got), 1)], ""))
		}
		got = got[1:]
	}
	if len(want) < 10 {
		t.Errorf("README's capture has %d lines: it is not the whole screen", len(want))
	}
}

var number = regexp.MustCompile(`[0-9][0-9a-f,.]*`)

// withoutNumbers replaces numbers and digests by #, and runs of spaces by one.
func withoutNumbers(s string) string {
	s = regexp.MustCompile(`digest [0-9a-f]+`).ReplaceAllString(s, "digest #")
	return regexp.MustCompile(` +`).ReplaceAllString(number.ReplaceAllString(s, "#"), " ")
}

func TestDemoNumbersOfProcesses(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"demo -np 1 --epochs 1", 0, "one process needs no communication"},
		{"demo -np 4 --epochs 1", 0, "all ranks agree bit for bit"},
		{"demo -np 16 --epochs 1", 0, "16 processes share"},
		{"demo -np 0", 2, "at least one process"},
		{"demo --epochs 0", 2, "at least one epoch"},
		{"demo -np 65 --epochs 1", 2, "-np 65: a step has 64 images, which are too few to share: try hora demo -np 64"},
		{"demo --compare -np 65", 2, "too few to share"},
		{"demo -np two", 2, `--np "two" is not a whole number: see hora demo --help`},
		{"demo --seed -1", 2, `--seed "-1" is not a whole number from 0`},
		{"demo --seed 0", 2, "seeds count from 1"},
		{"demo --optimizer newton", 2, "--optimizer newton: choose adam or sgd"},
		{"demo --optimizer sgd --seed 2 --epochs 1", 0, "all ranks agree bit for bit"},
		{"demo --compare --plot x.svg", 2, "leave --plot and --ranks out"},
		{"demo --compare --ranks", 2, "leave --plot and --ranks out"},
		{"demo --hosts localhost:x", 2, "write it as localhost:4"},
		{"demo --hosts localhost:1 -np 2", 2, "-np 2 needs 2 slots, and localhost:1 has 1"},
		{"demo --hosts localhost:1 --epochs 1", 0, "one process needs no communication"},
		{"demo --nonsense", 2, "unknown flag: --nonsense: see hora demo --help"},
		{"demo now", 2, "takes flags only"},
		{"demo --about", 0, "doi:10.24432/C50P49"},
		{"demo --np 2 --epochs 1 --ranks", 0, "rank 1"},
	} {
		r := horaCommand(t, strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.out+r.err, c.want) {
			t.Errorf("hora %s: exit code %d, want %d, with %q in:\n%s%s", c.args, r.code, c.code, c.want, r.out, r.err)
		}
	}
}

func TestDemoPlotAndReadOnlyFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "curves.svg")
	if r := horaCommand(t, "demo", "--epochs", "2", "--plot", file); r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.err)
	}
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "rank 0", "rank 1", "one process", "</svg>"} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("the picture lacks %q", want)
		}
	}
	if r := command(t, "/proc", "hora", "demo", "--epochs", "1"); r.code != 0 {
		t.Errorf("in a folder that cannot be written: exit code %d: %s", r.code, r.err)
	}
	r := command(t, "/proc", "hora", "demo", "--epochs", "1", "--plot", "x.svg")
	if r.code == 0 || !strings.Contains(r.err, "name a file in a folder that you may write to") || r.out != "" {
		t.Errorf("a picture in a folder that cannot be written: exit code %d: %s%s", r.code, r.err, r.out)
	}
	none := filepath.Join(dir, "none.svg")
	if r := horaCommand(t, "demo", "-H", "nosuchhost.invalid:2", "--plot", none); r.code != launch.ExitNoHost {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a training that could not begin leaves an empty picture")
	}
}

// TestDemoWithoutSharedMemory takes memory to share away by a limit on file sizes that
// the job's small files fit: the ranks go by TCP, and the screen says so.
func TestDemoWithoutSharedMemory(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `ulimit -f 16; exec "$0" demo --epochs 1`, self)
	cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	goesByTCP(t, out.String(), errs.String())
}

// goesByTCP holds the screen of a demo without memory to share: the ranks agree, the
// links are named, and why is said once for all ranks.
func goesByTCP(t *testing.T, out, errs string) {
	t.Helper()
	for _, want := range []string{"links          TCP\n", "all ranks agree bit for bit", "ranks of this host go by TCP: share memory: "} {
		if strings.Count(out, want) != 1 {
			t.Errorf("%q is not shown once in:\n%s", want, out)
		}
	}
	if errs != "" {
		t.Errorf("on standard error: %s", errs)
	}
}

// TestDemoKill: who was lost, how long it took, and the same bits as without a loss.
func TestDemoKill(t *testing.T) {
	for _, np := range []string{"2", "3"} {
		r := horaCommand(t, "demo", "--kill", "-np", np, "--epochs", "6")
		if r.code != 0 {
			t.Fatalf("exit code %d: %s\n%s", r.code, r.err, r.out)
		}
		for _, want := range []string{
			"is gone in the middle of epoch 3", "killed by signal 9 (SIGKILL): starting it again", "a new process for rank", "has joined and has the weights of step",
			"all " + np + " ranks train again", "all ranks agree bit for bit", "weights        the undisturbed run's, bit for bit",
		} {
			if !strings.Contains(r.out, want) {
				t.Errorf("%q is not shown in:\n%s", want, r.out)
			}
		}
		calm := horaCommand(t, "demo", "-np", np, "--epochs", "6")
		epochs := regexp.MustCompile(`epoch +\d+/\d+  loss [0-9.]+  test +[0-9.]+`)
		if a, b := epochs.FindAllString(calm.out, -1), epochs.FindAllString(r.out, -1); len(a) != 6 ||
			!slices.Equal(a, b) {
			t.Errorf("%s processes: without a loss\n%q\nwith one\n%q", np, a, b)
		}
		took := regexp.MustCompile(`training after (\d+) ms, \d+ steps? done again`).FindStringSubmatch(r.out)
		if took == nil {
			t.Fatalf("no time of recovery in:\n%s", r.out)
		}
		if ms, _ := strconv.Atoi(took[1]); ms > 3*500 {
			t.Errorf("training went on %d ms after the kill, want 500", ms)
		}
		t.Logf("%s processes: training again after %s ms", np, took[1])
	}
	for _, args := range [][]string{{"-np", "1"}, {"--compare"}, {"--hosts", "a:2"}} {
		if r := horaCommand(t, append([]string{"demo", "--kill"}, args...)...); r.code != 2 {
			t.Errorf("%v: exit code %d, want 2: %s", args, r.code, r.err)
		}
	}
}

func TestDemoCompare(t *testing.T) {
	r := horaCommand(t, "demo", "--compare", "--epochs", "2")
	if r.code != 0 || !strings.Contains(r.out, "speed-up") || !strings.Contains(r.out, "\n2 ") {
		t.Errorf("exit code %d:\n%s%s", r.code, r.out, r.err)
	}
}

// TestDemoInterrupted ends the demo as Ctrl-C does: one line, 130, nothing left.
func TestDemoInterrupted(t *testing.T) {
	interrupted(t, "\nepoch ")
	interrupted(t, "accuracy\n", "--compare")
	interrupted(t, " on this machine\n", "--kill")
	interrupted(t, "is gone", "--kill", "--epochs", "100")
}

// endless starts a demo that does not end by itself. Its standard error is complete after Wait.
func endless(t *testing.T, args ...string) (cmd *exec.Cmd, out io.ReadCloser, errs *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self, append([]string{"demo", "--epochs", "100000"}, args...)...)
	cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1")
	if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	errs = &bytes.Buffer{}
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out, errs
}

// interrupted sends SIGINT when after is shown.
func interrupted(t *testing.T, after string, args ...string) {
	t.Helper()
	cmd, out, errs := endless(t, args...)
	defer cmd.Process.Kill()
	seen := make([]byte, 0, 4096)
	for !bytes.Contains(seen, []byte(after)) {
		chunk := make([]byte, 1024)
		n, err := out.Read(chunk)
		if err != nil {
			t.Fatalf("the demo ended early: %v %s", err, errs.String())
		}
		seen = append(seen, chunk[:n]...)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 1<<16)
		for {
			if _, err := out.Read(buf); err != nil {
				break
			}
		}
		_ = cmd.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("still running 30 s after SIGINT")
	}
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d after SIGINT, want 130: %s", code, errs.String())
	}
	if n := strings.Count(strings.TrimSpace(errs.String()), "\n"); n > 0 {
		t.Errorf("more than one line after SIGINT:\n%s", errs.String())
	}
}

// TestDemoOnHosts trains on two hosts of which the second has never seen hora, and on all
// slots of both when no number of processes is given.
func TestDemoOnHosts(t *testing.T) {
	n := hosttest.Up(t, "server1", "server2")
	hora := installed(t, n.Hosts[0])
	code, out, errs := hora(60*time.Second, "demo", "--hosts", "server1:1,server2:2", "--epochs", "2")
	if code != 0 {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	for _, want := range []string{"3 processes", "server1, server2", "TCP and shared memory", "all ranks agree bit for bit"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not shown in:\n%s", want, out)
		}
	}
}

// TestDemoIntoAPipeThatCloses ends as programs do, without a word, and leaves nobody: as
// long as a process of it holds standard error, Wait does not return.
func TestDemoIntoAPipeThatCloses(t *testing.T) {
	cmd, out, errs := endless(t)
	late := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
	defer late.Stop()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	out.Close()
	_ = cmd.Wait() // its exit code tells
	if cmd.ProcessState.ExitCode() != 128+int(syscall.SIGPIPE) || errs.Len() > 0 {
		t.Errorf("%v, and on standard error: %q", cmd.ProcessState, errs.String())
	}
}

func TestCalledAs(t *testing.T) {
	for _, c := range [][3]string{
		{"hora", "/usr/bin/hora", "hora"},
		{"./bin/hora", "/src/hora/bin/hora", "./bin/hora"},
		{"/tmp/go-build3141/b001/exe/hora", "/tmp/go-build3141/b001/exe/hora", "go run ./cmd/hora"},
	} {
		if got := calledAs(c[0], c[1]); got != c[2] {
			t.Errorf("%s at %s is called as %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

// TestHelpOfTheDemo: what the demo says of itself fits terminals as they come.
func TestHelpOfTheDemo(t *testing.T) {
	for _, args := range [][]string{{"demo", "--help"}, {"demo", "--about"}} {
		r := horaCommand(t, args...)
		for _, line := range strings.Split(r.out, "\n") {
			if n := len([]rune(line)); n > 80 {
				t.Errorf("%v: %d columns: %s", args, n, line)
			}
		}
	}
}
