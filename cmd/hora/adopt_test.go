package main

import (
	"bytes"
	"flag"
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

// adoptable starts a job of two ranks that note their process, wait for the file go and then do one allreduce, whose
// sum they keep and tell. With a file call each leaves that as its result.
func adoptable(t *testing.T, dir string, args ...string) *lively {
	t.Helper()
	script := `echo $$ >> pids.$HORA_RANK; if [ -n "$HORA_CALL" ]; then cat $HORA_CALL > $HORA_RESULT; fi; echo up $HORA_RANK; while [ ! -e go ]; do sleep 0.02; done
HORA_TEST_WORKER=1 HORA_TEST_PROGRAM= ` + self(t) + ` > sums.$HORA_RANK; code=$?; cat sums.$HORA_RANK; exit $code`
	args = append([]string{"run", "-np", "2", "--coordinator-state", "state"}, args...)
	cmd := exec.Command(self(t), append(args, "sh", "-c", script)...)
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

// adoptSeed and adoptKills replay TestARunningJobIsAdopted, or make it longer.
var (
	adoptSeed  = flag.Uint64("adopt-seed", 0, "seed of the moments at which launchers are killed; 0 draws one")
	adoptKills = flag.Int("adopt-kills", 6, "how many moments those are, at least")
)

// TestARunningJobIsAdopted kills launchers at drawn moments, with the coordinators and guards beside them or without:
// while they start, take a job over, its ranks wait, meet, sum and end. Others go on with the same workers, whose ranks
// and sums are right.
func TestARunningJobIsAdopted(t *testing.T) {
	seed, kills := *adoptSeed, *adoptKills
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	if os.Getenv("HORA_SOAK") == "1" {
		kills = 50
	}
	t.Logf("seed %d: go test ./cmd/hora -run '^%s$' -adopt-seed %d -adopt-kills %d", seed, t.Name(), seed, kills)
	draw := rand.New(rand.NewPCG(seed, 5))
	met, jobs := 0, 0
	for ; met < kills; jobs++ {
		if jobs > 4*kills {
			t.Fatalf("%d jobs, and only %d moments at which a launcher was there to be killed", jobs, met)
		}
		met += oneAdopted(t, draw)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d launchers of %d jobs were killed", met, jobs)
}

// oneAdopted kills up to three launchers of a job and returns how many. The ranks may go on before any of them.
func oneAdopted(t *testing.T, draw *rand.Rand) (met int) {
	t.Helper()
	dir := t.TempDir()
	var args []string
	if draw.IntN(3) == 0 {
		args = []string{"--discover", "echo localhost:1; echo 127.0.0.1:1"}
	}
	var call []byte // of more parts than can be on their way at once
	if draw.IntN(2) == 0 {
		call = bytes.Repeat([]byte(fmt.Sprintln("call", draw.Uint64())), 1<<18)
		args = append(args, callOf(t, dir, call)...)
	}
	l := adoptable(t, dir, args...)
	all := 1 + draw.IntN(3)
	early := draw.IntN(2*all + 1) // beyond all: when nobody is killed any more
	launchers := []*lively{l}
	for k := range all {
		if k == early {
			release(t, dir)
		}
		beside := draw.IntN(2) == 1 // in the other cases they end by themselves
		moment := time.NewTimer(time.Duration(draw.IntN(400)) * time.Millisecond)
		select {
		case <-moment.C:
		case <-l.over:
		}
		others := besideAgents(t, l.cmd.Process.Pid)
		_ = l.cmd.Process.Kill() // it may have ended with the job
		if beside {
			for _, pid := range others {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if k > 0 {
			<-l.over // the agents have the first one's standard error
		}
		heir := exec.Command(self(t), "run", "--adopt", "state")
		heir.Dir, heir.Env = dir, append(os.Environ(), "HORA_TEST_PROGRAM=1")
		l = start(t, heir)
		launchers = append(launchers, l)
	}
	release(t, dir)
	code, last := l.end()
	story := ""
	for k, one := range launchers {
		<-one.over
		story += fmt.Sprintf("launcher %d:\n%s", k, one.text())
		if st, is := one.cmd.ProcessState.Sys().(syscall.WaitStatus); is && st.Signaled() {
			met++
		}
	}
	// A launcher that was killed at its very end has left nothing to its heir.
	ended := early < all && code == 2 && strings.Contains(last, "its job has ended with exit code 0")
	if code != 0 && !ended {
		t.Fatalf("exit code %d after %d kills\n%s", code, met, story)
	}
	for rank := range 2 {
		if want := fmt.Sprintf("[%d]<stdout>:rank %d of 2 on ", rank, rank); !strings.Contains(story, want) {
			t.Errorf("no %q after %d kills\n%s", want, met, story)
		}
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("sums.", rank)))
		if err != nil || !strings.Contains(string(b), " sums 3;") {
			t.Errorf("rank %d: %v, %q", rank, err, b)
		}
		b, err = os.ReadFile(filepath.Join(dir, fmt.Sprint("pids.", rank)))
		if err != nil || strings.Count(string(b), "\n") != 1 {
			t.Errorf("rank %d was started again: %q, %v", rank, b, err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "results", fmt.Sprint("rank.", rank))); call != nil && !bytes.Equal(b, call) {
			t.Errorf("rank %d has left %d bytes, %v: not the %d of the call\n%s", rank, len(b), err, len(call), story)
		}
	}
	if r := command(t, dir, "hora", "run", "--adopt", "state"); r.code != 2 ||
		!strings.Contains(r.err, "its job has ended with exit code 0") {
		t.Errorf("a job that has ended: %+v", r)
	}
	return met
}

// callOf returns the flags by which a job's ranks are handed a call, and leave results.
func callOf(t *testing.T, dir string, call []byte) []string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "call"), call, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--call", "call", "--results", "results"}
}

// release has the ranks of an adoptable job go on.
func release(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAJobWhoseLauncherLivesIsNotAdopted says so; the job goes on.
func TestAJobWhoseLauncherLivesIsNotAdopted(t *testing.T) {
	dir := t.TempDir()
	l := adoptable(t, dir)
	if r := command(t, dir, "hora", "run", "--adopt", "state"); r.code != 2 ||
		!strings.Contains(r.err, "its job's launcher lives: end that first") {
		t.Errorf("%+v", r)
	}
	if len(besideAgents(t, l.cmd.Process.Pid)) == 0 {
		t.Error("no coordinator beside the launcher")
	}
	release(t, dir)
	if code, _ := l.end(); code != 0 {
		t.Errorf("exit code %d\n%s", code, l.text())
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
