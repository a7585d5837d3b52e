package jobtest_test

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/elastic"
)

const shortTimeout = 1500 * time.Millisecond

// hasty gives a job a peer timeout that a test can wait for.
func hasty(change func(*asked)) func(*asked) {
	return func(s *asked) {
		s.Silence = shortTimeout
		s.Env = append(s.Env, "HORA_PEER_TIMEOUT=1.5")
		if change != nil {
			change(s)
		}
	}
}

// signal sends one to a living worker.
func (j *elasticJob) signal(rank int, s syscall.Signal) {
	j.t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := syscall.Kill(j.pids[rank], s); err != nil {
		j.t.Errorf("%v to rank %d: %v", s, rank, err)
	}
}

// TestAStoppedWorkerIsReplaced stops a worker for less than the peer timeout, which
// changes nothing, and then for good: it is lost, named as stopped, ended and replaced.
func TestAStoppedWorkerIsReplaced(t *testing.T) {
	const np = 3
	gate, open := gateFile(t)
	want := course(100)[100]
	j := startElastic(t, np, "train", hasty(nil), "STEPS=100", "EVERY=2", gate)
	j.until("all at work", 30*time.Second, func() bool { return len(j.pids) == np && j.said("sum in epoch 1\n") >= np })
	j.signal(1, syscall.SIGSTOP)
	pause(shortTimeout / 3)
	j.signal(1, syscall.SIGCONT)
	pause(100 * time.Millisecond)
	j.mu.Lock()
	if n := j.said("epoch 2 begins"); n > 0 {
		t.Errorf("a pause of a third of the timeout began another epoch")
	}
	pid := j.pids[1]
	j.mu.Unlock()
	at := time.Now()
	j.signal(1, syscall.SIGSTOP)
	j.until("the next epoch", 30*time.Second, func() bool { return j.said("sum in epoch 2\n") >= np })
	open()
	t.Logf("SIGSTOP to the first sum of the next epoch: %.1f s, the timeout is %v", slices.Max(j.moments("sum in epoch 2", at))/1000, shortTimeout)
	got := j.wait(time.Minute)
	if len(got) != np || got[0] != want || got[1] != want || got[2] != want {
		t.Errorf("digests %v, want %s\n%s", got, want, j.text())
	}
	text := j.text()
	if !strings.Contains(text, "rank 1 on here: silent for 1.5s (HORA_PEER_TIMEOUT, hora run --peer-timeout): its process is stopped: starting it again") || strings.Count(text, "starting it again") != 1 {
		t.Errorf("the events do not tell the story:\n%s", text)
	}
	if syscall.Kill(pid, 0) == nil {
		t.Errorf("the stopped process %d is still there", pid)
	}
}

// TestAStoppedWorkerIsLeftBehind: the same under continue.
func TestAStoppedWorkerIsLeftBehind(t *testing.T) {
	gate, open := gateFile(t)
	j := startElastic(
		t, 3, "train", hasty(func(s *asked) { s.OnLoss, s.Restarts, s.Min = elastic.Continue, 0, 2 }), "STEPS=100",
		"EVERY=2", gate,
	)
	j.until("all at work", 30*time.Second, func() bool { return len(j.pids) == 3 && j.said("sum in epoch 1\n") >= 3 })
	j.signal(0, syscall.SIGSTOP)
	j.until("two go on", 30*time.Second, func() bool { return j.said("reset size 2\n") == 2 })
	open()
	got := j.wait(time.Minute)
	if len(got) != 2 || got[0] != got[1] || !strings.Contains(j.text(), "silent for 1.5s (HORA_PEER_TIMEOUT, hora run --peer-timeout): its process is stopped: the other 2 go on") {
		t.Errorf("digests %v\n%s", got, j.text())
	}
}
