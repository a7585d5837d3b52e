package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hora/internal/hosttest"
)

// onCores runs the program on so many of this machine's hardware threads, and says which.
func onCores(t *testing.T, n int, args ...string) (result, []string) {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	var names []string
	for c := 0; len(names) < min(n, set.Count()); c++ {
		if set.IsSet(c) {
			names = append(names, strconv.Itoa(c))
		}
	}
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(taskset, append([]string{"-c", strings.Join(names, ","), self(t)}, args...)...)
	cmd.Env, cmd.Dir = append(os.Environ(), "HORA_TEST_PROGRAM=1"), t.TempDir()
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // its exit code tells
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}, names
}

// bound is what each rank says it may use, by rank.
func bound(t *testing.T, r result, np int) [][]string {
	t.Helper()
	got := make([][]string, np)
	for _, m := range regexp.MustCompile(`(?m)^\[(\d+)\]<stdout>:Cpus_allowed_list:\t(\S+)$`).FindAllStringSubmatch(r.out, -1) {
		rank, _ := strconv.Atoi(m[1])
		for part := range strings.SplitSeq(m[2], ",") {
			lo, hi, ranged := strings.Cut(part, "-")
			if !ranged {
				hi = lo
			}
			a, _ := strconv.Atoi(lo)
			b, _ := strconv.Atoi(hi)
			for ; a <= b; a++ {
				got[rank] = append(got[rank], strconv.Itoa(a))
			}
		}
	}
	if slices.ContainsFunc(got, func(c []string) bool { return c == nil }) || r.code != 0 {
		t.Fatalf("%+v", r)
	}
	return got
}

const tellCores = "grep Cpus_allowed_list /proc/self/status"

func TestWorkersAreBoundToCores(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	r, all := onCores(t, 2, "run", "-np", "2", "sh", "-c", tellCores)
	if len(all) > 1 { // each has one of them
		if got := bound(t, r, 2); len(got[0]) != 1 || len(got[1]) != 1 || got[0][0] == got[1][0] || r.err != "" {
			t.Errorf("of %v the ranks have %v: %s", all, got, r.err)
		}
		plan, _ := onCores(t, 2, "run", "--dry-run", "-np", "2", "sh", "-c", tellCores)
		for rank, cores := range bound(t, r, 2) {
			if f := strings.Fields(strings.Split(plan.out, "\n")[rank+1]); len(f) < 6 || f[0] != strconv.Itoa(rank) ||
				f[5] != cores[0] {
				t.Errorf("rank %d has %v, and the plan was\n%s", rank, cores, plan.out)
			}
		}
	}
	// More ranks than hardware threads share all of them, and somebody says so.
	host, _ := os.Hostname()
	r, all = onCores(t, 2, "run", "-np", "3", "sh", "-c", tellCores)
	for rank, cores := range bound(t, r, 3) {
		if !slices.Equal(cores, all) {
			t.Errorf("rank %d of 3 has %v of %v", rank, cores, all)
		}
	}
	if want := "hora: warning: " + host + " has fewer hardware threads than its 3 ranks: they share all of them and run slower\n"; r.err != want {
		t.Errorf("it said %q, want %q", r.err, want)
	}
	r, all = onCores(t, 2, "run", "-np", "2", "--bind", "none", "sh", "-c", tellCores)
	for rank, cores := range bound(t, r, 2) {
		if !slices.Equal(cores, all) {
			t.Errorf("unbound, rank %d has %v of %v", rank, cores, all)
		}
	}
	// Two names of this machine share its cores as one.
	r, all = onCores(t, 2, "run", "-np", "2", "-H", "localhost:1,127.0.0.1:1", "sh", "-c", tellCores)
	if got := bound(t, r, 2); len(all) > 1 && slices.Equal(got[0], got[1]) {
		t.Errorf("both names have %v of %v", got[0], all)
	}
}

// A dry run says who would run what where, and starts nothing, here or elsewhere.
func TestDryRun(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "started")
	r := horaCommand(t, "run", "--dry-run", "-np", "3", "-H", "localhost:1,server9:4", "touch", file, "a b")
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	if r.code != 0 || r.err != "" || len(lines) != 4 {
		t.Fatalf("%+v", r)
	}
	for i, want := range []string{
		`^rank +host +local +cores +command$`,
		`^0 +localhost +0 of 1 +[0-9,-]+ +touch ` + file + ` 'a b'$`,
		`^1 +server9 +0 of 2 +chosen there +touch ` + file + ` 'a b'$`,
		`^2 +server9 +1 of 2 +chosen there +touch ` + file + ` 'a b'$`,
	} {
		if !regexp.MustCompile(want).MatchString(lines[i]) {
			t.Errorf("line %d is %q, want %s", i, lines[i], want)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the command was started")
	}
	if r := horaCommand(t, "run", "--dry-run", "--bind", "none", "touch", file); !strings.Contains(r.out, "  all    ") {
		t.Errorf("%+v", r)
	}
	if r := horaCommand(t, "run", "--dry-run", "-np", "4", "-H", "localhost:3", "true"); r.code != 2 || r.out != "" {
		t.Errorf("too few slots: %+v", r)
	}
}

func TestLogsOfManyRanksAreInOrder(t *testing.T) {
	dir := t.TempDir()
	r := command(t, dir, "hora", "run", "-np", "11", "--bind", "none", "--log-dir", "logs", "-prefix-timestamp", "sh", "-c", "echo I am $RANK")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	folders, _ := filepath.Glob(filepath.Join(dir, "logs/rank.*"))
	for rank := range 11 {
		want := fmt.Sprintf("rank.%02d", rank)
		b, err := os.ReadFile(filepath.Join(dir, "logs", want, "stdout"))
		if err != nil || string(b) != fmt.Sprintf("I am %d\n", rank) || len(folders) != 11 ||
			filepath.Base(folders[rank]) != want {
			t.Errorf("%s: %q %v among %v", want, b, err, folders)
		}
		if line := fmt.Sprintf(`(?m)^\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\[%[1]d\]<stdout>:I am %[1]d$`, rank); !regexp.MustCompile(line).MatchString(r.out) {
			t.Errorf("no line like %s in\n%s", line, r.out)
		}
	}
}

// Another machine that is named twice deals its cores and devices once, too.
func TestAnotherMachineWithTwoNames(t *testing.T) {
	n := hosttest.Up(t, "server1", "server2")
	program := n.Hosts[0].Install(self(t), "hora")
	code, out, errs := n.Hosts[0].Output(40*time.Second, "env", "HORA_TEST_PROGRAM=1", program, "run", "-np", "3", "-H", "server2:1,10.77.0.2:1,server1:1",
		"--gpus-per-rank", "2", "sh", "-c", `echo "$CUDA_VISIBLE_DEVICES of $(hostname)"; `+tellCores)
	for _, want := range []string{"[0]<stdout>:0,1 of server2\n", "[1]<stdout>:2,3 of server2\n", "[2]<stdout>:0,1 of server1\n"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, no %q in\n%s%s", code, want, out, errs)
		}
	}
	if got := bound(t, result{code, out, errs}, 3); len(got[2]) > 1 && slices.Equal(got[0], got[1]) {
		t.Errorf("both names of server2 have the cores %v", got[0])
	}
}
