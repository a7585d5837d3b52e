package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/launch/machine"
)

// adoptableHub starts a hub whose job can be adopted, and agents for its two ranks, which note their process, leave
// their call as their result and wait for the file go to do one allreduce.
func adoptableHub(t *testing.T, call []byte, args ...string) *gathering {
	t.Helper()
	file := filepath.Join(t.TempDir(), "call")
	if err := os.WriteFile(file, call, 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"-np", "2", "--coordinator-state", "state", "--call", file, "--results", "out"}, args...)
	g := gather(t, nil, append(args, "--", "sh", "-c", `echo $$ >> pids.$HORA_RANK; cat $HORA_CALL > $HORA_RESULT
while [ ! -e go ]; do sleep 0.02; done; HORA_TEST_WORKER=1 `+self(t)+` > sums.$HORA_RANK; code=$?; cat sums.$HORA_RANK; exit $code`)...)
	for i := range 2 {
		g.agent(nil)
		g.await("registered", i+1, 30*time.Second)
	}
	g.until("its ranks have started", func() bool {
		noted, err := os.Stat(filepath.Join(g.dir, "state", "launcher"))
		pids, _ := filepath.Glob(filepath.Join(g.dir, "pids.*"))
		return err == nil && noted.Size() > 0 && len(pids) == 2
	})
	return g
}

// until waits.
func (g *gathering) until(what string, is func() bool) {
	g.t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for end := time.After(30 * time.Second); !is(); {
		select {
		case <-look.C:
		case <-end:
			g.t.Fatalf("not in 30 s: %s; the hub said\n%s", what, g.hub.said())
		}
	}
}

// heir has another hub adopt the job.
func (g *gathering) heir() {
	g.t.Helper()
	g.hub = &lasting{cmd: g.process(nil, "hub", "--adopt", "state", "--verbose", "--until-stdin-ends")}
	g.hub.begin(g.t)
}

// TestAKilledHubIsAdopted kills hubs at drawn moments. The agents come back to the next one by themselves, with the
// same workers, and what is left of calls and results.
func TestAKilledHubIsAdopted(t *testing.T) {
	seed, kills := *adoptSeed, 4
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	if os.Getenv("HORA_SOAK") == "1" {
		kills = 50
	}
	t.Logf("seed %d: go test ./cmd/hora -run '^%s$' -adopt-seed %d", seed, t.Name(), seed)
	draw := rand.New(rand.NewPCG(seed, 7))
	t.Setenv("HORA_ADOPT_TIMEOUT", "20")
	for met := 0; met < kills && !t.Failed(); {
		met += oneAdoptedHub(t, draw)
	}
}

func oneAdoptedHub(t *testing.T, draw *rand.Rand) (met int) {
	t.Helper()
	var args []string
	if draw.IntN(2) == 0 {
		args = []string{"--min-np", "2"}
	}
	call := bytes.Repeat([]byte(fmt.Sprintln("call", draw.Uint64())), 1<<18)
	g := adoptableHub(t, call, args...)
	all, story := 1+draw.IntN(3), ""
	early := draw.IntN(2 * all)
	for k := range all {
		if k == early {
			release(t, g.dir)
		}
		moment := time.NewTimer(time.Duration(draw.IntN(400)) * time.Millisecond)
		select {
		case <-moment.C:
		case <-g.hub.ended:
		}
		if draw.IntN(2) == 0 {
			_ = g.hub.cmd.Process.Kill() // it may have ended with the job
		} else {
			g.hub.in.Close() // whoever had started it is gone
		}
		g.hub.code(t, 30*time.Second)
		story += fmt.Sprintf("hub %d:\n%s", k, g.hub.said())
		if g.hub.cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
			met++
		}
		g.heir()
	}
	release(t, g.dir)
	code := g.hub.code(t, 60*time.Second)
	story += "the last:\n" + g.hub.said()
	// A hub that was killed at its very end has left nothing to its heir, and its agents hear no more of it.
	if strings.Contains(g.hub.said(), "its job has ended with exit code 0") && early < all {
		return met
	}
	if code != 0 {
		for i, a := range g.agents {
			story += fmt.Sprintf("agent %d:\n%s", i, a.said())
		}
		t.Fatalf("exit code %d after %d kills\n%s", code, met, story)
	}
	for rank := range 2 {
		b, err := os.ReadFile(filepath.Join(g.dir, fmt.Sprint("sums.", rank)))
		if err != nil || !strings.Contains(string(b), " sums 3;") || !strings.Contains(story, string(b)) {
			t.Errorf("rank %d: %v, %q\n%s", rank, err, b, story)
		}
		b, err = os.ReadFile(filepath.Join(g.dir, fmt.Sprint("pids.", rank)))
		if err != nil || bytes.Count(b, []byte("\n")) != 1 {
			t.Errorf("rank %d was started again: %q, %v\n%s", rank, b, err, story)
		}
		if b, err := os.ReadFile(filepath.Join(g.dir, "out", fmt.Sprint("rank.", rank))); !bytes.Equal(b, call) {
			t.Errorf("rank %d has left %d bytes, %v: not the %d of the call\n%s", rank, len(b), err, len(call), story)
		}
		if code := g.agents[rank].code(t, 10*time.Second); code != 0 {
			t.Errorf("an agent ends with %d: %s\n%s", code, g.agents[rank].said(), story)
		}
	}
	g.nothingLeft(5 * time.Second)
	return met
}

