package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/launch"
)

// adoptable starts a job of two ranks that note their process, wait for the file go and then do one allreduce.
func adoptable(t *testing.T, dir string) *lively {
	t.Helper()
	script := "echo $$ >> pids.$HORA_RANK; echo up $HORA_RANK; while [ ! -e go ]; do sleep 0.02; done; HORA_TEST_WORKER=1 HORA_TEST_PROGRAM= exec " + self(t)
	cmd := exec.Command(self(t), "run", "-np", "2", "--coordinator-state", "state", "sh", "-c", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HORA_TEST_PROGRAM=1", "HORA_ADOPT_TIMEOUT=20")
	l := start(t, cmd)
	l.await("up 0", "up 1")
	return l
}

// besideAgents finds a launcher's children that are no agents: its coordinator and its guard.
func besideAgents(t *testing.T, launcher int) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		var pid, parent int
		var name, state string
		b, _ := os.ReadFile(path) // it may have ended
		if n, _ := fmt.Sscan(string(b), &pid, &name, &state, &parent); n != 4 || parent != launcher {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if !strings.Contains(string(line), launch.AgentCommand) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestARunningJobIsAdopted kills launchers at drawn moments, and all but agents and workers; others go on with the same
// workers, whose ranks and sums are right.
func TestARunningJobIsAdopted(t *testing.T) {
	rounds := 2
	if os.Getenv("HORA_SOAK") == "1" {
		rounds = 25
	}
	for round := range rounds {
		dir := t.TempDir()
		l := adoptable(t, dir)
		if r := command(t, dir, "hora", "run", "--adopt", "state"); r.code != 2 || !strings.Contains(r.err, "its job's launcher lives: end that first") {
			t.Errorf("a job whose launcher lives: %+v", r)
		}
		others := besideAgents(t, l.cmd.Process.Pid)
		if len(others) == 0 {
			t.Error("no coordinator beside the launcher")
		}
		l.signal(syscall.SIGKILL)
		if round%2 == 1 { // in the other rounds they end by themselves
			for _, pid := range others {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		second := exec.Command(self(t), "run", "--adopt", "state")
		second.Dir, second.Env = dir, append(os.Environ(), "HORA_TEST_PROGRAM=1")
		next := start(t, second)
		moment := time.NewTimer(time.Duration(rand.IntN(400)) * time.Millisecond)
		<-moment.C
		if next.cmd.Process.Signal(syscall.SIGKILL) != nil {
			t.Fatalf("round %d: the second launcher has ended by itself\n%s", round, next.text())
		}
		<-next.over
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r := command(t, dir, "hora", "run", "--adopt", "state")
		if r.code != 0 {
			t.Fatalf("round %d: %+v\nthe second said\n%s", round, r, next.text())
		}
		for rank := range 2 {
			if want := fmt.Sprintf("[%d]<stdout>:rank %d of 2 on ", rank, rank); !strings.Contains(r.out, want) || strings.Count(r.out, " sums 3;") != 2 {
				t.Errorf("round %d: no %q with the sum in %+v", round, want, r)
			}
			if b, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("pids.", rank))); err != nil ||
				strings.Count(string(b), "\n") != 1 {
				t.Errorf("round %d: rank %d was started again: %q, %v", round, rank, b, err)
			}
		}
		if r := command(t, dir, "hora", "run", "--adopt", "state"); r.code != 2 || !strings.Contains(r.err, "its job has ended with exit code 0") {
			t.Errorf("a job that has ended: %+v", r)
		}
	}
}

// TestWhatCannotBeAdoptedIsRefused: folders that hold no job, others' and damaged ones, each in one sentence.
func TestWhatCannotBeAdoptedIsRefused(t *testing.T) {
	for _, c := range []struct {
		name, ledger string
		mode         os.FileMode
		args         []string
		want         string
	}{
		{"none", "", 0, nil, "there is no such folder"},
		{"empty", "", 0o700, nil, "no job has kept its state there"},
		{"open", "{}\n", 0o777, nil, "may be written to by other users"},
		{"garbage", "\x00garbage\n", 0o700, nil, "line 1 of its file launcher is damaged"},
		{"headless", `{"kind":"job","at":0}` + "\n", 0o700, nil, "line 1 of its file launcher is damaged"},
		{"unbegun", `{"kind":"job"`, 0o700, nil, "its job had not begun"},
		{"command", "", 0o700, []string{"true"}, "--adopt takes no command"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			state := filepath.Join(dir, "state")
			if c.mode != 0 {
				if err := os.Mkdir(state, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(state, c.mode); err != nil {
					t.Fatal(err)
				}
			}
			if c.ledger != "" {
				if err := os.WriteFile(filepath.Join(state, "launcher"), []byte(c.ledger), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := command(t, dir, "hora", append([]string{"run", "--adopt", "state"}, c.args...)...)
			if r.code != 2 || !strings.Contains(r.err, c.want) || strings.Count(strings.TrimSpace(r.err), "\n") > 1 {
				t.Errorf("%+v, want %q", r, c.want)
			}
		})
	}
}

// TestAJobThatCannotBeHandedOnSaysSo to whoever wants to adopt it.
func TestAJobThatCannotBeHandedOnSaysSo(t *testing.T) {
	dir := t.TempDir()
	if r := command(t, dir, "hora", "run", "-np", "1", "--discover", "echo localhost:1", "--coordinator-state", "state", "true"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	r := command(t, dir, "hora", "run", "--adopt", "state")
	if r.code != 2 || !strings.Contains(r.err, "its job cannot be taken over: its hosts come from --discover: start it again") || strings.Count(r.err, "\n") > 1 {
		t.Errorf("%+v", r)
	}
	r = command(t, dir, "hora", "hub", "--adopt", "state")
	if r.code != 2 || !strings.Contains(r.err, "--adopt belongs to hora run: a hub that is killed ends its agents") {
		t.Errorf("%+v", r)
	}
}

// TestAnothersJobIsNotAdopted needs the right to give a folder away.
func TestAnothersJobIsNotAdopted(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Chown(state, 12345, -1) != nil {
		return // only root may
	}
	if r := command(t, t.TempDir(), "hora", "run", "--adopt", state); r.code != 2 || !strings.Contains(r.err, "belongs to user 12345") {
		t.Errorf("%+v", r)
	}
}
