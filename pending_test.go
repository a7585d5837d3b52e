package hora_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"hora"
)

// TestACallThatGoesOn ends for whoever waits, twice as well; a rank whose context ends first does not hang.
func TestACallThatGoesOn(t *testing.T) {
	ctx := t.Context()
	secret, addr := hora.NewSecret(), freeAddress()
	var wg sync.WaitGroup
	for rank := range 2 {
		wg.Go(func() {
			w, err := hora.Join(ctx, hora.Config{Rank: rank, Size: 2, Addr: addr, Serve: true, Secret: secret})
			if err != nil {
				t.Error(err)
				return
			}
			defer w.Close()
			x, y := []int64{int64(rank + 1)}, []float32{float32(rank + 5)}
			a, err := hora.AllreduceAsync(w.Group(), x, hora.Sum)
			b, berr := hora.BroadcastAsync(w.Group(), y, 1)
			if err := errors.Join(err, berr); err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(b.Wait(ctx), a.Wait(ctx), a.Wait(ctx)); err != nil || x[0] != 3 || y[0] != 6 ||
				!a.Done() {
				t.Errorf("rank %d: %v, %v, %v", rank, err, x, y)
			}
			if rank == 1 {
				return // and rank 0 waits for what never comes
			}
			soon, cancel := context.WithCancel(ctx)
			c, err := hora.AllreduceAsync(w.Group(), x, hora.Sum)
			cancel()
			if err != nil {
				return // that rank 1 has left is known already
			}
			if err := c.Wait(soon); err == nil {
				t.Error("a call that rank 1 has not made ended well")
			}
		})
	}
	wg.Wait()
}