// TestAnAdoptedHubGoesOn: an agent that ended while there was no hub is a lost host, whose worker another one takes
// that comes later.
func TestAnAdoptedHubGoesOn(t *testing.T) {
	t.Setenv("HORA_ADOPT_TIMEOUT", "30")
	g := gather(t, nil, "-np", "2", "--min-np", "1", "--coordinator-state", "state", "--env", "HORA_TEST_WORKER=elastic",
		"--env", "ENOUGH=enough", self(t))
	g.agent(nil)
	g.await("registered", 1, 30*time.Second)
	g.agent(nil)
	g.until("two work", func() bool { return strings.Contains(g.hub.said(), "world of 2 as rank 1") })
	_ = g.hub.cmd.Process.Kill()
	g.hub.code(t, 30*time.Second)
	_ = g.agents[0].cmd.Process.Kill()
	g.heir()
	g.until("one works", func() bool { return strings.Contains(g.hub.said(), "world of 1 as rank 0") })
	before := strings.Count(g.hub.said(), "world of 2") // a line that the first hub had not taken is said again
	g.agent(nil)
	g.until("two work again", func() bool { return strings.Count(g.hub.said(), "world of 2") >= before+2 })
	if err := os.WriteFile(filepath.Join(g.dir, "enough"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := g.hub.code(t, 60*time.Second); code != 0 {
		t.Fatalf("exit code %d\n%s", code, g.hub.said())
	}
	for _, a := range g.agents[1:] {
		if code := a.code(t, 10*time.Second); code != 0 {
			t.Errorf("an agent ends with %d: %s", code, a.said())
		}
	}
	g.nothingLeft(5 * time.Second)
}

// vanish kills an agent and the process above it at once.
func (l *lasting) vanish(t *testing.T) {
	t.Helper()
	pid := l.cmd.Process.Pid
	syscall.Kill(pid, syscall.SIGSTOP) // it would look after what the agent leaves
	for _, below := range machine.Descendants(pid) {
		syscall.Kill(below, syscall.SIGKILL)
	}
	syscall.Kill(pid, syscall.SIGKILL)
}

// TestAnAdoptedHubWithoutAHost: an agent that does not come back, with all that was on its machine, is a lost host; the
// others, which reach the hub by an address of its own, go on meanwhile. Who adopts the job next does not await it.
func TestAnAdoptedHubWithoutAHost(t *testing.T) {
	if len(machine.OwnAddresses(nil)) == 0 {
		t.Skip("needs an address beside the loopback's")
	}
	t.Setenv("HORA_ADOPT_TIMEOUT", "30")
	t.Setenv("HORA_PEER_TIMEOUT", "3") // less than a missing agent is awaited
	g := gather(t, nil, "-np", "3", "--min-np", "1", "--coordinator-state", "state", "--env", "HORA_TEST_WORKER=elastic",
		"--env", "ENOUGH=enough", self(t))
	for i := range 3 {
		g.agent(nil, fmt.Sprint("HORA_HOST_ID=machine-", i))
		g.await("registered", i+1, 30*time.Second)
	}
	g.until("three work", func() bool { return strings.Contains(g.hub.said(), "world of 3 as rank 2") })
	_ = g.hub.cmd.Process.Kill()
	g.hub.code(t, 30*time.Second)
	g.agents[1].vanish(t)
	g.heir()
	g.until("two work", func() bool { return strings.Contains(g.hub.said(), "world of 2 as rank 1") })
	_ = g.hub.cmd.Process.Kill()
	g.hub.code(t, 30*time.Second)
	first := g.hub.said()
	g.heir()
	if err := os.WriteFile(filepath.Join(g.dir, "enough"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := g.hub.code(t, 60*time.Second); code != 0 {
		t.Fatalf("exit code %d\n%s\nthe one before said\n%s", code, g.hub.said(), first)
	}
	for i, a := range []*lasting{g.agents[0], g.agents[2]} {
		if code := a.code(t, 10*time.Second); code != 0 {
			t.Errorf("agent %d ends with %d: %s\n%s\nthe one before said\n%s", i, code, a.said(), g.hub.said(), first)
		}
	}
	g.nothingLeft(5 * time.Second)
}

// TestNobodyAdoptsAHub: the agents end their workers when they have waited long enough.
func TestNobodyAdoptsAHub(t *testing.T) {
	t.Setenv("HORA_ADOPT_TIMEOUT", "2")
	g := adoptableHub(t, []byte("call"))
	_ = g.hub.cmd.Process.Kill()
	for _, a := range g.agents {
		if code := a.code(t, 30*time.Second); code != 69 || !strings.Contains(a.said(), "lost the hub") {
			t.Errorf("an agent ends with %d: %s", code, a.said())
		}
	}
	g.nothingLeft(10 * time.Second)
}
