package plan

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"
)

func blocks(rng *rand.Rand, n, most int) []int {
	b := make([]int, n)
	for i := range b {
		b[i] = rng.IntN(most + 1)
	}
	return b
}

func mustNew(t testing.TB, b []int, o Order) *Plan {
	t.Helper()
	p, err := New(b, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

type place struct {
	block int
	row   int64
}

// whole is the epoch's order as a walker gives it, checked against At at some places.
func whole(t testing.TB, p *Plan) []place {
	t.Helper()
	var out []place
	w := p.Walk()
	counts := make([]int64, p.Counts())
	for pos := int64(0); pos < p.Rows(); pos++ {
		runs := p.Part(nil, pos, pos+1, 0, 1, counts)
		for _, ref := range w.Rows(nil, runs[0]) {
			out = append(out, place{p.Blocks(int(ref.Lane))[ref.Block], int64(ref.Row)})
		}
		if pos%97 == 0 {
			if b, row := p.At(pos); out[pos] != (place{b, row}) {
				t.Fatalf("position %d: the walker says %v, At %d/%d", pos, out[pos], b, row)
			}
		}
	}
	return out
}

func TestBijection(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 60 {
		b := blocks(rng, 1+rng.IntN(12), 1+n)
		o := Order{Seed: rng.Uint64(), Epoch: uint64(n), Lanes: 1 + rng.IntN(5), Window: rng.IntN(2 + n)}
		p := mustNew(t, b, o)
		seen := map[place]bool{}
		for _, at := range whole(t, p) {
			if seen[at] || at.row < 0 || at.row >= int64(b[at.block]) {
				t.Fatalf("%v %+v: row %v is there twice or does not exist", b, o, at)
			}
			seen[at] = true
		}
		if int64(len(seen)) != p.Rows() {
			t.Fatalf("%v %+v: %d of %d rows", b, o, len(seen), p.Rows())
		}
	}
}

func TestFileOrder(t *testing.T) {
	p := mustNew(t, []int{2, 0, 3}, Order{Seed: 9, Lanes: 7})
	want := []place{{0, 0}, {0, 1}, {2, 0}, {2, 1}, {2, 2}}
	if got := whole(t, p); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestGolden freezes the arithmetic: orders that were saved must come back after an
// upgrade. When it fails, State.Version and what reads older states have to follow.
func TestGolden(t *testing.T) {
	p := make([]uint32, 10)
	Permute(p, 42)
	if got := fmt.Sprint(p); got != goldenPermutation {
		t.Errorf("Permute: %s", got)
	}
	b := make([]int, 300)
	for i := range b {
		b[i] = 50 + i*7%100
	}
	for i, o := range []Order{
		{Seed: 1, Lanes: 8, Window: 500},
		{Seed: 1, Epoch: 1, Lanes: 8, Window: 500},
		{Seed: 1 << 63, Lanes: 64, Window: 100},
		{Lanes: 1, Window: 1 << 20},
	} {
		h := fnv.New64a()
		for _, at := range whole(t, mustNew(t, b, o)) {
			fmt.Fprintln(h, at.block, at.row)
		}
		if got := h.Sum64(); got != goldenOrders[i] {
			t.Errorf("order %d is %#x", i, got)
		}
	}
	if got := StepKey(Order{Seed: 3, Epoch: 4}, 5, 6); got != goldenStep {
		t.Errorf("StepKey: %#x", got)
	}
	long := make([]uint32, wide+3)
	Permute(long, 7)
	h := fnv.New64a()
	fmt.Fprint(h, long[wide-2:], long[:10])
	if got := h.Sum64(); got != goldenLong {
		t.Errorf("long Permute: %#x", got)
	}
}

// TestHistories: whatever the ranks, batches and lost steps of an epoch are, each row
// is taken once, and parts of a step differ by at most one row.
func TestHistories(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 0))
		b := blocks(rng, 1+rng.IntN(40), 1+rng.IntN(90))
		o := Order{Seed: seed, Epoch: rng.Uint64N(3), Lanes: 1 + rng.IntN(20), Window: rng.IntN(200)}
		p := mustNew(t, b, o)
		counts := make([]int64, p.Counts())
		seen := map[place]int{}
		for pos := int64(0); pos < p.Rows(); {
			size, batch := 1+rng.IntN(24), int64(1+rng.IntN(700))
			s := Next(o.Epoch, pos, p.Rows(), batch, Short)
			if rng.IntN(3) == 0 {
				continue // lost with its membership: nothing of it was committed
			}
			least, most := int64(1)<<60, int64(0)
			for rank := range size {
				n := int64(0)
				walker := p.Walk()
				for _, run := range p.Part(nil, s.Ranges[0].Begin, s.Ranges[0].End, rank, size, counts) {
					first, end := p.Need(run)
					for _, ref := range walker.Rows(nil, run) {
						n++
						seen[place{p.Blocks(int(ref.Lane))[ref.Block], int64(ref.Row)}]++
						if int(ref.Block) < first || int(ref.Block) >= end {
							t.Fatalf("seed %d: run %v takes block %d, outside of what it needs: %d to %d", seed, run, ref.Block, first, end)
						}
					}
				}
				least, most = min(least, n), max(most, n)
			}
			if most-least > 1 {
				t.Fatalf("seed %d: parts of %d to %d rows", seed, least, most)
			}
			pos = s.After
		}
		if int64(len(seen)) != p.Rows() {
			t.Fatalf("seed %d: %d of %d rows", seed, len(seen), p.Rows())
		}
		for at, n := range seen {
			if n != 1 {
				t.Fatalf("seed %d: row %v %d times", seed, at, n)
			}
		}
	}
}

