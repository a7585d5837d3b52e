package engine

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hora/collective"
	"hora/event"
	"hora/tensor"
	"hora/transport"
)

var seedFlag = flag.Uint64("seed", 0, "replay random histories with this seed; 0 picks one")

// seed is the seed of this run; a failure prints how to repeat it.
func seed(t *testing.T) uint64 {
	s := *seedFlag
	if s == 0 {
		s = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("replay with: go test ./engine -run %s -seed %d", t.Name(), s)
		}
	})
	return s
}

// heard counts what a rank's listener hears.
type heard struct {
	planned, rounds, fused atomic.Int64
	stalls                 chan *event.Stall
}

// overheard makes a cluster whose rank 0 tells what it does.
func overheard(t testing.TB, n int, oneHost bool, cfg Config) (*cluster, *heard) {
	t.Helper()
	var h heard
	var sink event.Sink
	sink.Add(&h)
	c := newCluster(t, n, oneHost, cfg)
	c.groups[0].cfg.Events = &sink
	return c, &h
}

func (h *heard) Operation(o *event.Operation) {
	if o.Fused > 1 {
		h.fused.Add(1)
	}
}

func (h *heard) Event(e event.Event) {
	switch e := e.(type) {
	case *event.Agreed:
		if e.Planned {
			h.planned.Add(1)
		} else {
			h.rounds.Add(1)
		}
	case *event.Stall:
		select {
		case h.stalls <- e:
		default:
		}
	}
}

// step submits the tensors in the rank's order, waits for all, and checks the sums.
func step(g *Group, rank, size, round int, names []string, order []int) error {
	data := make([][]float32, len(names))
	tickets := make([]Ticket, len(names))
	for _, i := range order {
		data[i] = []float32{float32(rank + i), float32(round), float32(i)}
		if err := g.Submit([]Request{sum(data[i], names[i])}, tickets[i:i+1]); err != nil {
			return err
		}
	}
	for i := range names {
		done, err := g.Wait(tickets[i], 30*time.Second)
		if err != nil {
			return err
		}
		if !done {
			return fmt.Errorf("round %d: %s is not done", round, names[i])
		}
		want := [3]float32{float32(size*(size-1)/2 + size*i), float32(size * round), float32(size * i)}
		if [3]float32(data[i]) != want {
			return fmt.Errorf("round %d: %s is %v, want %v", round, names[i], data[i], want)
		}
	}
	return nil
}

func TestNamesInRandomOrders(t *testing.T) {
	s := seed(t)
	hosts(t, func(t *testing.T, one bool) {
		const size, tensors, rounds = 3, 12, 60
		c := newCluster(t, size, one, Config{Named: true, Names: 20})
		names := make([]string, tensors)
		for i := range names {
			names[i] = fmt.Sprintf("grad.%d", i)
		}
		c.must(c.each(func(rank int, g *Group) error {
			rng := rand.New(rand.NewPCG(s, uint64(rank)))
			for round := range rounds {
				if err := step(g, rank, size, round, names, rng.Perm(tensors)); err != nil {
					return err
				}
			}
			return nil
		}))
	})
}

func TestNamesInOneOrderBecomeAPlan(t *testing.T) {
	hosts(t, func(t *testing.T, one bool) {
		c, h := overheard(t, 2, one, Config{Named: true})
		c.must(c.each(func(rank int, g *Group) error {
			for round := range 50 {
				for i := range 4 {
					x := []float32{1}
					r := sum(x, fmt.Sprintf("t%d", i))
					if _, _, err := g.Run(&r, -1); err != nil {
						return err
					}
					if x[0] != 2 {
						return fmt.Errorf("round %d: %v", round, x)
					}
				}
			}
			return nil
		}))
		if h.planned.Load() < 100 {
			t.Errorf("%d of 200 operations were planned, %d were agreed on", h.planned.Load(), h.rounds.Load())
		}
	})
}

