package engine

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"hora/collective"
)

// TestGroupedLengths: ranks whose lists have other lengths get one sentence, what is left of
// the longer list is nobody's, and the next call is right.
func TestGroupedLengths(t *testing.T) {
	hosts(t, func(t *testing.T, one bool) {
		c := newCluster(t, 3, one, Config{})
		texts := make([]string, 3)
		c.must(c.each(func(rank int, g *Group) error {
			x := [][]float32{{1, 1}, {1, 1}, {1, 1}}
			for turn := range 4 {
				var rs []Request
				for i := range 1 + (rank+turn)%3 {
					rs = append(rs, sum(x[i], ""))
				}
				tickets := make([]Ticket, len(rs))
				if turn%2 == 1 {
					tickets = tickets[:1]
				}
				if err := g.Submit(rs, tickets); err != nil {
					return err
				}
				for i, tk := range tickets {
					_, err := g.Wait(tk, -1)
					var wrong *MismatchError
					if !errors.As(err, &wrong) {
						return fmt.Errorf("part %d gave %v", i, err)
					}
					texts[rank] = err.Error()
				}
				y := []float32{float32(rank), 100}
				r := sum(y, "")
				if _, _, err := g.Run(&r, -1); err != nil {
					return fmt.Errorf("the next call: %w", err)
				}
				if y[0] != 3 || y[1] != 300 {
					return fmt.Errorf("the next call gave %v", y)
				}
				if got := g.calls(); got != uint64(2*turn+2) {
					return fmt.Errorf("%d calls after turn %d", got, turn)
				}
			}
			return nil
		}))
		want := "Mismatched lengths of a grouped call: the call is of 1 tensor on rank 0, of 2 tensors on rank 1 and of 3 tensors on rank 2; give lists of one length on every rank. (Calls so far in group world: 7 calls on ranks 0-2.)"
		for r, text := range texts {
			if text != want {
				t.Errorf("rank %d: %s", r, text)
			}
		}
	})
}

// TestGroupedAgainstPlain: a list does not go together with as many calls of their own.
func TestGroupedAgainstPlain(t *testing.T) {
	c := newCluster(t, 2, true, Config{})
	c.must(c.each(func(rank int, g *Group) error {
		x, y := []float32{1}, []float32{1}
		rs := []Request{sum(x, ""), sum(y, "")}
		var err error
		if rank == 0 {
			var tk [1]Ticket
			if err := g.Submit(rs, tk[:]); err != nil {
				return err
			}
			_, err = g.Wait(tk[0], -1)
		} else {
			_, _, err = g.Run(&rs[0], -1)
		}
		if err == nil || !strings.Contains(err.Error(), "of 2 tensors on rank 0 and of 1 tensor on rank 1") {
			return fmt.Errorf("got %w", err)
		}
		r := sum(x, "")
		_, _, err = g.Run(&r, -1)
		return err
	}))
}

// TestPartingComparesCalls: ranks that made different numbers of calls learn it as they leave,
// whoever leaves first, and ranks that made as many part in peace.
func TestPartingComparesCalls(t *testing.T) {
	for _, c := range []struct {
		name  string
		extra []int // calls that nobody waits for, on each rank
		named bool
		want  string
	}{
		{"equal", []int{1, 1, 1}, false, ""},
		{"surplus", []int{0, 1, 0}, false, "ranks 0, 2 made 3 calls, rank 1 made 4 calls"},
		{"missing", []int{2, 2, 0}, false, "ranks 0-1 made 5 calls, rank 2 made 3 calls"},
		{"all differ", []int{0, 1, 2}, false, "rank 0 made 3 calls, rank 1 made 4 calls, rank 2 made 5 calls"},
		{"named equal", []int{1, 1, 1}, true, ""},
		{"named surplus", []int{0, 0, 1}, true, "ranks 0-1 made 3 calls, rank 2 made 4 calls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			hosts(t, func(t *testing.T, one bool) {
				all := newCluster(t, 3, one, Config{Named: c.named})
				errs := all.each(func(rank int, g *Group) error {
					x := []float32{1}
					for i := range 3 {
						r := sum(x, fmt.Sprint("x", i))
						if _, _, err := g.Run(&r, -1); err != nil {
							return err
						}
					}
					for i := range c.extra[rank] {
						var tk [1]Ticket
						if err := g.Submit([]Request{sum([]float32{1}, fmt.Sprint("y", i))}, tk[:]); err != nil {
							return err
						}
					}
					return g.Farewell(5 * time.Second)
				})
				for r, err := range errs {
					var wrong *MismatchError
					switch {
					case c.want == "" && err != nil:
						t.Errorf("rank %d: %v", r, err)
					case c.want != "" && (!errors.As(err, &wrong) || !strings.Contains(wrong.Text, c.want)):
						t.Errorf("rank %d: %v", r, err)
					}
				}
			})
		})
	}
}