func TestEnds(t *testing.T) {
	for _, c := range []struct {
		last        Last
		pos         int64
		rows, after int64
		epoch       uint64
		steps       int64
	}{
		{Short, 96, 4, 100, 5, 1},
		{Drop, 96, 0, 100, 5, 0},
		{Pad, 96, 10, 100, 5, 1},
		{Wrap, 96, 10, 6, 6, 1},
		{Short, 90, 10, 100, 5, 1},
		{Drop, 90, 10, 100, 5, 1},
		{Wrap, 90, 10, 100, 5, 1},
		{Wrap, 100, 0, 100, 5, 0},
	} {
		s := Next(5, c.pos, 100, 10, c.last)
		if s.Rows() != c.rows || s.After != c.after || s.Epoch != c.epoch || Steps(c.pos, 100, 10, c.last) != c.steps {
			t.Errorf("%v at %d: %+v", c.last, c.pos, s)
		}
	}
	if s := Next(0, 0, 3, 10, Pad); s.Rows() != 6 {
		t.Errorf("an epoch smaller than a step: %+v", s)
	}
	for n := range int64(50) {
		for size := 1; size < 60; size += 7 {
			at := int64(0)
			for r := range size {
				begin, end := Share(n, r, size)
				if begin != at || end-begin > n/int64(size)+1 || end-begin < n/int64(size) {
					t.Fatalf("share %d of %d of %d: %d to %d", r, size, n, begin, end)
				}
				at = end
			}
			if at != n {
				t.Fatalf("shares of %d end at %d", n, at)
			}
		}
	}
}

// TestOpened: ranks that divide the lanes open no block twice.
func TestOpened(t *testing.T) {
	b := make([]int, 640)
	for i := range b {
		b[i] = 1000
	}
	p := mustNew(t, b, Order{Seed: 1, Lanes: 64, Window: 900})
	for _, size := range []int{1, 4, 6, 16, 64} {
		counts, opened := make([]int64, p.Counts()), 0
		for rank := range size {
			mine := map[[2]int]bool{}
			for pos := int64(0); pos < p.Rows(); pos += 1024 {
				for _, run := range p.Part(nil, pos, min(pos+1024, p.Rows()), rank, size, counts) {
					first, end := p.Need(run)
					for n := first; n < end; n++ {
						mine[[2]int{run.Lane, n}] = true
					}
				}
			}
			opened += len(mine)
		}
		if most := map[bool]float64{true: 1, false: 1.5}[64%size == 0]; float64(opened)/640 > most {
			t.Errorf("%d ranks open %d blocks of 640", size, opened)
		}
	}
}