// TestPlansBreak runs histories in which ranks skip, swap and add names after a plan
// has formed.
func TestPlansBreak(t *testing.T) {
	s := seed(t)
	hosts(t, func(t *testing.T, one bool) {
		const size, rounds = 3, 120
		c, h := overheard(t, size, one, Config{Named: true})
		c.must(c.each(func(rank int, g *Group) error {
			shared := rand.New(rand.NewPCG(s, 1)) // the same on all ranks
			own := rand.New(rand.NewPCG(s, uint64(10+rank)))
			for round := range rounds {
				count := 5
				if shared.IntN(12) == 0 {
					count = 3 + shared.IntN(5) // everybody skips or adds
				}
				names := make([]string, count)
				for i := range names {
					names[i] = fmt.Sprintf("w%d", i)
				}
				order := make([]int, count)
				for i := range order {
					order[i] = i
				}
				if shared.IntN(15) == 0 {
					own.Shuffle(count, func(i, j int) { order[i], order[j] = order[j], order[i] })
				}
				if err := step(g, rank, size, round, names, order); err != nil {
					return err
				}
			}
			return nil
		}))
		t.Logf("%d planned, %d agreed", h.planned.Load(), h.rounds.Load())
	})
}

func TestFusion(t *testing.T) {
	hosts(t, func(t *testing.T, one bool) {
		c, h := overheard(t, 2, one, Config{Named: true})
		c.must(c.each(func(rank int, g *Group) error {
			whole := make([]float32, 12)
			for round := range 20 {
				for i := range whole {
					whole[i] = float32(i)
				}
				far := []float32{1, 2}
				ints := []int32{7}
				iv := tensor.Of(ints)
				rs := []Request{
					sum(whole[:4], "a"), sum(whole[4:8], "b"),
					{Call: collective.Call{
						Kind: collective.Allreduce, Op: tensor.Sum, Type: tensor.Int32, Send: iv,
						Recv: iv,
					}, Name: "i"},
					sum(whole[8:], "c"), sum(far, "far"),
				}
				var tk [1]Ticket
				if err := g.Submit(rs, tk[:]); err != nil {
					return err
				}
				if done, err := g.Wait(tk[0], -1); !done || err != nil {
					return fmt.Errorf("wait: %v %w", done, err)
				}
				for i, v := range whole {
					if v != float32(2*i) {
						return fmt.Errorf("round %d: %v", round, whole)
					}
				}
				if far[1] != 4 || ints[0] != 14 {
					return fmt.Errorf("round %d: %v %v", round, far, ints)
				}
			}
			return nil
		}))
		if h.fused.Load() != 80 {
			t.Errorf("%d tensors travelled packed, want 80", h.fused.Load())
		}
	})
}

func TestGroupedIsAllOrNothing(t *testing.T) {
	c := newCluster(t, 2, true, Config{Named: true})
	x, y := []float32{1}, []float32{1}
	var first, both [1]Ticket
	// Rank 0 asks for x and y together, rank 1 for y only: nothing may run.
	if err := c.groups[0].Submit([]Request{sum(x, "x"), sum(y, "y")}, both[:]); err != nil {
		t.Fatal(err)
	}
	x1 := []float32{1}
	if err := c.groups[1].Submit([]Request{sum(x1, "y")}, first[:]); err != nil {
		t.Fatal(err)
	}
	if done, err := c.groups[1].Wait(first[0], 50*time.Millisecond); done {
		t.Fatalf("y ran without x: %v", err)
	}
	if !c.groups[1].Cancel(first[0]) {
		t.Fatal("y could not be cancelled")
	}
	if done, err := c.groups[1].Wait(first[0], 0); !done || !errors.Is(err, ErrCancelled) {
		t.Fatalf("cancelled: done %v, %v", done, err)
	}
	y1 := []float32{1}
	if err := c.groups[1].Submit([]Request{sum(x1, "x"), sum(y1, "y")}, first[:]); err != nil {
		t.Fatal(err)
	}
	for i, tk := range []Ticket{both[0], first[0]} {
		if done, err := c.groups[i].Wait(tk, 5*time.Second); !done || err != nil {
			t.Fatalf("rank %d: done %v: %v", i, done, err)
		}
	}
	if x[0] != 2 || y1[0] != 2 {
		t.Errorf("%v %v", x, y1)
	}
}

