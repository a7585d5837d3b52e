package engine

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"hora/collective"
	"hora/tensor"
)

// piece is one operation of a random history, made alike on all ranks from its number.
type piece struct {
	name  string
	sized collective.Kind // 0: a sum
	data  []int64
	got   []int64
	tk    Ticket
}

// newPiece is what rank contributes to operation id of a phase.
func newPiece(rank, size, phase, id int, sized collective.Kind) *piece {
	p := &piece{name: fmt.Sprintf("h.%d.%d", sized, id), sized: sized}
	switch sized {
	case collective.Allgather:
		p.data = make([]int64, (rank+phase+id)%4)
	case collective.Alltoall:
		p.data = make([]int64, size*(size+1)/2)
	default:
		p.data = make([]int64, 3+id)
	}
	for i := range p.data {
		p.data[i] = int64(1000*phase + 10*id + rank)
	}
	return p
}

// request asks for it; an alltoall gives 1 element to rank 0, 2 to rank 1, and so on.
func (p *piece) request(size int) Request {
	v := tensor.Of(p.data)
	r := Request{
		Call: collective.Call{Kind: p.sized, Type: v.Type, Send: v}, Name: p.name,
		Counted: strings.Contains(p.name, ".noname."),
	}
	if p.sized == 0 {
		r.Kind, r.Op, r.Recv = collective.Allreduce, tensor.Sum, v
		return r
	}
	if p.sized == collective.Alltoall {
		for i := range size {
			r.SendCounts = append(r.SendCounts, i+1)
		}
	}
	r.Alloc = func(n int) unsafePointer {
		p.got = make([]int64, n/8)
		return pointer(p.got)
	}
	return r
}

// verify compares with what the ranks put in.
func (p *piece) verify(rank, size, phase, id int, kind collective.Kind) error {
	var want []int64
	from := func(r, n int) {
		for range n {
			want = append(want, int64(1000*phase+10*id+r))
		}
	}
	switch kind {
	case collective.Allgather:
		for r := range size {
			from(r, (r+phase+id)%4)
		}
	case collective.Alltoall:
		for r := range size {
			from(r, rank+1)
		}
	default:
		for range 3 + id {
			want = append(want, int64(size*(1000*phase+10*id)+size*(size-1)/2))
		}
		p.got = p.data
	}
	if !slices.Equal(p.got, want) {
		return fmt.Errorf("phase %d: %s is %v, want %v", phase, p.name, p.got, want)
	}
	return nil
}

// phase has a rank start all its pieces in its order, some blocking with a budget, and
// wait for them in another.
func historyPhase(g *Group, own *rand.Rand, pieces []*piece, order []int, waits bool) error {
	size := g.Size()
	for _, i := range order {
		p := pieces[i]
		r := p.request(size)
		var err error
		if own.IntN(3) == 0 {
			var one [1]Ticket
			err = g.Submit([]Request{r}, one[:])
			p.tk = one[0]
		} else {
			budget := time.Duration(own.IntN(3)) * 20 * time.Microsecond
			if waits && own.IntN(2) == 0 {
				budget = -1 // only where all ranks keep one order
			}
			p.tk, _, err = g.Run(&r, budget)
		}
		if err != nil {
			return fmt.Errorf("start %s: %w", p.name, err)
		}
		if own.IntN(6) == 0 {
			runtime.Gosched()
		}
	}
	for _, i := range own.Perm(len(pieces)) {
		done, err := g.Wait(pieces[i].tk, 20*time.Second)
		if err != nil || !done {
			return fmt.Errorf("wait for %s: done %v: %w", pieces[i].name, done, err)
		}
	}
	return nil
}

// TestNamedHistories mixes sums and results of unknown size, several in flight, in equal
// and in random orders, started with and without budgets, with plans that form and
// break, and with joins. A difference of order is never an error and never a hang.
func TestNamedHistories(t *testing.T) {
	s := seed(t)
	phases := 150
	if testing.Short() {
		phases = 60
	}
	hosts(t, func(t *testing.T, one bool) {
		for _, size := range []int{2, 3} {
			c := newCluster(t, size, one, Config{Named: true, Names: 12})
			c.must(c.each(func(rank int, g *Group) error { return history(g, s, rank, size, phases) }))
		}
	})
}

// TestWatchBesideNames has the watch look, ask and answer all the time beside them.
func TestWatchBesideNames(t *testing.T) {
	s := seed(t)
	cfg := Config{Named: true, StallWarn: shortestTick, Log: slog.New(slog.DiscardHandler)}
	hosts(t, func(t *testing.T, one bool) {
		c := newCluster(t, 3, one, cfg)
		c.must(c.each(func(rank int, g *Group) error {
			own := rand.New(rand.NewPCG(s, uint64(10+rank)))
			shared := rand.New(rand.NewPCG(s, 1))
			for round := range 300 {
				if err := callerRound(g, rank, 3, round, shared.IntN(100), own); err != nil {
					return fmt.Errorf("round %d: %w", round, err)
				}
			}
			return history(g, s, rank, 3, 60)
		}))
	})
}

func history(g *Group, s uint64, rank, size, phases int) error {
	kinds := []collective.Kind{0, collective.Allgather, 0, collective.Alltoall, collective.Allgather}
	shared := rand.New(rand.NewPCG(s, 1)) // the same on all ranks
	own := rand.New(rand.NewPCG(s, uint64(10+rank)))
	steady, counted := false, false
	for phase := range phases {
		if shared.IntN(10) == 0 {
			steady = !steady
			counted = shared.IntN(3) == 0
		}
		count := 5
		if !steady || shared.IntN(12) == 0 {
			count = 1 + shared.IntN(9)
		}
		pieces := make([]*piece, count)
		order := make([]int, count)
		for i := range pieces {
			pieces[i], order[i] = newPiece(rank, size, phase, i, kinds[i%len(kinds)]), i
			if counted {
				pieces[i].name = fmt.Sprintf("h.%d.noname.%d", pieces[i].sized, 10*phase+i)
			}
		}
		mixed := shared.IntN(12) == 0
		if !steady || mixed {
			own.Shuffle(count, func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		if err := historyPhase(g, own, pieces, order, steady && !mixed); err != nil {
			return err
		}
		for i, p := range pieces {
			if err := p.verify(rank, size, phase, i, kinds[i%len(kinds)]); err != nil {
				return err
			}
		}
		if shared.IntN(25) == 0 {
			if _, done, err := g.Join(20 * time.Second); err != nil || !done {
				return fmt.Errorf("phase %d: join: done %v: %w", phase, done, err)
			}
		}
	}
	return nil
}
