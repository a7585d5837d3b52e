package engine

import (
	"fmt"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hora/collective"
	"hora/event"
)

// TestThousandRanks has every rank of a large group reduce, meet at a barrier and agree
// on names that come in different orders, and counts messages.
func TestThousandRanks(t *testing.T) {
	size := 1000
	if testing.Short() {
		size = 200
	}
	s := seed(t)
	log := uint64(bits.Len(uint(size - 1)))
	for _, test := range []struct {
		name  string
		named bool
		most  uint64 // messages a rank sends per operation, in units of log2
		ops   int
		run   func(rank int, g *Group) error
	}{
		{"barrier", false, 3, 1, func(rank int, g *Group) error {
			r := Request{Call: collective.Call{Kind: collective.Barrier}}
			_, _, err := g.Run(&r, -1)
			return err
		}},
		{"allreduce", false, 3, 1, func(rank int, g *Group) error {
			x := []float32{1}
			r := sum(x, "")
			_, _, err := g.Run(&r, -1)
			if err == nil && x[0] != float32(size) {
				err = fmt.Errorf("sum %v", x[0])
			}
			return err
		}},
		{"names", true, 10, 3, func(rank int, g *Group) error {
			return step(g, rank, size, 1, []string{"a", "b", "c"}, rand.New(rand.NewPCG(s, uint64(rank))).Perm(3))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, size, false, Config{Named: test.named, StallWarn: -1})
				c.must(c.each(test.run))
				var most uint64
				for _, g := range c.groups {
					most = max(most, g.Counters().Mem.MessagesSent)
				}
				limit := test.most * log * uint64(test.ops)
				t.Logf("%d ranks: at most %d messages a rank, allowed %d", size, most, limit)
				if most > limit {
					t.Errorf("a rank sent %d messages for %d operations of %d ranks; allowed is %d", most, test.ops, size, limit)
				}
				for _, g := range c.groups {
					g.Close()
				}
				c.mem.Close()
			})
		})
	}
}

// TestStallReports runs the default of 60 s on fake time.
func TestStallReports(t *testing.T) {
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprintf("named=%v", named), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := heard{stalls: make(chan *event.Stall, 1)}
				var sink event.Sink
				sink.Add(&h)
				var logged strings.Builder
				c := newCluster(t, 3, true, Config{
					Named: named, Events: &sink,
					Log: slog.New(slog.NewTextHandler(&logged, nil)),
				})
				began := time.Now()
				c.must(c.each(func(rank int, g *Group) error {
					x := []float32{1}
					r := sum(x, "first")
					if _, _, err := g.Run(&r, -1); err != nil {
						return err
					}
					if rank == 2 {
						s := <-h.stalls
						<-time.After(20 * time.Second) // the others finish their reports
						if d := time.Since(began); d < 80*time.Second || d > 100*time.Second {
							t.Errorf("reported after %v", d)
						}
						if len(s.Missing) != 1 || s.Missing[0].Rank != 2 || !strings.Contains(s.Missing[0].Last, "allreduce first") {
							t.Errorf("report: %v", s)
						}
					}
					r = sum(x, "second")
					_, _, err := g.Run(&r, -1)
					return err
				}))
				for _, g := range c.groups {
					g.Close()
				}
				c.mem.Close()
				if n := strings.Count(logged.String(), "Missing ranks: rank 2"); n != 1 {
					t.Errorf("%d log lines:\n%s", n, logged.String())
				}
			})
		})
	}
}
