package jobtest_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/elastic"
	"hora/launch"
)

// late starts two ranks, of which the second joins when the test says so. The workers' own start timeout is shorter
// than what the launcher waits.
func late(t *testing.T, change func(*asked)) (j *elasticJob, join func()) {
	t.Helper()
	hold := filepath.Join(t.TempDir(), "hold")
	j = startElastic(t, 2, "early", func(s *asked) {
		s.OnLoss, s.Restarts, s.JoinWord, s.Join = elastic.Stop, 0, time.Second/2, 30*time.Minute
		if change != nil {
			change(s)
		}
	}, "STEPS=50", "EVERY=1", "HOLD_RANK=1", "HOLD="+hold, "HORA_START_TIMEOUT=1")
	return j, func() {
		if err := os.WriteFile(hold, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestARankThatIsLateIsWaitedFor for longer than the workers' start timeout: the launcher says for whom, and what it
// does.
func TestARankThatIsLateIsWaitedFor(t *testing.T) {
	for name, change := range map[string]func(*asked){
		"stop":              nil,
		"coordinator apart": func(s *asked) { s.StateDir = filepath.Join(s.Dir, "state") },
		"continue":          func(s *asked) { s.OnLoss, s.Min = elastic.Continue, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j, join := late(t, change)
			j.until("the word that comes again", 20*time.Second, func() bool {
				return strings.Count(strings.Join(j.events, "\n"), "waiting for rank 1 on here (its process ") >= 2
			})
			// What the process does at that moment, "is idle" or "runs", is the machine's to say.
			j.tells("waiting for rank 1 on here (its process ", ") to join; 1 of 2 ranks has; ", "s so far, at most 30m0s (--start-timeout)")
			join()
			j.sameWeights(2, 50)
		})
	}
}

// TestARankThatNeverJoinsEndsTheJob: the last line names it, what it does and the flag.
func TestARankThatNeverJoinsEndsTheJob(t *testing.T) {
	j, _ := late(t, func(s *asked) { s.Join = 2 * time.Second })
	j.until("both processes", 20*time.Second, func() bool { return len(j.pids) == 2 })
	j.signal(1, syscall.SIGSTOP)
	select {
	case <-j.ended:
	case <-time.After(20 * time.Second):
		t.Fatalf("the job goes on\n%s", j.text())
	}
	want := "rank 1 on here (its process is stopped) has not joined 2s after the first rank did: look at the output there, or give it longer with --start-timeout"
	if got := j.outcome.String(); got != want || j.outcome.ExitCode() != launch.ExitTimeout {
		t.Errorf("%d %q\n%s", j.outcome.ExitCode(), got, j.text())
	}
}

// TestARankThatNeverJoinsIsLost where the policy goes on after a loss: its process is ended, and replaced or left
// behind.
func TestARankThatNeverJoinsIsLost(t *testing.T) {
	for _, policy := range []elastic.Policy{elastic.Replace, elastic.Continue} {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			mark := filepath.Join(t.TempDir(), "mark")
			j := startElastic(t, 3, "early", func(s *asked) {
				s.OnLoss, s.Min, s.Restarts, s.Join = policy, 1, 1, 2*time.Second
				if policy == elastic.Continue {
					s.Restarts = 0
				}
			}, "STEPS=50", "EVERY=1", "EARLY=1", "EARLY_STOPS=1", "EARLY_MARK="+mark)
			j.sameWeights(map[elastic.Policy]int{elastic.Replace: 3, elastic.Continue: 2}[policy], 50)
			j.tells("rank 1 on here: has not joined in 2s (--start-timeout): its process is stopped: ")
		})
	}
}

// TestALateRankDies: the wait ends with it.
func TestALateRankDies(t *testing.T) {
	j, _ := late(t, nil)
	j.until("the wait", 20*time.Second, func() bool { return strings.Contains(strings.Join(j.events, "\n"), "waiting for rank 1") })
	j.signal(1, syscall.SIGKILL)
	select {
	case <-j.ended:
	case <-time.After(10 * time.Second):
		t.Fatalf("the job goes on\n%s", j.text())
	}
	if got := j.outcome.String(); got != "rank 1 on here: killed by signal 9 (SIGKILL)" {
		t.Errorf("%q\n%s", got, j.text())
	}
}
