package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestCallersUnderAPlan has callers repeat a few names, so that they take the short way
// through the plan, and now and then do something else: another order, another name,
// several at once, a join, a budget that runs out.
func TestCallersUnderAPlan(t *testing.T) {
	s := seed(t)
	hosts(t, func(t *testing.T, one bool) {
		const size = 3
		c, h := overheard(t, size, one, Config{Named: true})
		c.must(c.each(func(rank int, g *Group) error {
			shared := rand.New(rand.NewPCG(s, 1))
			own := rand.New(rand.NewPCG(s, uint64(10+rank)))
			for round := range 400 {
				if err := callerRound(g, rank, size, round, shared.IntN(150), own); err != nil {
					return fmt.Errorf("round %d: %w", round, err)
				}
			}
			return nil
		}))
		if h.planned.Load() < 30 {
			t.Errorf("%d planned, %d agreed", h.planned.Load(), h.rounds.Load())
		}
	})
}

// callerRound is one round of it; what says which surprise all ranks make, own how.
func callerRound(g *Group, rank, size, round, what int, own *rand.Rand) error {
	names := []string{"a", "b", "c"}
	if round/100%2 == 1 {
		names[1] = fmt.Sprintf("b.noname.%d", round)
	}
	switch what {
	case 0:
		return step(g, rank, size, round, names, own.Perm(3))
	case 1:
		names = append(names, "extra")
	case 2:
		names = names[:2]
	case 3:
		if _, done, err := g.Join(20 * time.Second); err != nil || !done {
			return fmt.Errorf("join: done %v: %w", done, err)
		}
	case 4:
		// One rank alone has something that the others bring later.
		if rank == round%size {
			x := []float32{1}
			var tk [1]Ticket
			if err := g.Submit([]Request{sum(x, "late")}, tk[:]); err != nil {
				return err
			}
			defer g.Wait(tk[0], 20*time.Second)
		} else {
			defer func() {
				x := []float32{1}
				r := sum(x, "late")
				g.Run(&r, -1)
			}()
		}
	}
	for _, name := range names {
		x := []float32{float32(rank), float32(round)}
		r := sum(x, name)
		budget := time.Duration(own.IntN(4)-1) * 20 * time.Microsecond
		tk, done, err := g.Run(&r, budget)
		if err == nil && !done {
			done, err = g.Wait(tk, 20*time.Second)
		}
		if err != nil || !done {
			return fmt.Errorf("%s: done %v: %w", name, done, err)
		}
		if x[0] != float32(size*(size-1)/2) || x[1] != float32(size*round) {
			return fmt.Errorf("%s is %v", name, x)
		}
	}
	return nil
}

// BenchmarkPlan is what the short way costs beside an ordered operation, without links.
func BenchmarkPlan(b *testing.B) {
	for _, named := range []bool{false, true} {
		b.Run(fmt.Sprintf("named=%v", named), func(b *testing.B) {
			c := newCluster(b, 1, true, Config{Named: named})
			x := []float32{1}
			r := sum(x, "gradient.of.layer.17")
			for b.Loop() {
				if _, _, err := c.groups[0].Run(&r, -1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