// TestMixing: labels sorted, 1,000 blocks of 1,000 rows, batches of 256. The χ² of a
// batch's labels is 1 after a full shuffle; a random buffer of 100,000 rows has 2.3.
func TestMixing(t *testing.T) {
	for _, c := range []struct {
		lanes, window, blocks, rows int
		chi                         float64
	}{
		{20, 1333, 105, 75_000, 4.6},  // a tenth of the blocks are open
		{20, 2500, 175, 105_000, 2.9}, // a tenth of the rows are read and not yet handed out
	} {
		chi, blocks, rows := mixing(t, c.lanes, c.window)
		t.Logf("%d lanes of %d rows: χ²/df %.2f, at most %d of 1,000 blocks open with %d rows to come", c.lanes, c.window, chi, blocks, rows)
		if chi > c.chi || blocks > c.blocks || rows > c.rows {
			t.Errorf("%+v: χ²/df %.2f, %d blocks, %d rows", c, chi, blocks, rows)
		}
	}
}

func mixing(t *testing.T, lanes, window int) (chi float64, most, live int) {
	const n, rows, labels, batch = 1000, 1000, 10, 256
	b := make([]int, n)
	for i := range b {
		b[i] = rows
	}
	p := mustNew(t, b, Order{Seed: 3, Lanes: lanes, Window: window})
	counts, ends := make([]int64, p.Counts()), make([]int, lanes)
	w := p.Walk()
	var refs []Ref
	var runs []Run
	sum, batches, opened := 0.0, 0, 0
	for pos := int64(0); pos+batch <= p.Rows(); pos += batch {
		runs, refs = p.Part(runs[:0], pos, pos+batch, 0, 1, counts), refs[:0]
		open := 0
		for _, r := range runs {
			first, end := p.Need(r)
			open += end - first
			opened += max(0, end-ends[r.Lane])
			ends[r.Lane] = max(end, ends[r.Lane])
			refs = w.Rows(refs, r)
		}
		most, live = max(most, open), max(live, opened*rows-int(pos)-batch)
		var got [labels]float64
		for _, ref := range refs {
			got[p.Blocks(int(ref.Lane))[ref.Block]*labels/n]++
		}
		const want = float64(batch) / labels
		for _, g := range got {
			sum += (g - want) * (g - want) / want / (labels - 1)
		}
		batches++
	}
	return sum / float64(batches), most, live
}

func BenchmarkNew(b *testing.B) {
	blocks := make([]int, 100_000)
	for i := range blocks {
		blocks[i] = 1000 + i%7
	}
	for b.Loop() {
		mustNew(b, blocks, Order{Seed: 1, Lanes: 64, Window: 10000})
	}
}

// BenchmarkResume is the first step at nine tenths of 10⁹ rows.
func BenchmarkResume(b *testing.B) {
	blocks := make([]int, 1_000_000)
	for i := range blocks {
		blocks[i] = 1000
	}
	for b.Loop() {
		p := mustNew(b, blocks, Order{Seed: 1, Lanes: 96, Window: 10000})
		w, pos := p.Walk(), p.Rows()/10*9
		for _, r := range p.Part(nil, pos, pos+1024, 0, 1, make([]int64, p.Counts())) {
			w.Rows(nil, r)
		}
	}
}

func BenchmarkRow(b *testing.B) {
	blocks := make([]int, 1000)
	for i := range blocks {
		blocks[i] = 1000
	}
	p := mustNew(b, blocks, Order{Seed: 1, Lanes: 20, Window: 1333})
	w, counts := p.Walk(), make([]int64, p.Counts())
	var refs []Ref
	var runs []Run
	perm := make([]uint32, 1024)
	pos := int64(0)
	b.ReportAllocs()
	for i := 0; i < b.N; i += 1024 {
		if pos+1024 > p.Rows() {
			pos = 0
		}
		runs, refs = p.Part(runs[:0], pos, pos+1024, 0, 1, counts), refs[:0]
		for _, r := range runs {
			refs = w.Rows(refs, r)
		}
		Permute(perm, StepKey(p.order, pos, 0))
		pos += 1024
	}
}
