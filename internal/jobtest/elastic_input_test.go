package jobtest_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hora"
	"hora/elastic"
	"hora/launch"
)

func init() { elasticRoles["unrestorable"] = loseState }

// loseState holds a value that cannot be put back.
func loseState(ctx context.Context, cfg hora.Config) error {
	state := hora.NewState()
	state.Custom("reader", func() ([]byte, error) { return []byte("at 7"), nil }, func([]byte) error { return errors.New("the file has shrunk") })
	return hora.RunElastic(ctx, cfg, state, func(ctx context.Context, w *hora.World) error {
		for {
			if err := hora.Barrier(ctx, w.Group()); err != nil {
				return err
			}
			if err := state.Commit(); err != nil {
				return err
			}
			if w.Epoch() == 1 && w.Rank() == 1 {
				return errors.New("this one has had enough")
			}
			pause(time.Millisecond)
		}
	})
}

// TestStateThatCannotBeRestored ends the job with the value's name and its own words.
func TestStateThatCannotBeRestored(t *testing.T) {
	j := startElastic(t, 2, "unrestorable", func(s *asked) { s.Restarts = 1 })
	select {
	case <-j.ended:
	case <-time.After(40 * time.Second):
		t.Fatalf("the job goes on\n%s", j.text())
	}
	if j.outcome.Kind != launch.Failed {
		t.Errorf("outcome %s", j.outcome.String())
	}
	j.tells(`state "reader"`, "the file has shrunk")
}

// TestADiscoveryThatFlaps changes its mind at every question: workers come and go, nobody
// loses work, and the weights are right.
func TestADiscoveryThatFlaps(t *testing.T) {
	gate, open := gateFile(t)
	var answers atomic.Int64
	find := func(context.Context) ([]launch.Host, error) {
		n := answers.Add(1)
		switch {
		case n%4 == 3:
			return nil, errors.New("ask flap for hosts: exit status 1")
		case n%2 == 0:
			return twoNames(2, 1), nil
		}
		return twoNames(1, 1), nil
	}
	j := startElastic(t, 2, "train", func(s *asked) {
		s.OnLoss, s.Restarts, s.Min = elastic.Continue, 0, 1
		s.Find, s.Wait = find, time.Minute
	}, "STEPS=100", "EVERY=1", gate)
	j.until("six answers", time.Minute, func() bool { return answers.Load() >= 6 && j.said("sum in epoch ") > 4 })
	open()
	want := course(100)[100]
	for _, d := range j.wait(time.Minute) {
		if d != want {
			t.Errorf("digest %s, want %s\n%s", d, want, j.text())
		}
	}
	j.tells("going on with the hosts known so far", "has 1 slot from now on")
	if n := strings.Count(j.text(), "going on with the hosts known so far"); n > int(answers.Load())/4+1 {
		t.Errorf("%d complaints after %d answers", n, answers.Load())
	}
}
