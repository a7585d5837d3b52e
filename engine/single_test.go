package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/tensor"
)

// linger keeps a rank for longer than a single round waits without a unit.
func linger() {
	for began := time.Now(); time.Since(began) < 2*bellDelay; {
	}
}

// TestSingles has callers bring one known name at a time in orders that never become a plan:
// some on several goroutines, so that ranks meet with different names, some late, some with
// a budget that runs out, some new, and now and then all join.
func TestSingles(t *testing.T) {
	s := seed(t)
	for callers := 1; callers <= 3; callers++ {
		t.Run(fmt.Sprintf("%d callers", callers), func(t *testing.T) {
			const size = 3
			c := newCluster(t, size, true, Config{Named: true})
			c.must(c.each(func(rank int, g *Group) error {
				for phase := range 4 {
					errs := make([]error, callers)
					var wg sync.WaitGroup
					for k := range callers {
						wg.Go(func() { errs[k] = singles(g, s, rank, size, phase, k) })
					}
					wg.Wait()
					if err := errors.Join(errs...); err != nil {
						return fmt.Errorf("phase %d: %w", phase, err)
					}
					if _, done, err := g.Join(20 * time.Second); err != nil || !done {
						return fmt.Errorf("join: done %v: %w", done, err)
					}
				}
				return nil
			}))
			for r, g := range c.groups {
				if known := recalled(g); callers == 1 && known < 5 {
					t.Errorf("rank %d took the short way for %d names", r, known)
				}
			}
		})
	}
}

// singles is what one caller of a rank does in a phase.
func singles(g *Group, s uint64, rank, size, phase, caller int) error {
	shared := rand.New(rand.NewPCG(s, uint64(10*phase+caller)))
	own := rand.New(rand.NewPCG(s, uint64(1000+100*rank+10*phase+caller)))
	for round := range 120 {
		name := fmt.Sprintf("%d.%d", caller, shared.IntN(8))
		if shared.IntN(20) == 0 {
			name = fmt.Sprintf("%d.new.%d.%d", caller, phase, round)
		}
		x := make([]int64, 1+shared.IntN(40))
		for i := range x {
			x[i] = int64(rank + i + round)
		}
		v := tensor.Of(x)
		r := sum(nil, name)
		r.Type, r.Send, r.Recv = v.Type, v, v
		budget := time.Duration(-1)
		switch own.IntN(30) {
		case 0:
			linger()
		case 1, 2, 3:
			budget = time.Duration(own.IntN(300)) * time.Microsecond
		}
		tk, done, err := g.Run(&r, budget)
		if err == nil && !done {
			done, err = g.Wait(tk, 20*time.Second)
		}
		if err != nil || !done {
			return fmt.Errorf("%s in round %d: done %v: %w", name, round, done, err)
		}
		for i := range x {
			if want := int64(size*(size-1)/2 + size*(i+round)); x[i] != want {
				return fmt.Errorf("%s in round %d: element %d is %d, want %d", name, round, i, x[i], want)
			}
		}
	}
	return nil
}

// recalled is for how many names a rank took the short way.
func recalled(g *Group) (n int) {
	for i := range g.names.table.entries {
		if g.names.table.entries[i].what != 0 {
			n++
		}
	}
	return n
}

// meetAlone has all ranks run names until each may take the short way.
func meetAlone(c *cluster, names ...string) {
	c.t.Helper()
	order := rand.New(rand.NewPCG(1, 1))
	all := make([]string, 0, 8*len(names))
	for range 8 {
		for _, i := range order.Perm(len(names)) {
			all = append(all, names[i])
		}
	}
	c.must(c.each(func(rank int, g *Group) error {
		for _, name := range all {
			x := []float32{1}
			r := sum(x, name)
			if _, _, err := g.Run(&r, -1); err != nil || x[0] != float32(len(c.groups)) {
				return fmt.Errorf("%s: %v: %w", name, x, err)
			}
		}
		return nil
	}))
}

// TestSingleMismatch has ranks differ in a name that all know and bring alone.
func TestSingleMismatch(t *testing.T) {
	c := newCluster(t, 2, true, Config{Named: true})
	meetAlone(c, "a", "b", "c", "d", "e")
	c.must(c.each(func(rank int, g *Group) error {
		for round := range 20 {
			r := sum([]float32{1}, "b")
			if rank == 1 {
				v := tensor.Of([]float64{1})
				r.Type, r.Send, r.Recv = v.Type, v, v
			}
			var wrong *MismatchError
			if _, _, err := g.Run(&r, -1); !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), "Mismatched data types: tensor b is") {
				return fmt.Errorf("round %d: %w", round, err)
			}
			x := []float32{2}
			r = sum(x, []string{"a", "d", "c"}[round*round%3])
			if _, _, err := g.Run(&r, -1); err != nil || x[0] != 4 {
				return fmt.Errorf("round %d: after it %v: %w", round, x, err)
			}
		}
		return nil
	}))
}

