package jobtest_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora"
	"hora/elastic"
)

func init() {
	elasticRoles["early"] = dieEarly
	roles["tell"] = func(_ context.Context, w *hora.World) error {
		say(w, "local %d of %d", w.LocalRank(), w.LocalSize())
		return nil
	}
}

// dieEarly is trainElastic whose rank EARLY names dies, once: before it joins (with EARLY_STOPS it is stopped there),
// or with EARLY_JOINED while it waits for the others. Rank HOLD_RANK joins when the file HOLD is there.
func dieEarly(ctx context.Context, cfg hora.Config) error {
	rank := strconv.Itoa(cfg.Rank)
	mark := os.Getenv("EARLY_MARK")
	if _, err := os.Stat(mark); rank == os.Getenv("EARLY") && err != nil {
		if err := os.WriteFile(mark, nil, 0o644); err != nil {
			return err
		}
		die := func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) }
		if os.Getenv("EARLY_STOPS") != "" {
			die = func() { syscall.Kill(os.Getpid(), syscall.SIGSTOP) }
		}
		if os.Getenv("EARLY_JOINED") == "" {
			die()
		}
		time.AfterFunc(300*time.Millisecond, die)
	}
	for rank == os.Getenv("HOLD_RANK") && !present("HOLD") {
		pause(2 * time.Millisecond)
	}
	return trainElastic(ctx, cfg)
}

// TestADeathBeforeTheFirstEpoch kills a rank before it joins, and one that has joined while another has not: the others
// go on without it, or wait for the process that is started in its place. The coordinator may be a process of its own.
func TestADeathBeforeTheFirstEpoch(t *testing.T) {
	for _, c := range []struct {
		name            string
		policy          elastic.Policy
		joined, apart   bool
		restarts, ranks int
	}{
		{"continue", elastic.Continue, false, false, 0, 2},
		{"continue, joined", elastic.Continue, true, false, 0, 2},
		{"continue, joined, coordinator apart", elastic.Continue, true, true, 0, 2},
		{"continue, started again", elastic.Continue, false, false, 1, 3},
		{"continue, joined, started again", elastic.Continue, true, false, 1, 3},
		{"replace", elastic.Replace, false, false, 1, 3},
		{"replace, joined", elastic.Replace, true, false, 1, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			hold := filepath.Join(dir, "hold")
			env := []string{"STEPS=100", "EVERY=1", "EARLY=1", "EARLY_MARK=" + filepath.Join(dir, "mark"), "HOLD_RANK=2", "HOLD=" + hold}
			if c.joined {
				env = append(env, "EARLY_JOINED=1")
			}
			j := startElastic(t, 3, "early", func(s *asked) {
				s.OnLoss, s.Min, s.Restarts = c.policy, 1, c.restarts
				if c.apart {
					s.StateDir = filepath.Join(dir, "state")
				}
			}, env...)
			j.until("rank 1 to be lost", 20*time.Second, func() bool {
				return strings.Contains(strings.Join(j.events, "\n"), "rank 1 on here: killed by signal 9 (SIGKILL): ")
			})
			if err := os.WriteFile(hold, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			j.sameWeights(c.ranks, 100)
			if c.apart { // its death may be told there after the last rank's arrival
				return
			}
			if strings.Contains(j.text(), "epoch 2 begins") || strings.Count(j.text(), "epoch 1 begins at step 0") != c.ranks {
				t.Errorf("want one epoch of %d ranks\n%s", c.ranks, j.text())
			}
		})
	}
}

// TestPlacesAfterADeathBeforeTheFirstEpoch: whoever joins without RunElastic is told the place that it got.
func TestPlacesAfterADeathBeforeTheFirstEpoch(t *testing.T) {
	j := startElastic(t, 3, "tell", func(s *asked) {
		s.Command = []string{"sh", "-c", `[ $HORA_RANK = 1 ] && kill -9 $$; exec "$0"`, s.Command[0]}
		s.OnLoss, s.Min, s.Restarts = elastic.Continue, 1, 0
	})
	j.wait(20 * time.Second)
	for _, want := range []string{" 0 local 0 of 2\n", " 1 local 1 of 2\n"} {
		if !strings.Contains(j.text(), want) {
			t.Errorf("nobody says %q\n%s", want, j.text())
		}
	}
}