// TestCancelInARound has a rank take back what it waits for: not while a round that has told
// others of it is under way, since they may run it.
func TestCancelInARound(t *testing.T) {
	c := newCluster(t, 2, true, Config{Named: true})
	meetAlone(c, "a", "b", "c", "d", "e")
	var refused [2]int
	for turn := range 50 {
		x, y := []float32{1}, []float32{1}
		var tk [1]Ticket
		rs := []Request{sum(x, "b")}
		var err error
		if turn%2 == 0 {
			err = c.groups[0].Submit(rs, tk[:])
			linger()
		} else {
			tk[0], _, err = c.groups[0].Run(&rs[0], bellDelay)
		}
		if err != nil {
			t.Fatal(err)
		}
		taken := c.groups[0].Cancel(tk[0])
		done := make(chan error)
		go func() {
			r := sum(y, "b")
			_, _, err := c.groups[1].Run(&r, -1)
			done <- err
		}()
		if taken {
			r := sum(x, "b")
			if _, _, err := c.groups[0].Run(&r, -1); err != nil {
				t.Fatalf("turn %d: again: %v", turn, err)
			}
		} else {
			refused[turn%2]++
		}
		if err := <-done; err != nil {
			t.Fatalf("turn %d: taken back %v: %v", turn, taken, err)
		}
		if done, err := c.groups[0].Wait(tk[0], 20*time.Second); !done || taken != errors.Is(err, ErrCancelled) ||
			x[0] != 2 || y[0] != 2 {
			t.Fatalf("turn %d: taken back %v: done %v, %v, %v: %v", turn, taken, done, x, y, err)
		}
	}
	if refused[1] == 0 { // a worker may be slow to begin one
		t.Errorf("of 25 turns each, a round was under way in %v", refused)
	}
}

func TestDuplicateName(t *testing.T) {
	c := newCluster(t, 2, true, Config{Named: true})
	x := []float32{1}
	if err := c.groups[0].Submit([]Request{sum(x, "x")}, nil); err != nil {
		t.Fatal(err)
	}
	err := c.groups[0].Submit([]Request{sum(x, "x")}, nil)
	var wrong *InvalidError
	if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "Duplicate tensor name x") {
		t.Errorf("second x: %v", err)
	}
}

func TestJoin(t *testing.T) {
	hosts(t, func(t *testing.T, one bool) {
		const size = 3
		c := newCluster(t, size, one, Config{Named: true})
		c.must(c.each(func(rank int, g *Group) error {
			// Rank r has 4·(r+1) batches; later ones miss the ranks that ended.
			for batch := range 4 * (rank + 1) {
				x := []float32{float32(rank + 1), 1}
				r := sum(x, fmt.Sprintf("grad.%d", batch%2))
				if _, _, err := g.Run(&r, -1); err != nil {
					return fmt.Errorf("batch %d: %w", batch, err)
				}
				want := float32(0)
				for other := range size {
					if batch < 4*(other+1) {
						want += float32(other + 1)
					}
				}
				if x[0] != want {
					return fmt.Errorf("batch %d: %v, want %v", batch, x[0], want)
				}
				y := []float32{6}
				avg := sum(y, "mean")
				avg.Op = tensor.Average
				if _, _, err := g.Run(&avg, -1); err != nil {
					return err
				}
				alive := 0
				for other := range size {
					if batch < 4*(other+1) {
						alive++
					}
				}
				if y[0] != float32(6*alive)/size {
					return fmt.Errorf("batch %d: average %v with %d of %d ranks", batch, y[0], alive, size)
				}
			}
			last, done, err := g.Join(-1)
			if err != nil || !done || last != size-1 {
				return fmt.Errorf("join: last %d, done %v: %v", last, done, err)
			}
			x := []float32{1}
			r := sum(x, "again")
			if _, _, err := g.Run(&r, -1); err != nil || x[0] != size {
				return fmt.Errorf("after join: %v %v", x, err)
			}
			return nil
		}))
	})
}

