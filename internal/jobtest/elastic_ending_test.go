package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora"
	"hora/elastic"
	"hora/launch"
)

// commitAlone is a training in which rank 0 commits after every step and the others never do.
func commitAlone(ctx context.Context, cfg hora.Config) error {
	state := hora.NewState()
	err := hora.RunElastic(ctx, cfg, state, func(ctx context.Context, w *hora.World) error {
		say(w, "at work in epoch %d", w.Epoch())
		for {
			if err := hora.Barrier(ctx, w.Group()); err != nil {
				return err
			}
			pause(2 * time.Millisecond)
			if w.Rank() > 0 {
				continue
			}
			if err := state.Commit(); err != nil {
				return err
			}
		}
	})
	if errors.Is(err, hora.ErrDrained) {
		fmt.Println("0 0 left")
		return nil
	}
	return err
}

// TestAJobThatIsToldToEnd does not wait out its grace: when the first worker has left at its commit the others have
// lost it, and know that no next epoch comes.
func TestAJobThatIsToldToEnd(t *testing.T) {
	for _, policy := range []elastic.Policy{elastic.Replace, elastic.Continue} {
		t.Run(policy.String(), func(t *testing.T) {
			signals := make(chan os.Signal, 1)
			j := startElastic(t, 3, "alone", func(s *asked) {
				s.OnLoss, s.Min, s.Restarts, s.Grace, s.Signals = policy, 3, 1, 2*time.Minute, signals
			})
			j.until("all at work", 30*time.Second, func() bool { return j.said("at work in epoch 1\n") == 3 })
			signals <- syscall.SIGTERM
			select {
			case <-j.ended:
			case <-time.After(40 * time.Second):
				t.Fatalf("the job waits for the end of its grace\n%s", j.text())
			}
			if j.outcome.Kind != launch.Cancelled || j.outcome.Signal != syscall.SIGTERM ||
				strings.Count(j.text(), "0 0 left\n") != 3 {
				t.Errorf("outcome %v\n%s", j.outcome.String(), j.text())
			}
		})
	}
}
