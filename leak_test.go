package hora_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"hora"
)

// TestLeavingLeavesNothing counts goroutines, descriptors and mappings before and after
// worlds that ended well and badly.
func TestLeavingLeavesNothing(t *testing.T) {
	life := func(links string) {
		s := hora.NewSecret()
		addr := "127.0.0.1:" + strconv.Itoa(freePort(t))
		runRanks(t, 2, func(rank int) error {
			ctx := context.Background()
			w, err := hora.Join(ctx, hora.Config{Rank: rank, Size: 2, Addr: addr, Serve: true, Secret: s, Links: links})
			if err != nil {
				return err
			}
			g, err := w.NewGroup(ctx, nil, hora.Named())
			if err != nil {
				return err
			}
			for _, g := range []*hora.Group{g, w.Group()} {
				if err := hora.Allreduce(ctx, g, []float32{1}, hora.Sum); err != nil {
					return err
				}
			}
			// Something is pending when the world ends, unless the other rank has left already.
			gone := new(hora.PeerLostError)
			err = g.Submit([]hora.Request{hora.AllreduceRequest("never"+strconv.Itoa(rank), make([]float32, 9), hora.Sum)}, nil)
			if err != nil && !(errors.As(err, &gone) && gone.Left()) {
				return err
			}
			if rank == 0 {
				return w.Leave(ctx)
			}
			return errors.Join(w.Close())
		})
	}
	for _, links := range []string{"auto", "tcp"} {
		t.Run(links, func(t *testing.T) {
			life(links)
			goroutines, files := runtime.NumGoroutine(), descriptors(t)
			for range 5 {
				life(links)
			}
			late := time.After(5 * time.Second)
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for runtime.NumGoroutine() > goroutines || descriptors(t) > files {
				runtime.GC() // shared memory is unmapped with its owner
				select {
				case <-tick.C:
				case <-late:
					stacks := make([]byte, 1<<16)
					t.Fatalf("%d goroutines and %d descriptors more than before:\n%s", runtime.NumGoroutine()-goroutines,
						descriptors(t)-files, stacks[:runtime.Stack(stacks, true)])
				}
			}
		})
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
