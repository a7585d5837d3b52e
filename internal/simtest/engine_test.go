package simtest

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"hora/collective"
	"hora/engine"
	"hora/tensor"
	"hora/transport/mem"
)

// groups runs f on every rank's engine over one cluster on fake time.
func groups(t *testing.T, n int, cfg mem.Config, ec engine.Config, f func(rank int, g *engine.Group) error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster, err := mem.New(n, cfg)
		if err != nil {
			t.Fatal(err)
		}
		all := make([]*engine.Group, n)
		for r := range n {
			if all[r], err = engine.New(cluster.Mesh(r), ec); err != nil {
				t.Fatal(err)
			}
		}
		errs := make([]error, n)
		var wait sync.WaitGroup
		for r, g := range all {
			wait.Go(func() { errs[r] = f(r, g) })
		}
		wait.Wait()
		for _, g := range all {
			_ = g.Close()
		}
		cluster.Close()
		Must(t, errs)
	})
}

// submitAll gives the engine one sum a name, in the order drawn, and waits for all.
func submitAll(g *engine.Group, rank, size, names int, rng *rand.Rand) error {
	x := make([][]int64, names)
	tickets := make([]engine.Ticket, names)
	for _, i := range rng.Perm(names) {
		x[i] = []int64{int64(rank), int64(i)}
		v := tensor.Of(x[i])
		r := engine.Request{
			Name: fmt.Sprintf("layer%d", i),
			Call: collective.Call{Kind: collective.Allreduce, Type: v.Type, Send: v, Recv: v},
		}
		if err := g.Submit([]engine.Request{r}, tickets[i:i+1]); err != nil {
			return err
		}
	}
	for i, ticket := range tickets {
		if done, err := g.Wait(ticket, -1); err != nil || !done {
			return fmt.Errorf("layer%d: done %t: %w", i, done, err)
		}
		if want := [2]int64{int64(size * (size - 1) / 2), int64(size * i)}; [2]int64(x[i]) != want {
			return fmt.Errorf("layer%d is %v, want %v", i, x[i], want)
		}
	}
	return nil
}

// TestNamedOrders has every rank submit the same names in an order of its own, round
// after round, on several layouts.
func TestNamedOrders(t *testing.T) {
	s := seed(t)
	for i, layout := range []string{"own", "one", "block", "ragged"} {
		for _, ranks := range []int{2, 5, 16} {
			cfg := mem.Config{Hosts: Hosts(layout, ranks, 4)}
			groups(t, ranks, cfg, engine.Config{Named: true}, func(rank int, g *engine.Group) error {
				rng := rand.New(rand.NewPCG(s, uint64(1000*i+rank)))
				for range 4 {
					if err := submitAll(g, rank, ranks, 7, rng); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
}

// TestThousandNamedRanks agrees on names among a thousand ranks in random orders and
// holds a rank's messages to a logarithm of them for each round.
func TestThousandNamedRanks(t *testing.T) {
	ranks := 1000
	if testing.Short() {
		ranks = 200
	}
	const names, rounds = 3, 2
	s := seed(t)
	sent := make([]uint64, ranks)
	groups(t, ranks, mem.Config{}, engine.Config{Named: true}, func(rank int, g *engine.Group) error {
		rng := rand.New(rand.NewPCG(s, uint64(rank)))
		for range rounds {
			if err := submitAll(g, rank, ranks, names, rng); err != nil {
				return err
			}
		}
		sent[rank] = g.Counters().Mem.MessagesSent
		return nil
	})
	log := uint64(bits.Len(uint(ranks - 1)))
	var most uint64
	for _, n := range sent {
		most = max(most, n)
	}
	t.Logf("at most %d messages a rank: %.1f × log2 of %d ranks", most, float64(most)/float64(log), ranks)
	// Each name costs at most a few small collectives: agreement, introduction, sum.
	if most > 4*log*names*rounds {
		t.Errorf("a rank sent %d messages for %d names in %d rounds", most, names, rounds)
	}
}
