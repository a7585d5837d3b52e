package jobtest_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/elastic"
	"hora/event"
	"hora/launch"
)

func middle(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// TestALossCostsLittle measures from kill -9 of one of four ranks to the others' error,
// and to the first sum of the next epoch, its replacement's start included.
func TestALossCostsLittle(t *testing.T) {
	const np = 4
	draw := rand.New(rand.NewPCG(7, 7))
	kills := 9
	switch {
	case os.Getenv("HORA_SOAK") == "1":
		kills = 50
	case testing.Short():
		kills = 3
	}
	j := startElastic(t, np, "train", nil, "STEPS=100000", "EVERY=1")
	var known, again []float64
	for i := range kills {
		epoch := i + 1
		j.until("all ranks at work", 30*time.Second, func() bool {
			return len(j.pids) == np && j.said("sum in epoch "+strconv.Itoa(epoch)+"\n") == np
		})
		pause(20 * time.Millisecond)
		at := j.kill(draw.IntN(np), draw)
		j.until("the next epoch", 30*time.Second, func() bool { return j.said("sum in epoch "+strconv.Itoa(epoch+1)+"\n") == np })
		heard := append(j.moments("error ", at), j.moments("news ", at)...)
		if len(heard) < np-1 {
			t.Fatalf("%d ranks heard of the loss\n%s", len(heard), j.text())
		}
		known = append(known, slices.Max(heard))
		again = append(again, slices.Max(j.moments("sum in epoch "+strconv.Itoa(epoch+1), at)))
	}
	t.Logf("kill -9 to the others' error: median %.1f ms, worst %.1f; to the first sum of the next epoch: median %.1f ms, worst %.1f",
		middle(known), slices.Max(known), middle(again), slices.Max(again))
	if middle(known) > 3*100 || slices.Max(known) > 3*1000 {
		t.Errorf("the others learned it late: %.0f ms", known)
	}
	if middle(again) > 3*300 {
		t.Errorf("the next sum came late: %.0f ms", again)
	}
}

// TestSurvivorsGoOn loses two of four workers for good under the continue policy.
func TestSurvivorsGoOn(t *testing.T) {
	draw := rand.New(rand.NewPCG(8, 8))
	j := startElastic(t, 4, "train", func(s *asked) { s.OnLoss, s.Restarts, s.Min = elastic.Continue, 0, 2 }, "STEPS=600", "EVERY=1")
	j.until("epoch 1", 30*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 4 && len(j.pids) == 4 })
	at := j.kill(0, draw)
	j.until("three go on", 30*time.Second, func() bool { return j.said("sum in epoch 2\n") >= 3 })
	took := slices.Max(j.moments("sum in epoch 2", at))
	j.kill(2, draw)
	j.until("two go on", 30*time.Second, func() bool { return j.said("reset size 2\n") == 2 })
	got := j.wait(time.Minute)
	if len(got) != 2 || got[0] != got[1] {
		t.Errorf("the two survivors ended with %v\n%s", got, j.text())
	}
	t.Logf("kill -9 to the first sum of fewer ranks: %.1f ms", took)
	if took > 3*300 {
		t.Errorf("survivors waited %.0f ms", took)
	}
	if text := j.text(); !strings.Contains(text, "killed by signal 9 (SIGKILL): the other 3 go on") {
		t.Errorf("the events do not tell the story:\n%s", text)
	}
}

// TestTooFewSurvivorsEndTheJob: one less than the smallest world is the end.
func TestTooFewSurvivorsEndTheJob(t *testing.T) {
	draw := rand.New(rand.NewPCG(9, 9))
	j := startElastic(t, 2, "train", func(s *asked) { s.OnLoss, s.Restarts, s.Min = elastic.Continue, 0, 2 }, "STEPS=100000", "EVERY=1")
	j.until("epoch 1", 30*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 2 && len(j.pids) == 2 })
	j.kill(1, draw)
	select {
	case <-j.ended:
	case <-time.After(30 * time.Second):
		t.Fatalf("the job goes on\n%s", j.text())
	}
	if j.outcome.Kind != launch.Killed || j.outcome.Rank != 1 {
		t.Errorf("outcome %v", j.outcome.String())
	}
}

// TestDrainedWorkersLoseNothing sends SIGTERM to one worker: it commits and leaves, and
// its replacement does not cost a restart.
func TestDrainedWorkersLoseNothing(t *testing.T) {
	env := []string{"STEPS=200", "EVERY=1"}
	want := undisturbed(t, 2, env...)
	j := startElastic(t, 2, "train", nil, env...)
	j.until("epoch 1", 30*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 2 && len(j.pids) == 2 })
	j.mu.Lock()
	syscall.Kill(j.pids[1], syscall.SIGTERM)
	j.mu.Unlock()
	got := j.wait(time.Minute)
	if len(got) != 2 || got[0] != want || got[1] != want {
		t.Errorf("digests %v, want %s\n%s", got, want, j.text())
	}
	text := j.text()
	if !strings.Contains(text, "left before the work was done: SIGTERM: starting it again, 1000 restarts left") || !strings.Contains(text, "drained at step") {
		t.Errorf("the events do not tell the story:\n%s", text)
	}
}

// TestAFaultOfTheUsersEndsTheJob: with no restart left its own words are the last line.
func TestAFaultOfTheUsersEndsTheJob(t *testing.T) {
	j := startElastic(t, 2, "userfail", func(s *asked) { s.Restarts = 1 })
	select {
	case <-j.ended:
	case <-time.After(30 * time.Second):
		t.Fatalf("the job goes on\n%s", j.text())
	}
	text := j.text()
	if j.outcome.Kind != launch.Failed || strings.Count(text, "the data ends here") < 2 || strings.Count(text, "starting it again") != 1 {
		t.Errorf("outcome %v\n%s", j.outcome.String(), text)
	}
}

// TestTheReportTellsTheStory: who was lost in which epoch, and what that cost.
func TestTheReportTellsTheStory(t *testing.T) {
	draw := rand.New(rand.NewPCG(10, 10))
	file := filepath.Join(t.TempDir(), "report.json")
	j := startElastic(t, 2, "train", func(s *asked) { s.Report = file; s.Restarts = 3 }, "STEPS=120", "EVERY=5")
	j.until("epoch 1", 30*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 2 && len(j.pids) == 2 })
	pause(30 * time.Millisecond)
	j.kill(1, draw)
	j.wait(time.Minute)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r event.Report
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Epochs) != 2 || r.Restarts != 1 || r.Left == nil || *r.Left != 2 || r.ExitCode != 0 || r.OnLoss != "replace" {
		t.Fatalf("the report is\n%s", b)
	}
	gone, cost := r.Epochs[0].Gone, r.Epochs[1].Recovery
	if gone == nil || gone.Rank != 1 || gone.Reason != "killed by signal 9 (SIGKILL)" || cost == nil ||
		cost.Seconds <= 0 || cost.Steps < 0 || cost.Steps > 5 {
		t.Errorf("the report is\n%s", b)
	}
	if text := j.text(); !strings.Contains(text, "2 epochs in") || !strings.Contains(text, "ended after") || !strings.Contains(text, " done again") {
		t.Errorf("the last lines do not tell the story:\n%s", text)
	}
}
