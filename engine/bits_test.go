package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"hora/collective"
	"hora/event"
)

// TestBitsAreEqual sums the same floats, whose sum depends on the order of additions: on
// all ranks, from run to run, in ordered and named groups, with and without a standing
// plan, and whatever the sizes of segments and parts, every bit is the same.
func TestBitsAreEqual(t *testing.T) {
	const ranks, rounds = 3, 12
	s := seed(t)
	if k := differs(another(s, 300)); k < 0 {
		t.Error("these floats have one sum in any order: the test finds nothing")
	}
	counts := []int{7, 300, 9_000, 120_000}
	if testing.Short() {
		counts = []int{7, 300, 9_000}
	}
	for _, count := range counts {
		hosts(t, func(t *testing.T, one bool) {
			want := make([]uint32, 0, count)
			for _, named := range []bool{false, true} {
				for _, sizes := range [][2]int{{0, 0}, {0, 0}, {4096, 1024}, {1000, 300}} {
					c := newCluster(t, ranks, one,
						Config{Named: named, Collective: collective.Config{Segment: sizes[0], Part: sizes[1]}})
					var h heard
					if named {
						c.groups[0].cfg.Events = new(event.Sink)
						c.groups[0].cfg.Events.Add(&h)
					}
					all := make([][]float32, ranks)
					c.must(c.each(func(rank int, g *Group) error {
						in := floats(rand.New(rand.NewPCG(s, uint64(rank))), count)
						x := make([]float32, count)
						r := sum(x, "x")
						var first []float32
						for round := range rounds {
							copy(x, in)
							if _, _, err := g.Run(&r, -1); err != nil {
								return err
							}
							if round == 0 {
								first = slices.Clone(x)
							}
							if k := differs(x, bitsOf(first)); k >= 0 {
								return fmt.Errorf("round %d gave other bits than the first at element %d: %x and %x", round, k, x[k], first[k])
							}
						}
						all[rank] = first
						return nil
					}))
					if named && h.planned.Load() == 0 {
						t.Errorf("no round of %d went by a standing plan", rounds)
					}
					if len(want) == 0 {
						want = bitsOf(all[0])
					}
					for rank, x := range all {
						if k := differs(x, want); k >= 0 {
							t.Fatalf("%d elements, named %v, segment %d, part %d: rank %d has %x at element %d, others %x", count, named, sizes[0], sizes[1], rank, x[k], k, math.Float32frombits(want[k]))
						}
					}
				}
			}
		})
	}
}

// floats are of many magnitudes and both signs.
func floats(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.Ldexp(rng.Float64()-0.5, rng.IntN(40)-20))
	}
	return x
}

// another is the sum of three ranks' floats in two orders.
func another(s uint64, n int) (x []float32, other []uint32) {
	a, b, c := floats(rand.New(rand.NewPCG(s, 0)), n), floats(rand.New(rand.NewPCG(s, 1)), n),
		floats(rand.New(rand.NewPCG(s, 2)), n)
	y := make([]float32, n)
	x = make([]float32, n)
	for i := range x {
		x[i] = (a[i] + b[i]) + c[i]
		y[i] = a[i] + (b[i] + c[i])
	}
	return x, bitsOf(y)
}

func bitsOf(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i, v := range x {
		b[i] = math.Float32bits(v)
	}
	return b
}

// differs is the first element whose bits are not those wanted, -1 for none.
func differs(x []float32, want []uint32) int {
	if len(x) != len(want) {
		return 0
	}
	for i, v := range x {
		if math.Float32bits(v) != want[i] {
			return i
		}
	}
	return -1
}
