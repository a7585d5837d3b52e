package launch

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	jobs "hora/job"
	"hora/launch/agent"
	"hora/launch/machine"
)

// The test binary is its own agent, and its own launcher where a test has to kill one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "__agent":
			os.Exit(testAgent())
		case "__fill":
			fill(os.Args[2])
			os.Exit(0)
		case "__launch":
			spec := testFlags()
			spec.Stdout, spec.Stderr = os.Stdout, os.Stderr
			machine.Adopt()
			o, err := run(context.Background(), spec)
			machine.Sweep()
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				var known *Error
				if errors.As(err, &known) {
					os.Exit(known.Code)
				}
				os.Exit(1)
			}
			if o.Kind != Finished {
				fmt.Fprintln(os.Stderr, o.String())
			}
			os.Exit(o.ExitCode())
		}
	}
	os.Exit(m.Run())
}

// testFlags reads a few flags as the program does.
func testFlags() settings {
	args := os.Args[2:]
	spec := testSpec(nil)
	spec.Dir, _ = os.Getwd()
	if name, err := os.Hostname(); err == nil {
		spec.LocalName = name
	}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		name, v, _ := strings.Cut(args[0], "=")
		n, _ := strconv.Atoi(v)
		switch name {
		case "-np":
			spec.NP = n
		case "-H":
			spec.Hosts, _ = ParseHosts(v)
		case "-start":
			spec.StartTimeout = time.Duration(n) * time.Second
		case "-logs":
			spec.LogDir = v
		case "-interfaces":
			spec.Interfaces = strings.Split(v, ",")
		case "-silence":
			spec.Silence = time.Duration(n) * time.Second
		}
		args = args[1:]
	}
	spec.Command = args
	return spec
}

func testAgent() int {
	caught := make(chan os.Signal, 8)
	signal.Notify(caught, syscall.SIGPIPE, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	cfg := agent.Config{In: os.Stdin, Out: os.Stdout, Temp: os.TempDir(), Signals: caught, Root: os.Getenv("HORA_TEST_ROOT")}
	cfg.Home, _ = os.UserHomeDir()
	kept := false
	for _, a := range os.Args[2:] {
		switch a {
		case "--stdin=0":
			cfg.Input = os.NewFile(3, "stdin")
		case "--remote":
			cfg.Remote = true
		case "--kept":
			kept = true
		}
	}
	if cfg.Remote && !kept {
		self, _ := os.Executable()
		code, err := agent.Keep(append([]string{self, "__agent", "--kept"}, os.Args[2:]...), cfg.Temp, caught)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return code
	}
	if agent.Run(cfg) != nil {
		return 1
	}
	return 0
}

func testSpec(command []string) settings {
	self, _ := os.Executable()
	return settings{
		Spec: jobs.Spec{Command: command, NP: 2, Dir: os.TempDir(), Name: "test"},
		Place: Place{
			Self: []string{self, "__agent"}, Environ: os.Environ(), LocalName: "here", Binary: self, Temp: os.TempDir(),
		},
	}
}

// begun starts a job whose output is read while it runs, to its end.
func begun(t *testing.T, spec settings) (output io.Reader, done <-chan Outcome) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	spec.Stdout = w
	ended := make(chan Outcome, 1)
	go func() {
		o, err := run(context.Background(), spec)
		if err != nil {
			t.Error(err)
		}
		w.Close()
		ended <- o
	}()
	return r, ended
}

