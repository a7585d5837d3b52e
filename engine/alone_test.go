package engine

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"hora/event"
)

// packing hears how many tensors of each operation travelled together, in order.
type packing struct {
	mu    sync.Mutex // guards fused
	fused []int
}

func (p *packing) Operation(o *event.Operation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fused = append(p.fused, o.Fused)
}

func (p *packing) Event(event.Event) {}

// since gives what was heard and forgets it.
func (p *packing) since() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.fused
	p.fused = nil
	return out
}

// lay is a rank's memory for n tensors of count floats: one after another in one
// registered buffer with a gap between, or private.
func lay(c *cluster, rank, n, count, gap int, registered bool) [][]float32 {
	out := make([][]float32, n)
	var all []byte
	if registered {
		all = c.mem.Buffer(rank, 4*n*(count+gap))
	} else {
		all = make([]byte, 4*n*(count+gap))
	}
	x := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(all))), len(all)/4)
	for i := range out {
		out[i] = x[i*(count+gap):][:count]
	}
	return out
}

// train sums a rank's tensors in one submission and looks at every element.
func train(g *Group, rank, size, round int, tensors [][]float32) error {
	var rs []Request
	for i, x := range tensors {
		for k := range x {
			x[k] = float32(rank + i + k%5 + round)
		}
		rs = append(rs, sum(x, fmt.Sprint("t.", i)))
	}
	var one [1]Ticket
	if err := g.Submit(rs, one[:]); err != nil {
		return err
	}
	if done, err := g.Wait(one[0], 30*time.Second); err != nil || !done {
		return fmt.Errorf("round %d: done %v: %w", round, done, err)
	}
	for i, x := range tensors {
		for k, v := range x {
			if want := float32(size*(i+k%5+round) + size*(size-1)/2); v != want {
				return fmt.Errorf("round %d: element %d of tensor %d is %v, want %v", round, k, i, v, want)
			}
		}
	}
	return nil
}

// TestRegisteredGoAlone: tensors that are registered on all ranks are reduced where they
// lie, without a copy, whether they are neighbours, which travel together, or not; where
// a rank brings private memory all pack, and no rank ever decides otherwise than another.
func TestRegisteredGoAlone(t *testing.T) {
	const size, tensors = 3, 6
	for _, test := range []struct {
		name    string
		count   int // floats of a tensor
		gap     int
		private func(rank, round int) bool
		want    []int // tensors that travel together, by round
	}{
		{"scattered", 4096, 24, func(int, int) bool { return false }, []int{6, 1, 1, 1, 1, 1, 1, 1}},
		{"neighbours", 4096, 0, func(int, int) bool { return false }, []int{6, 6, 6, 6, 6, 6, 6, 6}},
		{"private", 4096, 24, func(int, int) bool { return true }, []int{6, 1, 6, 6, 6, 6, 6, 6}},
		{"private on one rank", 4096, 24, func(rank, _ int) bool { return rank == 1 }, []int{6, 1, 6, 6, 6, 6, 6, 6}},
		{"later private on one rank", 4096, 24, func(rank, round int) bool { return rank == 2 && round >= 5 }, []int{6, 1, 1, 1, 1, 1, 6, 6}},
		{"small", 512, 24, func(int, int) bool { return false }, []int{6, 6, 6, 6, 6, 6, 6, 6}},
		{"large", 65536, 24, func(int, int) bool { return false }, []int{1, 1, 1, 1, 1, 1, 1, 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, size, true, Config{Named: true})
			var heard [size]packing
			var memory [size][2][][]float32
			for r, g := range c.groups {
				g.cfg.Events = new(event.Sink)
				g.cfg.Events.Add(&heard[r])
				memory[r] = [2][][]float32{
					lay(c, r, tensors, test.count, test.gap, true),
					lay(c, r, tensors, test.count, test.gap, false),
				}
			}
			for round, want := range test.want {
				c.must(c.each(func(rank int, g *Group) error {
					which := 0
					if test.private(rank, round) {
						which = 1
					}
					return train(g, rank, size, round, memory[rank][which])
				}))
				for r := range size {
					if got := heard[r].since(); len(got) != tensors || slices.Max(got) != want ||
						slices.Min(got) != want {
						t.Errorf("round %d: of rank %d's tensors %v travelled together, want %d", round, r, got, want)
					}
				}
			}
		})
	}
}

