package jobtest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hora/elastic"
	"hora/event"
	"hora/internal/hosttest"
	"hora/launch"
)

// TestAOneWayCutIsALoss: packets of one host vanish in one direction only. A short cut changes
// nothing; after a long one the host is lost and its ranks start elsewhere.
func TestAOneWayCutIsALoss(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	n := hosttest.Up(t, "a", "b", "c")
	a, b := n.Hosts[0], n.Hosts[1]
	oneWay := func(cut bool) {
		t.Helper()
		script := "nft delete table inet cut"
		if cut {
			script = "nft add table inet cut && nft add chain inet cut in '{ type filter hook input priority 0; }' && nft add rule inet cut in ip saddr " + b.Addr + " drop"
		}
		if code, _, errs := a.Output(10*time.Second, "sh", "-c", script); code != 0 {
			t.Fatal(errs)
		}
	}
	j := startOnHosts(
		t, a, hostsPlan{NP: 2, Restarts: 3, OnLoss: elastic.Replace, Hosts: "a:1,b:1,c:1", Silence: 2 * time.Second},
		"STEPS=100", "EVERY=1", "GATE=open",
	)
	j.until("both at work", 40*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 2 })
	oneWay(true)
	pause(500 * time.Millisecond)
	oneWay(false)
	pause(300 * time.Millisecond)
	if strings.Contains(j.text(), "epoch 2 begins") {
		t.Errorf("a cut of a quarter of the timeout began another epoch\n%s", j.text())
	}
	oneWay(true)
	j.until("the next epoch", 60*time.Second, func() bool { return j.said("sum in epoch 2\n") >= 2 })
	openAt(t, n)
	j.sameWeights(2, 100)
	j.tells("starting it on c")
	j.tells("event: b: silent for 2s: look whether it is up and the network to it works: it is not used any more")
	// The other rank has it from its own connection or from the launcher, whichever is first.
	if text := j.text(); !strings.Contains(text, "lost rank 1 on host b: silent for 2s") && !strings.Contains(text, " 0 news ") {
		t.Errorf("rank 0 does not say whom it lost\n%s", text)
	}
}

// TestAPausedCoordinatorDelaysChangesOnly stops the coordinator for longer than the peer
// timeout: the training goes on, and a worker that is killed meanwhile is replaced after it.
func TestAPausedCoordinatorDelaysChangesOnly(t *testing.T) {
	dir := t.TempDir()
	gate, open := gateFile(t)
	j := startElastic(t, 2, "train", hasty(func(s *asked) { s.StateDir = dir }), "STEPS=100", "EVERY=1", gate)
	j.until("both at work", 30*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 2 && len(j.pids) == 2 })
	pid := coordinatorOf(dir)
	syscall.Kill(pid, syscall.SIGSTOP)
	pause(shortTimeout + shortTimeout/2)
	if strings.Contains(j.text(), "error") || strings.Contains(j.text(), "news") {
		t.Errorf("the training noticed:\n%s", j.text())
	}
	j.signal(1, syscall.SIGKILL)
	pause(200 * time.Millisecond)
	syscall.Kill(pid, syscall.SIGCONT)
	j.until("the next epoch", 40*time.Second, func() bool { return j.said("sum in epoch 2\n") >= 2 })
	open()
	j.sameWeights(2, 100)
	if n := strings.Count(j.text(), "starting it again"); n != 1 {
		t.Errorf("%d restarts\n%s", n, j.text())
	}
}

// TestAWorkerThatSwaps stands still again and again, for longer than the peer timeout in all and never so long at once:
// the others wait for it, and nothing else happens.
func TestAWorkerThatSwaps(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	j := startElastic(t, 2, "train", hasty(nil), "STEPS=100000000", "EVERY=1", "END="+filepath.Join(t.TempDir(), "end"))
	j.until("both at work", 30*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 2 && len(j.pids) == 2 })
	draw := drawSeed(t)
	for stood := time.Duration(0); stood < 2*shortTimeout; {
		nap := shortTimeout/20 + time.Duration(draw.Int64N(int64(shortTimeout/4)))
		j.signal(1, syscall.SIGSTOP)
		pause(nap)
		j.signal(1, syscall.SIGCONT)
		pause(time.Duration(draw.IntN(20)) * time.Millisecond)
		stood += nap
	}
	began := time.Now()
	j.until("the training to go on", 30*time.Second, func() bool { return len(j.momentsHeld("progress ", began)) > 0 })
	j.unmoved()
}

// unmoved fails where anything but steps has happened to the job.
func (j *elasticJob) unmoved() {
	j.t.Helper()
	for _, no := range []string{"error", "news", "epoch 2 begins", "silent", "lost"} {
		if strings.Contains(j.text(), no) {
			j.t.Errorf("the training noticed: %q in\n%s", no, j.text())
		}
	}
}

