package hora_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"hora"
)

func init() { // fills the table of roles, which nothing changes later
	roles["sum"] = func(ctx context.Context, w *hora.World) error {
		for round := range 50 {
			x := []float32{float32(w.Rank() + round), 1, 2}
			if err := hora.Allreduce(ctx, w.Group(), x, hora.Sum); err != nil {
				return err
			}
			n := w.Size()
			want := float32(n*(n-1)/2 + n*round)
			if x[0] != want || x[1] != float32(n) {
				return fmt.Errorf("round %d: %v, want %v first", round, x, want)
			}
		}
		c := w.Counters()
		fmt.Printf("links shm=%v tcp=%v\n", c.SHM.MessagesSent > 0, c.TCP.MessagesSent > 0)
		return nil
	}
}

func TestTwoProcessesShareMemory(t *testing.T) {
	all := start(t, 2, "sum")
	succeed(t, all, 20*time.Second)
	all[0].until("links shm=true tcp=false", time.Second)
}

func TestProcessesOverTCP(t *testing.T) {
	all := start(t, 3, "sum", "HORA_LINKS=tcp")
	succeed(t, all, 20*time.Second)
	all[0].until("links shm=false tcp=true", time.Second)
}
