package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hora/collective"
	"hora/tensor"
	"hora/transport"
)

// TestANamedOperationsOwnLimit: nobody is in a verb that could time a name that the others do not bring.
func TestANamedOperationsOwnLimit(t *testing.T) {
	for what, theirs := range map[string]string{"another name": "b", "nothing": ""} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hosts := map[string]bool{"host": true, "net": false}
				for name, one := range hosts {
					c := newCluster(t, 2, one, Config{Named: true})
					began := time.Now()
					errs := c.each(func(rank int, g *Group) error {
						r := sum([]float32{1}, "a")
						r.Timeout = 3 * time.Second
						if rank == 1 {
							r.Name, r.Timeout = theirs, 0
							if theirs == "" {
								return nil
							}
						}
						_, _, err := g.Run(&r, -1)
						return err
					})
					var late *transport.DeadlineError
					if !errors.As(errs[0], &late) || late.Rank != 1 || late.After != 3*time.Second ||
						!strings.Contains(errs[0].Error(), "allreduce a: ") {
						t.Errorf("%s: %v", name, errs[0])
					}
					if d := time.Since(began); d < 3*time.Second || d > 5*time.Second {
						t.Errorf("%s: it took %v", name, d)
					}
					if theirs != "" && errs[1] == nil {
						t.Errorf("%s: the other rank was told nothing", name)
					}
					for _, g := range c.groups {
						g.Close()
					}
					c.mem.Close()
				}
			})
		})
	}
}

// TestSendsThatFaceEachOther: two blocking sends, each waiting for the other's receive, are reported, and ended
// where a limit says so.
func TestSendsThatFaceEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		c := newCluster(t, 2, true, Config{
			StallEnd: 150 * time.Second,
			Log:      slog.New(slog.NewTextHandler(&logged, nil)),
		})
		errs := c.each(func(rank int, g *Group) error {
			r := send(1-rank, 7, make([]int32, 1<<20))
			_, _, err := g.Run(&r, -1)
			return err
		})
		for rank, err := range errs {
			if err == nil {
				t.Errorf("rank %d: sent", rank)
			}
		}
		var stall *StallError
		if !errors.As(errs[0], &stall) && !errors.As(errs[1], &stall) {
			t.Errorf("%v; %v", errs[0], errs[1])
		}
		for _, g := range c.groups {
			g.Close()
		}
		c.mem.Close()
		for _, want := range []string{"send to rank 0 has waited 1m0s", "rank 1 (host0) has finished nothing yet and waits in send to rank 0", "send to rank 1 has waited 2m"} {
			if !strings.Contains(logged.String(), want) {
				t.Errorf("nothing says %q:\n%s", want, logged.String())
			}
		}
	})
}

// TestABarrierAgainstATensor: what differs is the operation, not the type that a barrier does not have.
func TestABarrierAgainstATensor(t *testing.T) {
	c := newCluster(t, 2, true, Config{})
	for rank, err := range c.each(func(rank int, g *Group) error {
		r := sum([]float32{1}, "")
		if rank == 1 {
			r = Request{Call: collective.Call{Kind: collective.Barrier, Type: tensor.Float64}}
		}
		_, _, err := g.Run(&r, -1)
		return err
	}) {
		if err == nil || !strings.HasPrefix(err.Error(), "Mismatched operations: the call is allreduce on rank 0 and barrier on rank 1") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// TestRanksThatEndForOneStall: whoever's report an error has, it says where all waited, also who ended a moment
// before, and who had come to the operation is not missing.
func TestRanksThatEndForOneStall(t *testing.T) {
	for _, names := range [][3]string{{"gradient.a", "gradient.b", "gradient.b"}, {"gradient.a", "gradient.a", "bias"}} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3, true, Config{Named: true, StallEnd: 2 * time.Second})
			errs := c.each(func(rank int, g *Group) error {
				r := sum([]float32{1}, names[rank])
				_, _, err := g.Run(&r, -1)
				return err
			})
			for rank, err := range errs {
				_, said, _ := strings.Cut(fmt.Sprint(err), `allreduce "`)
				waits, missing, _ := strings.Cut(said, `" has waited 2s. Missing ranks: `)
				for other, name := range names {
					if is := strings.Contains(missing, fmt.Sprintf("rank %d ", other)); is != (name != waits) {
						t.Errorf("%v: rank %d: of rank %d in %q: %v", names, rank, other, waits, err)
					}
					if name != waits && !strings.Contains(missing, name) {
						t.Errorf("%v: rank %d: nothing of %s: %v", names, rank, name, err)
					}
				}
			}
			ended := 0
			for rank, g := range c.groups {
				var stall *StallError
				if errors.As(*g.cause.Load(), &stall) {
					ended++
					own, other := g.answer(question{name: names[rank]}), g.answer(question{name: "elsewhere"})
					if !own.here || other.here || other.pending != "["+names[rank]+"]" {
						t.Errorf("%v: rank %d has ended and says %+v, %+v", names, rank, own, other)
					}
				}
				g.Close()
			}
			c.mem.Close()
			if ended == 0 {
				t.Errorf("%v: nobody ended for a stall: %v", names, errs)
			}
		})
	}
}
