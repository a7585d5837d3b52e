package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"hora/event"
)

func TestStem(t *testing.T) {
	for name, want := range map[string]string{
		"allreduce.noname.17": "allreduce.noname.", "grouped.noname.0": "grouped.noname.", "allreduce.noname.": "", "call.3": "call.",
		"": "", "17": "", ".17": "", "allreduce.noname.17_1of2": "", "layer2": "",
	} {
		if got := stemOf(true, name); got != want {
			t.Errorf("stemOf(%q) = %q, want %q", name, got, want)
		}
		if got := stemOf(false, name); got != "" {
			t.Errorf("%q, which is not counted, has the stem %q", name, got)
		}
	}
}

// TestCountedNames has ranks leave names out: calls with a new number each time run by
// plan, ranks that come to different numbers match them whatever the order, and what
// differs under one number is an error on all.
func TestCountedNames(t *testing.T) {
	hosts(t, func(t *testing.T, one bool) {
		const size = 3
		var h heard
		var sink event.Sink
		sink.Add(&h)
		c := newCluster(t, size, one, Config{Named: true, Names: 4})
		c.groups[0].cfg.Events = &sink
		c.must(c.each(func(rank int, g *Group) error {
			next := 0
			calls := func(times int) error {
				for range times {
					next++
					if err := step(g, rank, size, next, []string{fmt.Sprintf("s.noname.%d", next)}, []int{0}); err != nil {
						return err
					}
					next++
					x := []float32{1}
					r := sum(x, fmt.Sprintf("s.noname.%d", next))
					if _, _, err := g.Run(&r, -1); err != nil || x[0] != size {
						return fmt.Errorf("%s: %v, %w", r.Name, x, err)
					}
				}
				return nil
			}
			if err := calls(20); err != nil {
				return err
			}
			names := []string{fmt.Sprintf("s.noname.%d", next+1), fmt.Sprintf("s.noname.%d", next+2), "other"}
			next += 2
			order := []int{rank, (rank + 1) % 3, (rank + 2) % 3}
			if err := step(g, rank, size, next, names, order); err != nil {
				return err
			}
			if err := calls(20); err != nil {
				return err
			}
			next++
			r := sum(make([]float32, 1+rank/2), fmt.Sprintf("s.noname.%d", next))
			_, _, err := g.Run(&r, -1)
			var wrong *MismatchError
			if !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), "Mismatched ALLREDUCE tensor shapes: tensor "+r.Name) {
				return fmt.Errorf("shapes that differ gave %w", err)
			}
			return calls(20)
		}))
		if h.planned.Load() < 60 {
			t.Errorf("%d planned, %d agreed", h.planned.Load(), h.rounds.Load())
		}
	})
}

// helpBudget is sometimes so short that the worker must go on.
func helpBudget(round int) time.Duration {
	if round%3 == 0 {
		return time.Microsecond
	}
	return 50 * time.Millisecond
}

// TestHelp has callers that wait do their group's work: in equal and in different
// orders, with others that come late.
func TestHelp(t *testing.T) {
	const size, rounds = 2, 60
	c := newCluster(t, size, true, Config{Named: true})
	c.must(c.each(func(rank int, g *Group) error {
		for round := range rounds {
			data := make([][]float32, 8)
			tickets := make([]Ticket, len(data))
			for i := range data {
				k := i
				if round%7 == 3 && rank == 1 {
					k = len(data) - 1 - i
				}
				data[k] = []float32{float32(round), float32(k)}
				if err := g.Submit([]Request{sum(data[k], fmt.Sprintf("t%d", k))}, tickets[k:k+1]); err != nil {
					return err
				}
			}
			for i, tk := range tickets {
				for done := false; !done; {
					g.Help(tk, helpBudget(round))
					var err error
					if done, err = g.Wait(tk, helpBudget(round)); err != nil {
						return err
					}
				}
				if data[i][0] != float32(size*round) || data[i][1] != float32(size*i) {
					return fmt.Errorf("round %d: t%d is %v", round, i, data[i])
				}
			}
		}
		return nil
	}))
}

// TestWhatIsPacked looks at what travels together: on one host only what is small.
func TestWhatIsPacked(t *testing.T) {
	hosts(t, func(t *testing.T, one bool) {
		const size = 2
		c, h := overheard(t, size, one, Config{Named: true})
		c.must(c.each(func(rank int, g *Group) error {
			var all []Request
			for i, count := range []int{16 << 10, 64, 8 << 10, 64, 16 << 10, 64} {
				x := make([]float32, count)
				x[count-1] = float32(i)
				all = append(all, sum(x, fmt.Sprintf("t%d", i)))
			}
			var one [1]Ticket
			if err := g.Submit(all, one[:]); err != nil {
				return err
			}
			if done, err := g.Wait(one[0], 20*time.Second); err != nil || !done {
				return fmt.Errorf("done %v: %w", done, err)
			}
			for i, r := range all {
				if got := *(*float32)(unsafe.Add(r.Recv.Ptr, 4*(r.Recv.Count-1))); got != float32(size*i) {
					return fmt.Errorf("%s ends in %g", r.Name, got)
				}
			}
			return nil
		}))
		want := int64(6)
		if one {
			want = 4
		}
		if got := h.fused.Load(); got != want {
			t.Errorf("%d operations were packed, not %d", got, want)
		}
	})
}

// TestCountedOnOneRankOnly has ranks bring the same names, some of them a second time, counted now on one rank, now on
// the other, now on both or none: a difference is an error on both, and the next call works.
func TestCountedOnOneRankOnly(t *testing.T) {
	hosts(t, func(t *testing.T, one bool) {
		var h heard
		var sink event.Sink
		sink.Add(&h)
		c := newCluster(t, 2, one, Config{Named: true, Names: 4})
		c.groups[0].cfg.Events = &sink
		c.must(c.each(func(rank int, g *Group) error {
			for i := range 400 {
				counts := i / 9 % 4 // a bit for each rank
				x := []float32{1}
				r := sum(x, fmt.Sprintf("x.noname.%d", i%200/2))
				r.Counted = counts>>rank&1 != 0
				r.Timeout = 10 * time.Second
				_, _, err := g.Run(&r, -1)
				if differ := counts == 1 || counts == 2; differ {
					var wrong *MismatchError
					if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "made by counting calls") {
						return fmt.Errorf("call %d, counted on one rank: %v, %w", i, x, err)
					}
				} else if err != nil || x[0] != 2 {
					return fmt.Errorf("call %d: %v, %w", i, x, err)
				}
			}
			return nil
		}))
		if h.planned.Load() == 0 {
			t.Error("no call was planned")
		}
	})
}
