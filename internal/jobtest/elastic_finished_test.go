package jobtest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"hora/elastic"
	"hora/launch"
)

// TestAWorkerThatHasFinishedIsNotReplaced: one of three ends with 0 in the middle of the work, without a word. Nobody
// is started in its place, nobody waits for one, although restarts are left, a slot is free and the least number was
// three; the other two end with the weights of an undisturbed run.
func TestAWorkerThatHasFinishedIsNotReplaced(t *testing.T) {
	const steps = 100
	for _, c := range []struct {
		policy string
		change func(*asked)
	}{
		{"replace", func(s *asked) { s.Restarts = 5 }},
		{"continue", func(s *asked) { s.OnLoss, s.Restarts, s.Min = elastic.Continue, 5, 3 }},
		{"discovered", func(s *asked) {
			s.Min = 3
			s.Wait = 30 * time.Second
			s.Find = func(context.Context) ([]launch.Host, error) {
				return []launch.Host{{Name: "here", Slots: 3}}, nil
			}
		}},
	} {
		t.Run(c.policy, func(t *testing.T) {
			gate, open := gateFile(t)
			j := startElastic(t, 3, "train", c.change, "STEPS=100", "EVERY=1", "QUIT=1:20", gate)
			j.until("the other two in the next epoch", 40*time.Second, func() bool { return j.said("sum in epoch 2\n") >= 2 })
			open()
			j.sameWeights(2, steps)
			j.tells("has enough at step 20", "reset size 2")
			for _, no := range []string{"starting it", "a new worker", "go on"} {
				if strings.Contains(strings.Join(j.events, "\n"), no) {
					t.Errorf("%q in\n%s", no, j.text())
				}
			}
		})
	}
}