func TestJoinRefusesWhatZerosSpoil(t *testing.T) {
	c := newCluster(t, 2, true, Config{Named: true})
	errs := c.each(func(rank int, g *Group) error {
		if rank == 1 {
			_, _, err := g.Join(-1)
			return err
		}
		x := tensor.Of(make([]float32, 4))
		r := Request{Call: collective.Call{Kind: collective.Broadcast, Type: x.Type, Send: x, Recv: x}, Name: "b"}
		_, _, err := g.Run(&r, -1)
		if err == nil || !strings.HasPrefix(err.Error(), "Broadcast is not supported with Join at this time.") {
			return fmt.Errorf("broadcast: %v", err)
		}
		_, _, err = g.Join(-1)
		return err
	})
	c.must(errs)
}

func TestSizedResults(t *testing.T) {
	for _, named := range []bool{false, true} {
		hosts(t, func(t *testing.T, one bool) {
			c := newCluster(t, 3, one, Config{Named: named})
			c.must(c.each(func(rank int, g *Group) error {
				for round := range 5 {
					mine := make([]int64, rank+round)
					for i := range mine {
						mine[i] = int64(100*rank + i)
					}
					var all []int64
					v := tensor.Of(mine)
					r := Request{
						Call: collective.Call{Kind: collective.Allgather, Type: v.Type, Send: v}, Name: "all",
						Alloc: func(n int) unsafePointer {
							all = make([]int64, n/8)
							return pointer(all)
						},
					}
					var tk [1]Ticket
					if err := g.Submit([]Request{r}, tk[:]); err != nil {
						return err
					}
					if err := g.Await(tk[0]); err != nil {
						return err
					}
					_, count, counts := g.Result(tk[0], nil)
					g.Release(tk[0])
					if count != 3+3*round || fmt.Sprint(counts) != fmt.Sprint([]int{round, round + 1, round + 2}) {
						return fmt.Errorf("%d elements, counts %v", count, counts)
					}
					if count > 0 && all[count-1] != int64(200+round+1) {
						return fmt.Errorf("got %v", all)
					}
				}
				return nil
			}))
		})
	}
}

func TestNamedOperationExpires(t *testing.T) {
	c := newCluster(t, 2, true, Config{Named: true, OpTimeout: 50 * time.Millisecond})
	x := []float32{1}
	r := sum(x, "alone")
	_, _, err := c.groups[0].Run(&r, -1)
	var late *transport.DeadlineError
	if !errors.As(err, &late) || late.Rank != 1 || !strings.Contains(err.Error(), "alone") {
		t.Errorf("nobody came: %v", err)
	}
}

// TestMismatchInAPack has one rank's type change how its operations pack: only that
// operation fails.
func TestMismatchInAPack(t *testing.T) {
	hosts(t, func(t *testing.T, one bool) {
		c := newCluster(t, 3, one, Config{Named: true})
		c.must(c.each(func(rank int, g *Group) error {
			for round := range 3 {
				x, y, z := make([]float32, 2), []int32{1}, []float32{1, 2}
				iv := tensor.Of(y)
				rs := []Request{sum(x, "x"), {Call: collective.Call{
					Kind: collective.Allreduce, Op: tensor.Sum,
					Type: tensor.Int32, Send: iv, Recv: iv,
				}, Name: "y"}, sum(z, "z")}
				if rank == 1 {
					v := tensor.Of(make([]float64, 2))
					rs[0].Type, rs[0].Send, rs[0].Recv = v.Type, v, v
				}
				var tk [3]Ticket
				if err := g.Submit(rs, tk[:]); err != nil {
					return err
				}
				var wrong *MismatchError
				if done, err := g.Wait(tk[0], 10*time.Second); !done || !errors.As(err, &wrong) ||
					!strings.HasPrefix(err.Error(), "Mismatched data types: tensor x") {
					return fmt.Errorf("round %d: x: done %v: %w", round, done, err)
				}
				for _, one := range tk[1:] {
					if done, err := g.Wait(one, 10*time.Second); !done || err != nil {
						return fmt.Errorf("round %d: done %v: %w", round, done, err)
					}
				}
				if y[0] != 3 || z[1] != 6 {
					return fmt.Errorf("round %d: y %v, z %v", round, y, z)
				}
			}
			return nil
		}))
	})
}