// TestABarrierThatWaitedInVain: who does not come to a barrier whose time is up on the others has shared nothing
// wrongly, and leaves in peace, however many came. Of any other call it is told.
func TestABarrierThatWaitedInVain(t *testing.T) {
	for _, c := range []struct {
		name    string
		barrier bool
		want    string
	}{
		{"a barrier", true, ""},
		{"a sum", false, "ranks 0-1 made 3 calls, rank 2 made 2 calls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			hosts(t, func(t *testing.T, one bool) {
				all := newCluster(t, 3, one, Config{})
				over := make(chan struct{}, 2)
				errs := all.each(func(rank int, g *Group) error {
					for range 2 {
						r := sum([]float32{1}, "")
						if _, _, err := g.Run(&r, -1); err != nil {
							return err
						}
					}
					if rank == 2 {
						<-over
						<-over
						return g.Farewell(5 * time.Second)
					}
					r := sum([]float32{1}, "")
					if c.barrier {
						r = Request{Call: collective.Call{Kind: collective.Barrier}}
					}
					r.Timeout = 200 * time.Millisecond
					_, _, err := g.Run(&r, -1)
					over <- struct{}{}
					if err == nil {
						return errors.New("the call came to its end")
					}
					return g.Farewell(5 * time.Second)
				})
				if errs[0] != nil || errs[1] != nil {
					t.Errorf("ranks 0 and 1, who were told: %v, %v", errs[0], errs[1])
				}
				var wrong *MismatchError
				switch err := errs[2]; {
				case c.want == "" && err != nil, c.want != "" &&
					(!errors.As(err, &wrong) || !strings.Contains(wrong.Text, c.want)):
					t.Errorf("rank 2: %v", err)
				}
			})
		})
	}
}

// TestPartingAfterJoin: who joined has made the others' calls with them.
func TestPartingAfterJoin(t *testing.T) {
	c := newCluster(t, 2, true, Config{Named: true})
	c.must(c.each(func(rank int, g *Group) error {
		for i := range 5 - 3*rank {
			r := sum([]float32{1}, fmt.Sprint("x", i%2))
			if _, _, err := g.Run(&r, -1); err != nil {
				return err
			}
		}
		if _, _, err := g.Join(-1); err != nil {
			return err
		}
		return g.Farewell(5 * time.Second)
	}))
}

// TestPartingAfterTheEnd: a rank that leaves a group which others' calls have ended, and of whose
// end none of its own calls has told it, is told who made another number of calls.
func TestPartingAfterTheEnd(t *testing.T) {
	for _, late := range []bool{false, true} { // the one with a call too many is left, or gives up waiting
		hosts(t, func(t *testing.T, one bool) {
			c := newCluster(t, 3, one, Config{})
			errs := c.each(func(rank int, g *Group) error {
				for range 3 {
					r := sum([]float32{1}, "")
					if _, _, err := g.Run(&r, -1); err != nil {
						return err
					}
				}
				switch {
				case rank == 2: // makes a call more
					r := sum([]float32{1}, "")
					if late {
						r.Timeout = 50 * time.Millisecond
					}
					_, _, err := g.Run(&r, -1)
					return err
				case rank == 0 && !late: // leaves at once
					err := g.Farewell(5 * time.Second)
					g.Close()
					return err
				}
				for end := time.Now().Add(20 * time.Second); g.Err() == nil && time.Now().Before(end); {
					runtime.Gosched()
				}
				return g.Farewell(5 * time.Second)
			})
			for r, err := range errs {
				want := "ranks 0-1 made 3 calls, rank 2 made 4 calls"
				if r == 2 && late {
					want = "timeout of"
				} else if r == 2 {
					want = "it has left (its program ended or shut hora down) after 3 calls in group world, of which this rank has made 4"
				}
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("late %v: rank %d: %v", late, r, err)
				}
			}
		})
	}
}