// inTurn shows f the table's entries, which who has the turn owns: the worker may still be at the last step.
func inTurn(g *Group, f func(*entry)) {
	for !g.turn.CompareAndSwap(0, 1) {
		runtime.Gosched()
	}
	for i := range g.names.table.entries {
		f(&g.names.table.entries[i])
	}
	g.names.yield()
}

// TestPacksThatDiffer: ranks that for whatever reason remember their tensors differently
// get right sums, and soon agree again.
func TestPacksThatDiffer(t *testing.T) {
	const size, tensors = 3, 6
	for _, wrong := range []packState{untried, trying, inPlace, copied} {
		c := newCluster(t, size, true, Config{Named: true})
		var heard packing
		c.groups[0].cfg.Events = new(event.Sink)
		c.groups[0].cfg.Events.Add(&heard)
		for round := range 12 {
			c.must(c.each(func(rank int, g *Group) error {
				if round == 5 && rank == 1 {
					inTurn(g, func(e *entry) { e.packing = wrong })
				}
				return train(g, rank, size, round, lay(c, rank, tensors, 4096, 24, true))
			}))
			if got := heard.since(); round >= 8 && slices.Max(got) != 1 {
				t.Errorf("rank 1 was told %d: in round %d %v tensors travelled together", wrong, round, got)
			}
		}
		for rank, g := range c.groups {
			inTurn(g, func(e *entry) {
				if e.packing != inPlace {
					t.Errorf("rank 1 was told %d: in the end rank %d holds %d, want %d", wrong, rank, e.packing, inPlace)
				}
			})
		}
	}
}

// TestMixedMemory draws, for every rank, round and tensor, whether it is registered, and
// in which order they come.
func TestMixedMemory(t *testing.T) {
	s := seed(t)
	const size, tensors, rounds = 3, 10, 80
	c := newCluster(t, size, true, Config{Named: true})
	var heard [size]packing
	for r, g := range c.groups {
		g.cfg.Events = new(event.Sink)
		g.cfg.Events.Add(&heard[r])
	}
	counts := make([]int, tensors)
	shared := rand.New(rand.NewPCG(s, 99))
	for i := range counts {
		counts[i] = 1000 + shared.IntN(9000)
	}
	c.must(c.each(func(rank int, g *Group) error {
		own := rand.New(rand.NewPCG(s, uint64(rank)))
		var memory [2][][]float32
		for i, count := range counts {
			memory[0] = append(memory[0], lay(c, rank, 1, count, 8*(i%3), true)...)
			memory[1] = append(memory[1], lay(c, rank, 1, count, 0, false)...)
		}
		for round := range rounds {
			tickets, now := make([]Ticket, tensors), make([][]float32, tensors)
			for _, i := range own.Perm(tensors) {
				x := memory[min(1, own.IntN(1+round%4))][i]
				for k := range x {
					x[k] = float32(rank + i + k%7 + round)
				}
				now[i] = x
				if err := g.Submit([]Request{sum(x, fmt.Sprint("m.", i))}, tickets[i:i+1]); err != nil {
					return err
				}
			}
			for i, x := range now {
				if done, err := g.Wait(tickets[i], 30*time.Second); err != nil || !done {
					return fmt.Errorf("round %d: done %v: %w", round, done, err)
				}
				for k, v := range x {
					if want := float32(size*(i+k%7+round) + size*(size-1)/2); v != want {
						return fmt.Errorf("round %d: element %d of tensor %d is %v, want %v", round, k, i, v, want)
					}
				}
			}
		}
		return nil
	}))
	first := heard[0].since()
	for r := 1; r < size; r++ {
		if other := heard[r].since(); !slices.Equal(first, other) {
			t.Errorf("ranks 0 and %d packed differently", r)
		}
	}
}
