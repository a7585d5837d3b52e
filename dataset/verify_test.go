package dataset

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestVerifyNamesWhatIsDamaged(t *testing.T) {
	dir := t.TempDir()
	rows := table(t, dir, 50, 200, 120)
	look := func() *Verified {
		t.Helper()
		v, err := Verify(context.Background(), []string{dir}, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	v := look()
	if v.Rows != rows || v.Blocks != 7 || len(v.Damaged) != 0 || len(v.Left) != 0 {
		t.Fatalf("%+v", v)
	}
	name := filepath.Join(dir, "part-00.parquet")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	damaged := append([]byte(nil), whole...)
	for i := range 40 {
		damaged[30+i] ^= 0xFF
	}
	if err := os.WriteFile(name, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	v = look()
	var text strings.Builder
	if err := v.Write(&text); err != nil {
		t.Fatal(err)
	}
	if len(v.Damaged) != 1 || v.Damaged[0].Group != 0 || v.Damaged[0].Rows != 50 ||
		!strings.Contains(text.String(), name+": row group 0, column") {
		t.Fatalf("%+v\n%s", v, text.String())
	}
	if err := os.WriteFile(name, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if v = look(); len(v.Damaged) != 1 || v.Damaged[0].Group != -1 || v.Files != 1 {
		t.Fatalf("%+v", v)
	}
}

// TestLabelsMix measures how equally labels are spread over batches where the files are
// sorted by label and a tenth of the rows is in memory: χ² per degree of freedom is 1 for
// a whole permutation, and a random buffer of the same memory has 2.3.
func TestLabelsMix(t *testing.T) {
	const (
		blocks, rows, batch = 1000, 1000, 256
		labels              = 10.0
	)
	total, held, steps := 0.0, 0, 0
	for seed := range uint64(12) {
		s := &Set{
			cfg: Config{Memory: blocks * rows / 10 * 8, Seed: seed}, rows: blocks * rows,
			fields: []field{{Field: Field{Width: 8}}},
		}
		s.sizes, s.blocks = slices.Repeat([]int{rows}, blocks), make([]block, blocks)
		if err := s.order(t.Context()); err != nil {
			t.Fatal(err)
		}
		p, err := s.plan(0)
		if err != nil {
			t.Fatal(err)
		}
		walker, counts := p.Walk(), make([]int64, p.Counts())
		for pos := int64(0); pos+batch <= s.rows; pos += batch {
			var seen [int(labels)]float64
			for _, run := range p.Part(nil, pos, pos+batch, 0, 1, counts) {
				first, end := p.Need(run)
				held += (end - first) * rows
				for _, ref := range walker.Rows(nil, run) {
					seen[p.Blocks(int(ref.Lane))[ref.Block]*int(labels)/blocks]++
				}
			}
			for _, n := range seen {
				total += (n - batch/labels) * (n - batch/labels) / (batch / labels)
			}
			steps++
		}
	}
	got, share := total/float64(steps)/(labels-1), float64(held)/float64(steps)/(blocks*rows)
	t.Logf("χ²/df is %.2f with %.1f %% of the rows in memory on average", got, 100*share)
	if got > 2.9 || share > 0.105 {
		t.Errorf("χ²/df is %.2f with %.1f %% of the rows in memory; it may be 2.9 with a tenth", got, 100*share)
	}
}

// TestSkipIsTheSameEverywhere damages random bytes: ranks agree on what is left, and take
// equally many steps.
func TestSkipIsTheSameEverywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 8 {
		dir := t.TempDir()
		table(t, dir, 50, 400)
		name := filepath.Join(dir, "part-00.parquet")
		whole, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			whole[4+rng.IntN(len(whole)/2)] ^= 0x55
		}
		if err := os.WriteFile(name, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		seen, steps := map[int64]int{}, map[int]bool{}
		left := 0
		for rank := range 3 {
			s := mustOpen(t, Config{
				Source: []string{dir}, Fields: []Want{{Name: "id", Columns: []string{"id"}}}, Skip: true, Seed: 1,
			})
			r := mustRead(t, s, Walk{Rank: rank, Size: 3, Batch: 30})
			n := 0
			for {
				b, err := next(t, r)
				if err != nil {
					break
				}
				for _, id := range view[int64](b, r.Layout()[0].At, b.Rows) {
					seen[id]++
				}
				b.Release()
				n++
			}
			steps[n] = true
			left = max(left, len(s.Skipped()))
		}
		if len(steps) != 1 {
			t.Fatalf("ranks took different numbers of steps: %v", steps)
		}
		if len(seen) < 400-50*max(1, left)*3 {
			t.Fatalf("%d rows are left and %d row groups were skipped", len(seen), left)
		}
	}
}
