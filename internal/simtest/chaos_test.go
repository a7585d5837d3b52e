package simtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hora/collective"
	"hora/engine"
	"hora/tensor"
	"hora/transport"
	"hora/transport/mem"
)

// patience is fake time after which an operation hangs: far above the peer timeout and
// all delays together.
const patience = time.Hour

// chaos is one history of the engine in which something goes wrong, drawn from a seed.
type chaos struct {
	ranks  int
	layout string
	named  bool
	steady bool  // all ranks submit in one order, which makes a standing plan of it
	fusion int   // bytes
	rounds []int // of each rank; where they differ, the ranks join
	sizes  []int // of the tensors of a round
	script mem.Script
	lost   []int // ranks that an error may name; none: nothing may fail
	victim int   // rank that dies; -1: none
}

func drawChaos(rng *rand.Rand) *chaos {
	c := &chaos{ranks: 2 + rng.IntN(7), victim: -1}
	c.layout = []string{"own", "own", "one", "block", "round", "ragged"}[rng.IntN(6)]
	c.named, c.steady = rng.IntN(4) > 0, rng.IntN(2) == 0
	c.fusion = []int{0, -1, 4096}[rng.IntN(3)]
	rounds := 2 + rng.IntN(12)
	join := c.named && rng.IntN(3) == 0
	for range c.ranks {
		n := rounds
		if join {
			n = 1 + rng.IntN(rounds)
		}
		c.rounds = append(c.rounds, n)
	}
	for range 1 + rng.IntN(6) {
		c.sizes = append(c.sizes, 1+rng.IntN([]int{4, 100, 5000}[rng.IntN(3)]))
	}
	a := rng.IntN(c.ranks)
	b := (a + 1 + rng.IntN(c.ranks-1)) % c.ranks
	f := mem.Fault{From: a, To: b, At: 1 + rng.IntN([]int{10, 60, 300}[rng.IntN(3)])}
	switch rng.IntN(7) {
	case 0: // delays alone
	case 1, 2, 3:
		f.Do, c.lost, c.victim = mem.Kill, []int{a}, a
		c.script = append(c.script, f)
	case 4:
		f.Do, c.lost = mem.Cut, []int{a, b}
		c.script = append(c.script, f)
	default:
		f.Do, c.lost = mem.Drop, []int{a, b}
		c.script = append(c.script, f)
	}
	for range rng.IntN(3) {
		from := rng.IntN(c.ranks)
		to := (from + 1 + rng.IntN(c.ranks-1)) % c.ranks
		if slices.Contains(c.lost, from) && slices.Contains(c.lost, to) {
			continue // what is late comes, cut link or not
		}
		late := time.Duration(1+rng.IntN(2000)) * time.Millisecond
		c.script = append(c.script, mem.Fault{Do: mem.Delay, From: from, To: to, At: 1 + rng.IntN(40), For: late})
	}
	return c
}

func (c *chaos) String() string {
	return fmt.Sprintf("%d ranks, layout %s, named %t, steady %t, fusion %d, rounds %v, sizes %v, faults %q", c.ranks, c.layout, c.named, c.steady, c.fusion, c.rounds, c.sizes, c.script)
}

// element is what a rank gives.
func (c *chaos) element(rank, round, i, j int) int64 {
	return int64(1_000_000*(rank+1) + 1000*round + 100*i + j)
}

// right compares a result with the sum over the ranks that had not joined.
func (c *chaos) right(x []int64, round, i int) error {
	for j, got := range x {
		want := int64(0)
		for r, n := range c.rounds {
			if n > round {
				want += c.element(r, round, i, j)
			}
		}
		if got != want {
			return fmt.Errorf("round %d: element %d of t%d is %d, want %d", round, j, i, got, want)
		}
	}
	return nil
}

// fault judges a rank's error: nil if it names a rank that may be lost. One that the
// others hold for lost may name any of them that says so.
func (c *chaos) fault(rank int, err error) error {
	var lost *transport.PeerLostError
	switch {
	case !errors.As(err, &lost):
		return fmt.Errorf("want the loss of one of ranks %v, got %w", c.lost, err)
	case slices.Contains(c.lost, rank) && strings.Contains(err.Error(), "holds this rank for lost"):
	case !slices.Contains(c.lost, lost.Rank):
		return fmt.Errorf("want the loss of one of ranks %v, not of %d: %w", c.lost, lost.Rank, err)
	case !strings.Contains(err.Error(), fmt.Sprintf("rank %d", lost.Rank)):
		return fmt.Errorf("it does not name rank %d: %w", lost.Rank, err)
	}
	return nil
}

