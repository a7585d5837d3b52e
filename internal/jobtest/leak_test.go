package jobtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora"
	"hora/internal/jobtest"
)

// TestLeavingLeavesNothing counts goroutines, descriptors and mappings before and after
// worlds that ended well and badly.
func TestLeavingLeavesNothing(t *testing.T) {
	life := func(links string) {
		s := hora.NewSecret()
		addr := "127.0.0.1:" + strconv.Itoa(jobtest.FreePort(t))
		jobtest.Ranks(t, 2, func(rank int) error {
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
			err = g.Submit(
				[]hora.Request{hora.AllreduceRequest("never"+strconv.Itoa(rank), make([]float32, 9), hora.Sum)}, nil,
			)
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

func init() { elasticRoles["survivor"] = survivorRole }

// holdings are what a process has that a world takes and must give back.
type holdings struct{ goroutines, descriptors, mappings int }

func countHoldings() (h holdings, err error) {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return h, err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	return holdings{runtime.NumGoroutine(), len(list), bytes.Count(maps, []byte("memfd:"))}, err
}

// survivorRole joins, adds until somebody is lost, closes, and says what it still has of
// what it had not before.
func survivorRole(ctx context.Context, cfg hora.Config) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // Go's poller has descriptors that stay
	if err != nil {
		return err
	}
	ln.Close()
	before, err := countHoldings()
	if err != nil {
		return err
	}
	if err := surviveALoss(ctx, cfg); err != nil {
		return err
	}
	late := time.After(5 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		runtime.GC() // shared memory is unmapped with its owner
		now, err := countHoldings()
		if err != nil {
			return err
		}
		more := holdings{
			max(now.goroutines-before.goroutines, 0), max(now.descriptors-before.descriptors, 0),
			max(now.mappings-before.mappings, 0),
		}
		if more == (holdings{}) {
			fmt.Println("kept nothing")
			return nil
		}
		select {
		case <-tick.C:
		case <-late:
			stacks := make([]byte, 1<<16)
			return fmt.Errorf("kept %+v\n%s", more, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

func surviveALoss(ctx context.Context, cfg hora.Config) error {
	w, err := hora.Join(ctx, cfg)
	if err != nil {
		return err
	}
	named, err := w.NewGroup(ctx, nil, hora.Named())
	if err != nil {
		return errors.Join(err, w.Close())
	}
	shared, err := w.Group().Buffer(ctx, 1<<16)
	if err != nil {
		return errors.Join(err, w.Close())
	}
	for i := 0; ; i++ {
		err := hora.Allreduce(ctx, w.Group(), shared, hora.Max)
		if err == nil {
			err = hora.Allreduce(ctx, named, []float32{1}, hora.Sum)
		}
		var lost *hora.PeerLostError
		switch {
		case errors.As(err, &lost):
			return w.Close()
		case err != nil:
			return errors.Join(err, w.Close())
		case i == 10:
			has, err := countHoldings()
			if err != nil {
				return err
			}
			fmt.Printf("running with %d mappings\n", has.mappings)
		}
	}
}

// TestASurvivorKeepsNothing kills a rank and has the others count goroutines, descriptors
// and mappings of shared memory after Close.
func TestASurvivorKeepsNothing(t *testing.T) {
	links(t, func(t *testing.T, env string) {
		all := start(t, 3, "survivor", env)
		for _, p := range all {
			text := p.until(" mappings\n", 20*time.Second)
			if none := strings.Contains(text, "with 0 mappings"); none != strings.HasSuffix(env, "tcp") {
				t.Errorf("rank %d says %q with %s: the count is broken", p.rank, text, env)
			}
		}
		all[1].signal(syscall.SIGKILL)
		for _, r := range []int{0, 2} {
			all[r].until("kept nothing", 15*time.Second)
			if code := all[r].wait(5 * time.Second); code != 0 {
				t.Errorf("rank %d ended with code %d:\n%s", r, code, all[r].out.String())
			}
		}
	})
}