// TestSingleWaits has a rank wait alone for the others in a known name: meanwhile the name is
// taken, others' operations go by, and the wait can be ended.
func TestSingleWaits(t *testing.T) {
	c := newCluster(t, 2, true, Config{Named: true})
	meetAlone(c, "a", "b", "c", "d", "e")
	g := c.groups[0]
	x := []float32{1}
	r := sum(x, "c")
	tk, done, err := g.Run(&r, time.Millisecond)
	if done || err != nil {
		t.Fatalf("nobody else came: done %v: %v", done, err)
	}
	again := sum([]float32{1}, "c")
	if _, _, err := g.Run(&again, -1); err == nil || !strings.Contains(err.Error(), "Duplicate tensor name c") {
		t.Fatalf("the same name again: %v", err)
	}
	y := []float32{1}
	c.must(c.each(func(rank int, g *Group) error {
		if rank == 1 {
			r := sum(y, "e") // it has not come to c yet
			tk, done, err := g.Run(&r, time.Millisecond)
			if err != nil {
				return err
			}
			r = sum([]float32{1}, "c")
			if _, _, err := g.Run(&r, -1); err != nil {
				return err
			}
			if !done {
				_, err = g.Wait(tk, 20*time.Second)
			}
			return err
		}
		r := sum([]float32{1}, "e")
		_, _, err := g.Run(&r, -1)
		return err
	}))
	if done, err := g.Wait(tk, 20*time.Second); !done || err != nil || x[0] != 2 || y[0] != 2 {
		t.Fatalf("c: done %v, %v, %v: %v", done, x, y, err)
	}
	end := make(chan error)
	go func() {
		r := sum([]float32{1}, "b")
		_, _, err := g.Run(&r, -1)
		end <- err
	}()
	linger()
	g.Close()
	if err := <-end; !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestSingleTwice has two callers of each rank bring one name at once: one of them is told,
// or they come one after the other.
func TestSingleTwice(t *testing.T) {
	c := newCluster(t, 2, true, Config{Named: true})
	meetAlone(c, "a", "b", "c", "d", "e")
	g := c.groups[0]
	n := g.names
	g.turn.Store(1)
	if !n.occupy("b") {
		t.Fatal("something else is there")
	}
	r := sum([]float32{1}, "b")
	if err := g.Submit([]Request{r}, nil); err == nil || !strings.Contains(err.Error(), "Duplicate tensor name b") {
		t.Errorf("b while b runs: %v", err)
	}
	if a := g.answer(question{name: "b"}); !a.here {
		t.Errorf("asked for b while it runs: %+v", a)
	}
	n.lone, n.open = "", false
	n.yield()
	if _, done, err := g.Join(0); done || err != nil {
		t.Fatalf("join alone: done %v: %v", done, err)
	}
	if _, _, err := g.Run(&r, -1); err == nil || !strings.Contains(err.Error(), "this rank has joined") {
		t.Errorf("b after join: %v", err)
	}
}

// layers are requests of 64 names.
func layers() (rs []Request) {
	for i := range 64 {
		rs = append(rs, sum([]float32{1}, fmt.Sprintf("gradient.of.layer.%d", i)))
	}
	return rs
}

// TestSinglesAllocateNothing draws known names in an order that is no plan, for longer than
// the plan's history.
func TestSinglesAllocateNothing(t *testing.T) {
	c := newCluster(t, 1, true, Config{Named: true})
	rs := layers()
	draw := rand.New(rand.NewPCG(3, 3))
	const turns = 1000
	run := func() {
		for range turns {
			if _, _, err := c.groups[0].Run(&rs[draw.IntN(len(rs))], -1); err != nil {
				t.Fatal(err)
			}
		}
	}
	run()
	if got := testing.AllocsPerRun(10, run); got > 2 {
		t.Errorf("%v allocations in %d operations", got, turns)
	}
	if known := recalled(c.groups[0]); known != len(rs) {
		t.Errorf("%d of %d names took the short way", known, len(rs))
	}
}

// BenchmarkSingle is what an operation of a known name costs beside an ordered one, without
// links.
func BenchmarkSingle(b *testing.B) {
	c := newCluster(b, 1, true, Config{Named: true})
	rs := layers()
	draw := rand.New(rand.NewPCG(7, 7))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := c.groups[0].Run(&rs[draw.IntN(64)], -1); err != nil {
			b.Fatal(err)
		}
	}
}
