package simtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"hora/collective"
	"hora/transport"
	"hora/transport/mem"
)

// seed is HORA_SIM_SEED or the clock; every run prints the command that replays it.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := uint64(time.Now().UnixNano())
	if text := os.Getenv("HORA_SIM_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("HORA_SIM_SEED=%q is no number", text)
		}
		s = n
	}
	t.Logf("replay: HORA_SIM_SEED=%d go test -run '^%s$' ./internal/simtest", s, t.Name())
	return s
}

// soak is whether the full product runs.
func soak() bool { return os.Getenv("HORA_SOAK") != "" }

// configuration is one point of the product.
type configuration struct {
	ranks  int
	layout string
	table  string
	seg    int
	part   int
	slot   int
}

func (c configuration) String() string {
	return fmt.Sprintf("ranks=%d layout=%s table=%q segment=%d part=%d slot=%d", c.ranks, c.layout, c.table, c.seg, c.part, c.slot)
}

func (c configuration) world() World {
	return World{
		Ranks: c.ranks,
		Mem: mem.Config{
			Hosts: Hosts(c.layout, c.ranks, 3),
			Board: transport.BoardConfig{SlotBytes: c.slot, PartBytes: 4096},
		},
		Comm: collective.Config{Table: c.table, Segment: c.seg, Part: c.part, Stream: c.part},
	}
}

// tables are all that can be chosen: each algorithm of each operation, flat and
// layered, with and without slots and registered buffers.
func tables() []string {
	out := []string{""}
	for _, k := range collective.Kinds() {
		for _, a := range collective.Offered(k) {
			out = append(out, fmt.Sprintf("%s:0-=%s", k, a), fmt.Sprintf("%s:0-=%s+flat", k, a))
		}
	}
	for _, k := range []string{"allreduce", "reduce", "broadcast", "allgather", "reducescatter", "alltoall", "gather", "scatter"} {
		out = append(out, k+":0-=twoshot+copy", k+":0-=oneshot+copy", k+":0-=twoshot+direct", k+":0-=oneshot+direct")
	}
	return out
}

func product() []configuration {
	var all []configuration
	for _, ranks := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 64} {
		for _, layout := range []string{"own", "one", "block", "round", "ragged"} {
			for _, table := range tables() {
				for _, chunk := range [][3]int{{0, 0, 0}, {16, 1, 4096}, {100, 64, 4096}, {1000, 300, 8192}} {
					all = append(all, configuration{ranks, layout, table, chunk[0], chunk[1], chunk[2]})
				}
			}
		}
	}
	return all
}

// history runs random steps in one world and checks every result.
func history(t *testing.T, c configuration, rng *rand.Rand, steps int) error {
	most := []int{3, 40, 700}[rng.IntN(3)]
	if c.ranks >= 16 {
		most = min(most, 40)
	}
	list := make([]*Step, steps)
	for i := range list {
		list[i] = RandomStep(rng, c.ranks, most)
	}
	errs := Run(t, c.world(), func(r *Rank) error {
		for i, s := range list {
			if err := s.Run(r, uint64(i)); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	})
	for r, err := range errs {
		if err != nil {
			return fmt.Errorf("%s: rank %d: %w", c, r, err)
		}
	}
	for _, s := range list {
		if err := s.Verify(); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	return nil
}

// TestProduct runs histories under every algorithm, layout, world size and chunk
// size; without HORA_SOAK it draws configurations for some seconds.
func TestProduct(t *testing.T) {
	s := seed(t)
	rng := rand.New(rand.NewPCG(s, 1))
	all := product()
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	end := time.Now().Add(20 * time.Second)
	if testing.Short() {
		end = time.Now().Add(5 * time.Second)
	}
	runs := 0
	for _, c := range all {
		if !soak() && time.Now().After(end) {
			break
		}
		steps := 12
		if c.ranks >= 16 {
			steps = 4
		}
		if err := history(t, c, rng, steps); err != nil {
			t.Fatal(err)
		}
		runs++
	}
	t.Logf("%d of %d configurations", runs, len(all))
}
