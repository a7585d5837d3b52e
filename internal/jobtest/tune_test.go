package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"hora"
)

func init() { // one more role
	// tuned opens a group that tunes itself, tells how long that took, and sums at the
	// sizes that tuning decides about.
	roles["tuned"] = func(ctx context.Context, w *hora.World) error {
		if err := hora.Barrier(ctx, w.Group()); err != nil {
			return err
		}
		began := time.Now()
		g, err := w.NewGroup(ctx, []int{0, 1})
		if err != nil {
			return err
		}
		defer g.Close()
		c := g.Counters()
		sent := c.SHM.MessagesSent + c.TCP.MessagesSent
		fmt.Printf("tuned in %.1f ms with %d messages\n", float64(time.Since(began).Microseconds())/1000, sent)
		if sent == 0 { // a group that does not tune itself opens in silence
			return errors.New("nothing was tried")
		}
		for _, n := range []int{1, 1000, 100_003, 1 << 20} {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32((w.Rank() + 1) * (i%1000 + 1))
			}
			if err := hora.Allreduce(ctx, g, x, hora.Sum); err != nil {
				return err
			}
			for i, got := range x {
				if want := float32(3 * (i%1000 + 1)); got != want {
					return fmt.Errorf("element %d of %d is %v, want %v", i, n, got, want)
				}
			}
		}
		return sumRole(ctx, w)
	}
}

// TestTuningInProcesses has groups of two processes tune themselves over shared memory
// and TCP: sums are right. How long it takes is told and not judged, since ranks that
// share a processor wait for each other.
func TestTuningInProcesses(t *testing.T) {
	for links, want := range map[string]string{"": "links shm=true tcp=false", "tcp": "links shm=false tcp=true"} {
		t.Run("links="+links, func(t *testing.T) {
			env := []string{"HORA_TUNE=1"}
			if links != "" {
				env = append(env, "HORA_LINKS="+links)
			}
			all := start(t, 2, "tuned", env...)
			succeed(t, all, 60*time.Second)
			all[0].until(want, time.Second)
			t.Log(all[0].until("tuned in", time.Second))
		})
	}
}
