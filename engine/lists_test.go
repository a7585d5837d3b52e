package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"hora/tensor"
)

// listOf is a list of n sums under one name, as a front end names them, or under names of their own.
func listOf(n int, base string, x [][]float32) (rs []Request) {
	for i := range n {
		name := fmt.Sprint(base, i)
		if base == "g" {
			name = fmt.Sprintf("g_%dof%d", i+1, n)
		}
		rs = append(rs, sum(x[i], name))
	}
	return rs
}

// TestNamedLists: lists of other lengths under one name meet, every rank gets one sentence, and
// the calls beside and after it are right, under a plan too.
func TestNamedLists(t *testing.T) {
	for _, base := range []string{"g", "own"} {
		for _, mixed := range []bool{false, true} { // tensors of different types, which are not packed
			t.Run(fmt.Sprint(base, " ", mixed), func(t *testing.T) {
				hosts(t, func(t *testing.T, one bool) {
					c := newCluster(t, 3, one, Config{Named: true})
					texts := make([]string, 3)
					c.must(c.each(func(rank int, g *Group) error {
						for turn := range 24 {
							differ := turn%12 > 7
							if err := namedList(g, rank, turn, base, mixed, differ, &texts[rank]); err != nil {
								return fmt.Errorf("turn %d: %w", turn, err)
							}
						}
						return g.Farewell(5 * time.Second)
					}))
					for r, text := range texts {
						if text != texts[0] || text == "" {
							t.Errorf("rank %d: %q, rank 0: %q", r, text, texts[0])
						}
					}
				})
			})
		}
	}
}

func namedList(g *Group, rank, turn int, base string, mixed, differ bool, text *string) error {
	n := 2
	if differ {
		n = 1 + (rank+turn)%3
	}
	x := [][]float32{{1, 1}, {1, 1}, {1, 1}}
	rs := listOf(n, base, x)
	for i := range rs {
		if mixed && i%2 == 1 {
			rs[i].Send = tensor.Of(make([]int32, 2))
			rs[i].Type, rs[i].Recv = rs[i].Send.Type, rs[i].Send
		}
	}
	beside, y := []float32{float32(rank)}, []float32{float32(rank), 100}
	tickets, other := make([]Ticket, n), make([]Ticket, 1)
	for k := range 2 { // in any order
		var err error
		if k == rank%2 {
			err = g.Submit(rs, tickets)
		} else {
			err = g.Submit([]Request{sum(beside, "beside")}, other)
		}
		if err != nil {
			return err
		}
	}
	for i, tk := range tickets {
		_, err := g.Wait(tk, 20*time.Second)
		var wrong *MismatchError
		switch {
		case differ != errors.As(err, &wrong):
			return fmt.Errorf("part %d gave %w", i, err)
		case differ:
			*text = fmt.Sprint(turn, wrong.Text)
		case err != nil || x[0][0] != 3:
			return fmt.Errorf("part %d is %v: %w", i, x, err)
		}
	}
	if done, err := g.Wait(other[0], 20*time.Second); err != nil || !done || beside[0] != 3 {
		return fmt.Errorf("the call beside gave %v: %v %w", beside, done, err)
	}
	r := sum(y, "after")
	r.Timeout = 20 * time.Second
	if _, _, err := g.Run(&r, -1); err != nil || y[0] != 3 || y[1] != 300 {
		return fmt.Errorf("the next call gave %v: %w", y, err)
	}
	return nil
}

// TestListsUnderOneName: lists of different lengths under one name, in flight at once, go one after
// another.
func TestListsUnderOneName(t *testing.T) {
	hosts(t, func(t *testing.T, one bool) {
		c := newCluster(t, 2, one, Config{Named: true})
		c.must(c.each(func(rank int, g *Group) error {
			for turn := range 20 {
				var all [][][]float32
				var tickets []Ticket
				for n := 1; n <= 3; n++ {
					x := [][]float32{{1}, {float32(n)}, {3}}
					tk := make([]Ticket, 1)
					if err := g.Submit(listOf(n, "g", x), tk); err != nil {
						return err
					}
					if rank == turn%2 {
						if _, err := g.Wait(tk[0], 20*time.Second); err != nil {
							return err
						}
					}
					all, tickets = append(all, x[:n]), append(tickets, tk[0])
				}
				for i, tk := range tickets {
					if rank != turn%2 {
						if done, err := g.Wait(tk, 20*time.Second); err != nil || !done {
							return fmt.Errorf("turn %d: list %d: %v %w", turn, i, done, err)
						}
					}
					if got := fmt.Sprint(all[i]); got != []string{"[[2]]", "[[2] [4]]", "[[2] [6] [6]]"}[i] {
						return fmt.Errorf("turn %d: list %d gave %s", turn, i, got)
					}
				}
			}
			return nil
		}))
	})
}

// TestNamesInABranch: a call that one rank alone makes in a branch is refused together with the others'
// next call of that name, before there is a plan and after, and what all make is summed.
func TestNamesInABranch(t *testing.T) {
	hosts(t, func(t *testing.T, one bool) {
		c := newCluster(t, 3, one, Config{Named: true})
		c.must(c.each(func(rank int, g *Group) error {
			call := func(name string) error {
				x := []float32{1, float32(rank)}
				r := sum(x, name)
				tk, _, err := g.Run(&r, -1)
				if tk != 0 {
					var done bool
					if done, err = g.Wait(tk, 10*time.Second); !done {
						return fmt.Errorf("rank %d: %s is not done", rank, name)
					}
				}
				if err == nil && (x[0] != 3 || x[1] != 3) {
					return fmt.Errorf("%s is %v", name, x)
				}
				return err
			}
			for _, before := range []int{1, 60} {
				for _, where := range places {
					for range before {
						if err := errors.Join(call("x"+where), call("x")); err != nil {
							return err
						}
					}
					name := "x"
					if rank == 1 {
						name += where
					}
					var wrong *MismatchError
					if err := call(name); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "x"+where) ||
						!strings.Contains(err.Error(), "rank 1") {
						return fmt.Errorf("after %d of %q: %w", before, where, err)
					}
				}
			}
			return call("x")
		}))
	})
}