// script runs a shell script on spec.NP ranks.
func script(t *testing.T, spec settings, text string) (Outcome, string, string) {
	t.Helper()
	var out, errs bytes.Buffer
	spec.Command = []string{"sh", "-c", text}
	spec.Stdout, spec.Stderr = &out, &errs
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	o, err := run(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	return o, out.String(), errs.String()
}

func TestWorkersGetTheirPlaceAndTheirLinesATag(t *testing.T) {
	spec := testSpec(nil)
	spec.Environ = append(spec.Environ, "OMP_NUM_THREADS=", "OLDPWD=/x", "TORCHELASTIC_USE_AGENT_STORE=True", "CUDA_VISIBLE_DEVICES=7")
	spec.Env = []string{"MINE=given"}
	o, out, errs := script(t, spec, `echo "$RANK of $WORLD_SIZE, local $HOROVOD_LOCAL_RANK of $HORA_LOCAL_SIZE, $OMP_NUM_THREADS $PYTHONUNBUFFERED $MINE $OLDPWD$TORCHELASTIC_USE_AGENT_STORE $CUDA_VISIBLE_DEVICES $HORA_HOST"; echo e$RANK >&2; test -s "$HORA_SECRET_FILE"`)
	if o.Kind != Finished || o.ExitCode() != 0 {
		t.Fatalf("outcome %v", o)
	}
	for r := range 2 {
		want := fmt.Sprintf("[%d]<stdout>:%d of 2, local %d of 2, 1 1 given  7 here\n", r, r, r)
		if !strings.Contains(out, want) {
			t.Errorf("no line %q in %q", want, out)
		}
		if want := fmt.Sprintf("[%d]<stderr>:e%d\n", r, r); !strings.Contains(errs, want) {
			t.Errorf("no line %q in %q", want, errs)
		}
	}
}

func TestAllottedDevicesAreDealt(t *testing.T) {
	spec := testSpec(nil)
	spec.Environ = append(spec.Environ, "CUDA_VISIBLE_DEVICES=3,5,6")
	spec.GPUsPerRank = 1
	if o, out, _ := script(t, spec, `echo "has $CUDA_VISIBLE_DEVICES"`); o.Kind != Finished || !strings.Contains(out, "[0]<stdout>:has 3\n") ||
		!strings.Contains(out, "[1]<stdout>:has 5\n") {
		t.Errorf("%v\n%s", o, out)
	}
	spec = testSpec([]string{"true"})
	spec.Environ = append(spec.Environ, "CUDA_VISIBLE_DEVICES=3,5,6")
	spec.GPUsPerRank = 2
	_, err := run(t.Context(), spec)
	if e, ok := err.(*Error); !ok || e.Code != ExitUsage || !strings.Contains(e.Text, "need 4 devices, and CUDA_VISIBLE_DEVICES=3,5,6 names 3: start fewer ranks") {
		t.Errorf("two each of three: %v", err)
	}
	spec.Hosts, spec.NP = []Host{{Name: "localhost", Slots: 1}, {Name: "127.0.0.1", Slots: 1}}, 2
	_, err = run(t.Context(), spec)
	if e, ok := err.(*Error); !ok || e.Code != ExitUsage || !strings.Contains(e.Text, "2 ranks on localhost and 127.0.0.1 need 4 devices") {
		t.Errorf("two each of three under two names: %v", err)
	}
}

// A machine with two names deals each device, and each core, once.
func TestDevicesOfAMachineWithTwoNamesAreDealtOnce(t *testing.T) {
	for _, c := range []struct{ allotted, want string }{
		{"CUDA_VISIBLE_DEVICES=", "0,1 2,3 4,5"},
		{"CUDA_VISIBLE_DEVICES=3,5,6,GPU-1,8,9", "3,5 6,GPU-1 8,9"},
	} {
		spec := testSpec(nil)
		spec.NP, spec.GPUsPerRank = 3, 2
		spec.Hosts = []Host{{Name: "localhost", Slots: 2}, {Name: "127.0.0.1", Slots: 1}}
		spec.Environ = append(spec.Environ, c.allotted)
		_, out, _ := script(t, spec, `echo "has $CUDA_VISIBLE_DEVICES"`)
		for rank, want := range strings.Fields(c.want) {
			if line := fmt.Sprintf("[%d]<stdout>:has %s\n", rank, want); !strings.Contains(out, line) {
				t.Errorf("%q: no %q in %q", c.allotted, line, out)
			}
		}
	}
}

func TestFirstFailureEndsTheRestAndNamesItself(t *testing.T) {
	spec := testSpec(nil)
	spec.NP = 3
	began := time.Now()
	o, _, _ := script(t, spec, `if [ $RANK = 1 ]; then echo 'Traceback (most recent call last):
  File "train.py", line 3, in <module>
    fail()
ValueError: bad shape (3, 4)' >&2; exit 7; fi; sleep 100`)
	if o.Kind != Failed || o.Rank != 1 || o.ExitCode() != 7 || o.String() != "rank 1 on here: exit code 7: ValueError: bad shape (3, 4)" {
		t.Errorf("outcome %q, exit code %d", o.String(), o.ExitCode())
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestWhoIgnoresTERMIsKilledAfterTheGrace(t *testing.T) {
	spec := testSpec(nil)
	spec.Grace = 300 * time.Millisecond
	o, _, _ := script(t, spec, `if [ $RANK = 0 ]; then kill -9 $$; fi; trap "" TERM; while :; do sleep 1; done`)
	if o.Kind != Killed || o.Rank != 0 || o.ExitCode() != 137 || !strings.Contains(o.String(), "rank 0 on here: killed by signal 9 (SIGKILL)") {
		t.Errorf("outcome %q, exit code %d", o.String(), o.ExitCode())
	}
	if o.Took < spec.Grace {
		t.Errorf("it took %v, less than the grace", o.Took)
	}
}

func TestASignalGivesNotice(t *testing.T) {
	signals := make(chan os.Signal, 1)
	spec := testSpec(nil)
	spec.Grace, spec.Notice, spec.Signals = time.Millisecond, time.Minute, signals
	spec.Command = []string{"sh", "-c", `save() { for i in 1 2 3 4 5; do sleep 0.1; done; echo saved; exit 0; }
trap save TERM; echo up; while :; do sleep 0.01; done`}
	r, done := begun(t, spec)
	seen, up := "", 0
	for in := bufio.NewScanner(r); in.Scan(); {
		if seen += in.Text() + "\n"; strings.HasSuffix(in.Text(), "up") {
			if up++; up == 2 {
				signals <- syscall.SIGTERM
			}
		}
	}
	if o := <-done; o.Kind != Cancelled || o.ExitCode() != 143 || o.Took > spec.Notice {
		t.Errorf("outcome %q after %v", o.String(), o.Took)
	}
	if strings.Count(seen, "saved") != 2 {
		t.Errorf("not all have saved: %q", seen)
	}
}

// marked lists the processes that have mark in their environment.
func marked(mark string) []int {
	var pids []int
	dirs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, d := range dirs {
		if b, err := os.ReadFile(d); err == nil && bytes.Contains(b, []byte(mark)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(d)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// gone waits until no marked process is left.
func gone(t *testing.T, mark string, limit time.Duration) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		left := marked(mark)
		if len(left) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			for _, pid := range left {
				b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				t.Errorf("process %d (%q) is left", pid, b)
				syscall.Kill(pid, syscall.SIGKILL)
			}
			return
		}
	}
}

// detaching is a worker that leaves a grandchild in a session of its own, twice forked, with no pipe of ours.
const detaching = `setsid sh -c '(sleep 1000 >/dev/null 2>&1 </dev/null &) ; trap "" TERM; sleep 1000 >/dev/null 2>&1' >/dev/null 2>&1 & echo ready; `

func TestNothingOutlivesAJob(t *testing.T) {
	mark := fmt.Sprintf("HORA_TEST_MARK=done-%d", os.Getpid())
	spec := testSpec(nil)
	spec.Env = []string{mark}
	o, _, _ := script(t, spec, detaching+"sleep 0.05")
	if o.Kind != Finished {
		t.Fatalf("outcome %v", o.String())
	}
	if left := marked(mark); len(left) > 0 {
		gone(t, mark, 0)
	}
	if o.Took > 2*time.Second {
		t.Errorf("it took %v", o.Took)
	}
}

func TestNothingSurvivesTheLaunchersKill(t *testing.T) {
	for _, victim := range []string{"launcher", "agent"} {
		t.Run(victim, func(t *testing.T) {
			mark := fmt.Sprintf("HORA_TEST_MARK=%s-%d", victim, os.Getpid())
			temp := t.TempDir()
			self, _ := os.Executable()
			cmd := exec.Command(self, "__launch", "-logs="+temp+"/logs", "sh", "-c", detaching+"sleep 1000")
			cmd.Env = append(os.Environ(), mark, "TMPDIR="+temp)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			var seen []byte
			buf := make([]byte, 4096)
			for bytes.Count(seen, []byte("ready")) < 2 {
				n, err := out.Read(buf)
				if err != nil {
					t.Fatalf("launcher said %q: %v", seen, err)
				}
				seen = append(seen, buf[:n]...)
			}
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			// ready is said while the last still start
			for deadline := time.Now().Add(5 * time.Second); len(marked(mark)) < 8; <-tick.C {
				if time.Now().After(deadline) {
					t.Fatalf("only %d processes are marked", len(marked(mark)))
				}
			}
			if victim == "launcher" {
				cmd.Process.Kill()
			} else {
				for _, pid := range machine.Descendants(cmd.Process.Pid)[:1] {
					syscall.Kill(pid, syscall.SIGKILL)
				}
			}
			cmd.Wait()
			gone(t, mark, 8*time.Second)
			if left, _ := filepath.Glob(filepath.Join(temp, "hora-*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if victim != "launcher" {
				return
			}
			host, _ := os.Hostname()
			if b, err := os.ReadFile(temp + "/logs/hora." + host); err != nil || !strings.Contains(string(b), "job test on "+host+": the launcher has ended without a word: its 2 workers here are ended") ||
				strings.Count(string(b), "\n") != 1 {
				t.Errorf("the agent's last word: %q, %v", b, err)
			}
		})
	}
}

func TestCommandsThatCannotStart(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644)
	empty := filepath.Join(dir, "binary")
	os.WriteFile(empty, []byte("\x00\x01\x02 not a program"), 0o755)
	script := func(text string) string {
		path := filepath.Join(t.TempDir(), "train")
		os.WriteFile(path, []byte(text), 0o755)
		return path
	}
	for _, c := range []struct {
		command, text string
		code          int
	}{
		{"no-such-command", "start no-such-command on here: there is no such command", ExitNotFound},
		{"/no/such/file", "there is no such command", ExitNotFound},
		{plain, "it is not executable: run chmod +x", ExitNotRunnable},
		{empty, "it is no program for this machine", ExitNotRunnable},
		{dir, "it is a folder: name the program in it", ExitNotRunnable},
		{script("#!/no/such/python -u\n"), "its first line asks for /no/such/python, which is not there", ExitNotFound},
		{script("#!/bin/sh\r\necho\r\n"), "its first line ends in a carriage return", ExitNotFound},
		{"plain", "it is a file and no command: write its interpreter before it (python plain), or ./plain", ExitNotFound},
	} {
		spec := testSpec([]string{c.command})
		spec.Dir = dir
		o, err := run(context.Background(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if o.Kind != NotStarted || o.ExitCode() != c.code || !strings.Contains(o.String(), c.text) {
			t.Errorf("%s: %q, exit code %d", c.command, o.String(), o.ExitCode())
		}
	}
}

func TestSignalsReachTheWorkers(t *testing.T) {
	signals := make(chan os.Signal, 1)
	spec := testSpec(nil)
	spec.Signals = signals
	var errs bytes.Buffer
	spec.Stderr = &errs
	spec.Command = []string{"sh", "-c", `trap 'echo caught; exit 0' USR1; trap 'echo int; exit 3' INT; echo up; while :; do sleep 0.01; done`}
	r, done := begun(t, spec)
	buf, seen := make([]byte, 4096), ""
	for strings.Count(seen, "up") < 2 {
		n, err := r.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		seen += string(buf[:n])
	}
	signals <- syscall.SIGINT
	o := <-done
	if o.Kind != Cancelled || o.ExitCode() != 130 {
		t.Errorf("outcome %q, exit code %d", o.String(), o.ExitCode())
	}
}

func TestRankZeroReadsTheLaunchersInput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.WriteString("from the launcher\n")
	w.Close()
	defer r.Close()
	spec := testSpec(nil)
	spec.Stdin = r
	_, out, _ := script(t, spec, `cat`)
	if out != "[0]<stdout>:from the launcher\n" {
		t.Errorf("output %q", out)
	}
}

func TestLogDirHoldsEveryByte(t *testing.T) {
	spec := testSpec(nil)
	spec.LogDir = filepath.Join(t.TempDir(), "logs")
	_, out, _ := script(t, spec, `printf 'a\377b\n'; head -c 10000000 /dev/zero | tr '\0' x; echo; echo err >&2`)
	for r := range 2 {
		b, err := os.ReadFile(filepath.Join(spec.LogDir, fmt.Sprintf("rank.%d", r), "stdout"))
		if err != nil || len(b) != 10000005 || !bytes.HasPrefix(b, []byte("a\xffb\n")) {
			t.Errorf("rank %d logged %d bytes, %v", r, len(b), err)
		}
	}
	if !strings.Contains(out, "[0]<stdout>:a\uFFFDb\n") {
		t.Error("the broken byte is not shown as U+FFFD")
	}
	if n := strings.Count(out, "\n"); n != 4 {
		t.Errorf("%d lines of output, want 4: the long ones whole", n)
	}
}

// fill writes until nobody takes any more, says in a file how much that was, and ends.
func fill(path string) {
	if err := syscall.SetNonblock(1, true); err != nil {
		panic(err)
	}
	b := bytes.Repeat([]byte("x"), 4096)
	wrote, since := 0, time.Now()
	for time.Since(since) < 300*time.Millisecond {
		if n, err := syscall.Write(1, b); err == nil {
			wrote, since = wrote+n, time.Now()
		}
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(wrote)), 0o600); err != nil {
		panic(err)
	}
}

// gate is a terminal that takes nothing until it is opened.
type gate struct{ open chan struct{} }

func (g gate) Write(p []byte) (int, error) {
	<-g.open
	return len(p), nil
}

// TestWhatAPipeHoldsIsNotLost: a worker has ended for a while, and the terminal has not taken what it wrote.
func TestWhatAPipeHoldsIsNotLost(t *testing.T) {
	dir := t.TempDir()
	spec := testSpec(nil)
	told, terminal := filepath.Join(dir, "told"), gate{make(chan struct{})}
	spec.NP, spec.LogDir, spec.TagOutput = 1, filepath.Join(dir, "logs"), new(bool)
	spec.Command, spec.Stdout, spec.Stderr = []string{spec.Self[0], "__fill", told}, terminal, io.Discard
	go func() {
		defer close(terminal.open)
		for range 200 {
			<-time.After(50 * time.Millisecond)
			if _, err := os.Stat(told); err == nil {
				<-time.After(500 * time.Millisecond) // it is told of, and its agent has nothing else to do
				return
			}
		}
	}()
	o, err := run(t.Context(), spec)
	if err != nil || o.Kind != Finished {
		t.Fatalf("outcome %v, %v", o, err)
	}
	said, err := os.ReadFile(told)
	st, lerr := os.Stat(filepath.Join(spec.LogDir, "rank.0", "stdout"))
	if err != nil || lerr != nil || strconv.FormatInt(st.Size(), 10) != string(said) {
		t.Errorf("the worker wrote %s bytes, the log has %d: %v, %v", said, st.Size(), err, lerr)
	}
}

func TestAFullDiskUnderLogDirEndsTheJob(t *testing.T) {
	spec := testSpec(nil)
	spec.LogDir = t.TempDir()
	dir := filepath.Join(spec.LogDir, "rank.1")
	os.Mkdir(dir, 0o755)
	if err := os.Symlink("/dev/full", filepath.Join(dir, "stdout")); err != nil {
		t.Skip("no symbolic links here")
	}
	o, _, _ := script(t, spec, `while :; do echo line; sleep 0.01; done`)
	if o.Kind != Trouble || o.ExitCode() != ExitLogs || !strings.Contains(o.String(), "write log of rank 1") ||
		!strings.Contains(o.String(), "no space left") {
		t.Errorf("outcome %q, exit code %d", o.String(), o.ExitCode())
	}
}

func TestTwoHostNamesOnThisMachineStayTwoHosts(t *testing.T) {
	spec := testSpec(nil)
	spec.NP = 4
	spec.Hosts = []Host{{Name: "localhost", Slots: 2}, {Name: "127.0.0.1", Slots: 2}}
	_, out, _ := script(t, spec, `echo "$HOROVOD_HOSTNAME $HORA_LOCAL_RANK $HORA_CROSS_RANK/$HORA_CROSS_SIZE"`)
	for r, want := range []string{"localhost 0 0/2", "localhost 1 0/2", "127.0.0.1 0 1/2", "127.0.0.1 1 1/2"} {
		if line := fmt.Sprintf("[%d]<stdout>:%s\n", r, want); !strings.Contains(out, line) {
			t.Errorf("no %q in %q", line, out)
		}
	}
}