// round runs a rank's sums of one round. failed is whether they ended with the loss
// of a rank; err is what must not be.
func (c *chaos) round(rank, round int, g *engine.Group, own *rand.Rand) (failed bool, err error) {
	x := make([][]int64, len(c.sizes))
	tickets := make([]engine.Ticket, len(x))
	started := make([]bool, len(x))
	order := own.Perm(len(x))
	if c.steady || !c.named {
		slices.Sort(order)
	}
	bad := func(i int, err error) error {
		if rank == c.victim {
			return nil // a dead process may say anything
		}
		if err = c.fault(rank, err); err != nil {
			return fmt.Errorf("round %d: t%d: %w", round, i, err)
		}
		return nil
	}
	for _, i := range order {
		x[i] = make([]int64, c.sizes[i])
		for j := range x[i] {
			x[i][j] = c.element(rank, round, i, j)
		}
		v := tensor.Of(x[i])
		r := engine.Request{
			Name: fmt.Sprintf("t%d", i),
			Call: collective.Call{Kind: collective.Allreduce, Type: v.Type, Send: v, Recv: v},
		}
		if own.IntN(2) == 0 {
			tickets[i], _, err = g.Run(&r, 0)
		} else {
			err = g.Submit([]engine.Request{r}, tickets[i:i+1])
		}
		if started[i] = err == nil; err != nil {
			failed = true
			if err = bad(i, err); err != nil {
				return failed, err
			}
		}
	}
	for _, i := range own.Perm(len(x)) {
		if !started[i] {
			continue
		}
		done, err := g.Wait(tickets[i], patience)
		switch {
		case !done:
			return failed, fmt.Errorf("round %d: t%d hangs", round, i)
		case err == nil:
			err = c.right(x[i], round, i)
		default:
			failed = true
			err = bad(i, err)
		}
		if err != nil {
			return failed, err
		}
	}
	return failed, nil
}

// live is a rank's history up to its end or the first loss.
func (c *chaos) live(rank int, g *engine.Group, own *rand.Rand) (failed bool, err error) {
	for round := range c.rounds[rank] {
		if failed, err = c.round(rank, round, g, own); failed || err != nil {
			return failed, err
		}
	}
	if slices.Min(c.rounds) == slices.Max(c.rounds) {
		return false, nil
	}
	last, done, err := g.Join(patience)
	switch {
	case !done:
		return false, errors.New("join hangs")
	case err == nil && c.rounds[last] != slices.Max(c.rounds):
		return false, fmt.Errorf("rank %d joined last after %v rounds", last, c.rounds)
	case err == nil || rank == c.victim:
		return err != nil, nil
	}
	return true, c.fault(rank, err)
}

// run has every rank live, and after a loss try once more. The bubble ends only when no
// goroutine is left.
func (c *chaos) run(t *testing.T, seed uint64) (failed bool) {
	synctest.Test(t, func(t *testing.T) {
		cluster, err := mem.New(c.ranks, mem.Config{Hosts: Hosts(c.layout, c.ranks, 3), Script: c.script})
		if err != nil {
			t.Fatal(err)
		}
		all := make([]*engine.Group, c.ranks)
		for r := range all {
			if all[r], err = engine.New(cluster.Mesh(r),
				engine.Config{Named: c.named, FusionBytes: c.fusion, StallWarn: -1}); err != nil {
				t.Fatal(err)
			}
		}
		each := func(f func(r int, own *rand.Rand) (bool, error)) (fails int) {
			lost, errs := make([]bool, c.ranks), make([]error, c.ranks)
			var wait sync.WaitGroup
			for r := range all {
				wait.Go(func() { lost[r], errs[r] = f(r, rand.New(rand.NewPCG(seed, uint64(r)))) })
			}
			wait.Wait()
			for r := range all {
				if errs[r] != nil {
					t.Errorf("rank %d: %v", r, errs[r])
				}
				if lost[r] {
					fails++
				}
			}
			return fails
		}
		if each(func(r int, own *rand.Rand) (bool, error) { return c.live(r, all[r], own) }) > 0 {
			failed = true
			if n := each(func(r int, own *rand.Rand) (bool,
				error,
			) {
				return c.round(r, 0, all[r], own)
			}); n != c.ranks {
				t.Errorf("after the loss %d of %d ranks' operations failed", n, c.ranks)
			}
		}
		for _, g := range all {
			_ = g.Close()
		}
		cluster.Close()
	})
	return failed
}

// TestFaultsMeetTheEngine runs random histories of ordered and named sums, with fusion,
// standing plans and join, in which a rank dies, a link is cut or breaks, or messages are
// late, at a random message. All sums up to then are right, every operation pending or
// later ends with an error that names a lost rank, and nothing hangs or is left behind.
// Each history has a seed of its own.
func TestFaultsMeetTheEngine(t *testing.T) {
	s := seed(t)
	end := time.Now().Add(3 * time.Second)
	switch {
	case soak():
		end = time.Now().Add(3 * time.Minute)
	case testing.Short():
		end = time.Now().Add(time.Second)
	}
	runs, losses := 0, 0
	for ; runs == 0 || time.Now().Before(end) && !t.Failed(); s++ {
		c := drawChaos(rand.New(rand.NewPCG(s, 9)))
		if !t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Logf("replay: HORA_SIM_SEED=%d go test -run '^TestFaultsMeetTheEngine$' ./internal/simtest: %s", s, c)
			if c.run(t, s) {
				losses++
			}
		}) {
			return
		}
		runs++
	}
	t.Logf("%d histories, %d with a loss", runs, losses)
	if runs > 100 && losses == 0 && os.Getenv("HORA_SIM_SEED") == "" {
		t.Error("no history met its fault")
	}
}