// TestASetClockChangesNothing sets the machine's clock forward by more than every timeout, and back, while a job trains
// and while it recovers.
func TestASetClockChangesNothing(t *testing.T) {
	if os.Getenv("HORA_SOAK") != "1" {
		t.Skip("make soak: sets this machine's clock")
	}
	j := startElastic(t, 3, "train", hasty(nil), "STEPS=100000000", "EVERY=1", "END="+filepath.Join(t.TempDir(), "end"))
	j.until("all at work", 30*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 3 && len(j.pids) == 3 })
	for _, leap := range []time.Duration{5 * time.Second, -5 * time.Second} {
		back := setClock(t, leap)
		pause(600 * time.Millisecond)
		back()
		pause(300 * time.Millisecond)
	}
	j.unmoved()
	back := setClock(t, 5*time.Second)
	pid := j.pids[1]
	j.signal(1, syscall.SIGKILL)
	j.until("the next epoch", 20*time.Second, func() bool { return j.said("sum in epoch 2\n") >= 3 })
	back()
	pause(500 * time.Millisecond)
	if text := j.text(); strings.Count(text, "starting it again") != 1 || strings.Contains(text, "silent") || strings.Contains(text, "epoch 3 begins") {
		t.Errorf("more than the end of process %d happened:\n%s", pid, text)
	}
}

// setClock moves the wall clock by a difference until back is called.
func setClock(t *testing.T, by time.Duration) (back func()) {
	t.Helper()
	move := func(by time.Duration) error {
		// Microseconds are never negative, seconds may be.
		_, err := unix.ClockAdjtime(unix.CLOCK_REALTIME, &unix.Timex{
			Modes: unix.ADJ_SETOFFSET, Time: unix.Timeval{Sec: int64(by / time.Second)},
		})
		return err
	}
	if err := move(by); errors.Is(err, unix.EPERM) {
		t.Skip("needs the right to set the clock")
	} else if err != nil {
		t.Fatal(err)
	}
	moved := true
	back = func() {
		if moved {
			moved = false
			if err := move(-by); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(back)
	return back
}

// TestTwoJobsOfOneName share hosts and nothing else.
func TestTwoJobsOfOneName(t *testing.T) {
	first := startElastic(t, 2, "train", nil, "STEPS=100", "EVERY=1")
	second := startElastic(t, 2, "train", nil, "STEPS=60", "EVERY=1")
	first.sameWeights(2, 100)
	second.sameWeights(2, 60)
}

// TestTooFewAreWaitedForAndTheJobEnds: fewer than the least number for the elastic timeout. The wait says for whom, and
// how long yet.
func TestTooFewAreWaitedForAndTheJobEnds(t *testing.T) {
	draw := drawSeed(t)
	find := launch.ScriptHosts("echo localhost:2", 0, nil)
	j := startElastic(t, 2, "train", func(s *asked) {
		s.OnLoss, s.Restarts, s.Min = elastic.Continue, 0, 2
		s.Find, s.Wait = find, 3600*time.Millisecond
	}, "STEPS=100000000", "EVERY=1", "SLOW=1")
	j.until("both at work", 30*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 2 && len(j.pids) == 2 })
	j.kill(1, draw)
	select {
	case <-j.ended:
	case <-time.After(40 * time.Second):
		t.Fatalf("the job goes on\n%s", j.text())
	}
	j.tells("waiting for 1 more worker: 1 worker is left, and --min-np is 2 (not used: 1 slot of localhost); ", "s so far, at most 3.6s")
	want := "1 worker is left for 3.6s, and --min-np is 2: add hosts, or lower --min-np"
	if got := j.outcome.String(); got != want || j.outcome.ExitCode() != launch.ExitTimeout {
		t.Errorf("%d %q\n%s", j.outcome.ExitCode(), got, j.text())
	}
}

// TestAWorkerThatAlwaysFails uses the budget up with growing pauses, and its sentence is the
// last word once.
func TestAWorkerThatAlwaysFails(t *testing.T) {
	began := time.Now()
	var again restartsOf
	j := startElastic(t, 2, "userfail", func(s *asked) {
		s.Restarts = 4
		s.Events.Add(&again)
	})
	select {
	case <-j.ended:
	case <-time.After(60 * time.Second):
		t.Fatalf("the job goes on\n%s", j.text())
	}
	last := j.outcome.String()
	if j.outcome.Kind != launch.Failed || strings.Count(last, "the data ends here") > 1 {
		t.Errorf("the last word is %q\n%s", last, j.text())
	}
	if n := strings.Count(j.text(), "starting it again"); n != 4 {
		t.Errorf("%d restarts of 4\n%s", n, j.text())
	}
	if took := time.Since(began); took < 700*time.Millisecond { // 0 + 0.1 + 0.2 + 0.4 s
		t.Errorf("no pauses: %v", took)
	}
	for i, e := range again.all {
		if i > 0 && (e.In <= again.all[i-1].In || e.In < again.all[i-1].In*2) {
			t.Errorf("pauses do not grow: %v after %v", e.In, again.all[i-1].In)
		}
	}
	t.Log(last, fmt.Sprint(time.Since(began).Round(time.Millisecond)))
}

// restartsOf keeps what a job says of its restarts. It is read when the job has ended.
type restartsOf struct{ all []*event.Restarted }

func (*restartsOf) Operation(*event.Operation) {}

func (r *restartsOf) Event(e event.Event) {
	if e, ok := e.(*event.Restarted); ok {
		r.all = append(r.all, e)
	}
}
