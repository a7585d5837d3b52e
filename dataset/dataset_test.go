package dataset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/parquet-go/parquet-go"

	"hora/dataset/plan"
)

type record struct {
	ID    int64    `parquet:"id"`
	A     float32  `parquet:"a"`
	B     float32  `parquet:"b"`
	Text  string   `parquet:"text,dict"`
	Maybe *float64 `parquet:"maybe,optional"`
}

func numbered(i int64) record {
	r := record{ID: i, A: float32(i), B: float32(-i), Text: strings.Repeat("t", int(i%5)) + fmt.Sprint(i)}
	if i%3 > 0 {
		v := float64(i) / 2
		r.Maybe = &v
	}
	return r
}

// table writes files of so many rows each, in row groups of group rows.
func table(t testing.TB, dir string, group int64, files ...int) int64 {
	t.Helper()
	id := int64(0)
	for i, n := range files {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("part-%02d.parquet", i)))
		if err != nil {
			t.Fatal(err)
		}
		w := parquet.NewGenericWriter[record](
			f, parquet.MaxRowsPerRowGroup(group), parquet.Compression(&parquet.Snappy),
		)
		for range n {
			if _, err := w.Write([]record{numbered(id)}); err != nil {
				t.Fatal(err)
			}
			id++
		}
		if err := errors.Join(w.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return id
}

func mustOpen(t testing.TB, cfg Config) *Set {
	t.Helper()
	s, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func mustRead(t testing.TB, s *Set, w Walk) *Reader {
	t.Helper()
	r, err := s.Read(w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func next(t testing.TB, r *Reader) (*Batch, error) {
	t.Helper()
	for range 1000 {
		b, err := r.Next(50 * time.Millisecond)
		if !errors.Is(err, ErrNotYet) {
			return b, err
		}
	}
	t.Fatal("no batch in 50 s")
	return nil, nil
}

func view[T any](b *Batch, at, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(&b.Memory()[at])), n)
}

// ids checks that a batch's arrays belong together and answers its rows.
func ids(t testing.TB, r *Reader, b *Batch) []int64 {
	t.Helper()
	var all []int64
	for _, f := range r.Layout() {
		if f.At%64 != 0 || uintptr(unsafe.Pointer(&b.Memory()[f.At]))%64 != 0 {
			t.Fatalf("%s lies at %d: not aligned", f.Name, f.At)
		}
		switch f.Name {
		case "id":
			all = slices.Clone(view[int64](b, f.At, b.Rows))
		case "ab":
			for i, v := range view[[2]float32](b, f.At, b.Rows) {
				if v != [2]float32{float32(all[i]), float32(-all[i])} {
					t.Fatalf("row %d has %v", all[i], v)
				}
			}
		case "text":
			h := view[int64](b, 0, f.Text+2)
			ends := view[int64](b, f.At, b.Rows+1)
			for i, id := range all {
				if got := string(b.Memory()[h[f.Text]+ends[i] : h[f.Text]+ends[i+1]]); got != numbered(id).Text {
					t.Fatalf("row %d has the text %q", id, got)
				}
			}
		case "maybe":
			mask := view[bool](b, f.MaskAt, b.Rows)
			for i, v := range view[float64](b, f.At, b.Rows) {
				want := numbered(all[i]).Maybe
				if mask[i] != (want == nil) || want != nil && *want != v {
					t.Fatalf("row %d has %v, null %v", all[i], v, mask[i])
				}
			}
		}
	}
	return all
}

var everything = []Want{
	{Name: "id", Columns: []string{"id"}},
	{Name: "ab", Columns: []string{"a", "b"}},
	{Name: "text", Columns: []string{"text"}},
	{Name: "maybe", Columns: []string{"maybe"}},
}

// TestHistories: readers of changing worlds, batches and ends take each row once.
func TestHistories(t *testing.T) {
	dir := t.TempDir()
	rows := table(t, dir, 97, 500, 3, 1100, 250)
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := mustOpen(t, Config{
			Source: []string{dir}, Fields: everything, Nulls: map[string]any{"maybe": "mask"}, Seed: seed,
			Shuffle: Shuffle(seed % 3), Memory: []int64{20_000, 60_000, 1 << 30}[rng.IntN(3)], Threads: 1 + rng.IntN(2),
		}.fits(rows))
		seen := map[int64]int{}
		for state := s.State(seed, 0); state.Position < rows; {
			size, batch := 1+rng.IntN(5), int64(1+rng.IntN(300))
			steps := 1 + rng.IntN(5)
			var reached int64
			for rank := range size {
				r := mustRead(t, s, Walk{state.Epoch, state.Position, rank, size, batch, plan.Short, nil})
				for pos := state.Position; pos < min(rows, state.Position+int64(steps)*batch); pos += batch {
					begin, end := plan.Share(min(batch, rows-pos), rank, size)
					if begin == end {
						continue
					}
					b, err := next(t, r)
					if err != nil {
						t.Fatal(err)
					}
					for _, id := range ids(t, r, b) {
						seen[id]++
					}
					if int64(b.Rows) != end-begin || b.Position != min(rows, pos+batch) {
						t.Fatalf("batch of %d rows up to %d, want %d up to %d", b.Rows, b.Position, end-begin, pos+batch)
					}
					b.Release()
				}
				reached = min(rows, state.Position+int64(steps)*batch)
				if reached == rows {
					if _, err := next(t, r); !errors.Is(err, io.EOF) {
						t.Fatalf("at the end: %v", err)
					}
				}
				r.Close()
			}
			saved, err := plan.ParseState(s.State(seed, reached).JSON())
			if err != nil {
				t.Fatal(err)
			}
			state = saved
		}
		for id := range rows {
			if seen[id] != 1 {
				t.Fatalf("seed %d (%s): row %d was taken %d times", seed, s.Mixing(), id, seen[id])
			}
		}
	}
}

// fits gives a full shuffle the memory that it needs.
func (c Config) fits(rows int64) Config {
	if c.Shuffle == Full {
		c.Memory = rows * 1000
	}
	return c
}

func TestEnds(t *testing.T) {
	dir := t.TempDir()
	rows := table(t, dir, 50, 130)
	s := mustOpen(t, Config{Source: []string{dir}, Fields: everything[:1], Seed: 1})
	for last, want := range map[plan.Last]struct{ steps, rows, padded int }{
		plan.Short: {4, 130, 0}, plan.Drop: {3, 120, 0}, plan.Pad: {4, 160, 30}, plan.Wrap: {4, 160, 0},
	} {
		steps, count, padded := 0, 0, 0
		seen, ends := map[int64]int{}, map[place]int{}
		for rank := range 3 {
			r := mustRead(t, s, Walk{0, 0, rank, 3, 40, last, nil})
			steps = 0
			for {
				b, err := next(t, r)
				if errors.Is(err, io.EOF) {
					ends[r.after]++
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				steps++
				for _, id := range ids(t, r, b)[:b.Rows-b.Padded] {
					seen[id]++
				}
				count, padded = count+b.Rows, padded+b.Padded
				b.Release()
			}
		}
		if end := map[bool]place{false: {0, rows}, true: {1, 30}}[last == plan.Wrap]; ends[end] != 3 {
			t.Errorf("%v: ranks end at %v, want %v", last, ends, end)
		}
		if steps != want.steps || count != want.rows || padded != want.padded {
			t.Errorf("%v: %d steps, %d rows, %d padded, want %v", last, steps, count, padded, want)
		}
		if last == plan.Short || last == plan.Pad {
			for id := range rows {
				if seen[id] != 1 {
					t.Errorf("%v: row %d was taken %d times", last, id, seen[id])
				}
			}
		}
	}
}

// TestHeld: batches that are held keep their rows, after the reader's end too, and who
// holds too many is told.
func TestHeld(t *testing.T) {
	dir := t.TempDir()
	table(t, dir, 1000, 4000)
	s := mustOpen(t, Config{Source: []string{dir}, Fields: everything, Nulls: map[string]any{"maybe": "mask"}, Shuffle: None})
	r := mustRead(t, s, Walk{0, 0, 0, 1, 20, plan.Short, nil})
	var held []*Batch
	for {
		b, err := next(t, r)
		if err != nil {
			break
		}
		held = append(held, b)
	}
	r.Close()
	if len(held) != 200 {
		t.Fatalf("%d batches", len(held))
	}
	for i, b := range held {
		if got := ids(t, r, b); got[0] != int64(i*20) || got[19] != int64(i*20+19) {
			t.Fatalf("batch %d has rows %v", i, got)
		}
		if n := b.slot.header()[hHeld]; n != int64(i+1) {
			t.Fatalf("batch %d says that %d are held", i, n)
		}
	}
	s.hold = 1 << 16
	r = mustRead(t, s, Walk{0, 0, 0, 1, 20, plan.Short, nil})
	if _, err := next(t, r); err == nil || !strings.Contains(err.Error(), "batches of") {
		t.Errorf("who holds too many is told: %v", err)
	}
	for _, b := range held {
		b.Release()
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	table(t, dir, 100, 300, 300)
	open := func(cfg Config) error {
		if cfg.Source == nil {
			cfg.Source = []string{dir}
		}
		s, err := Open(context.Background(), cfg)
		if err == nil {
			s.Close()
		}
		return err
	}
	for says, err := range map[string]error{
		`there is no column "c"; there are: id, a, b, text, maybe`: open(Config{Fields: []Want{{Name: "c", Columns: []string{"c"}}}}),
		"is made of column \"id\" (int64) and column \"a\"":        open(Config{Fields: []Want{{Name: "m", Columns: []string{"id", "a"}}}}),
		"only columns of numbers become a matrix":                  open(Config{Fields: []Want{{Name: "m", Columns: []string{"text", "text"}}}}),
		"which is not among the arrays":                            open(Config{Nulls: map[string]any{"c": "nan"}}),
		"has no such value":                                        open(Config{Nulls: map[string]any{"id": "nan"}}),
		"which is no int64":                                        open(Config{Nulls: map[string]any{"id": json.Number("1.5")}}),
		"there is no such file":                                    open(Config{Source: []string{dir + "/none"}}),
		"there is no Parquet file":                                 open(Config{Source: []string{t.TempDir()}}),
		"raise memory=":                                            open(Config{Shuffle: Full, Memory: 10}),
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	s := mustOpen(t, Config{Source: []string{dir}, Shuffle: None})
	name := filepath.Join(dir, "part-01.parquet")
	whole, _ := os.ReadFile(name)
	damaged := slices.Clone(whole)
	damaged[len(damaged)/3] ^= 16
	other := mustOpen(t, Config{Source: []string{dir + "/part-00.parquet"}})
	if err := other.Resume(s.State(0, 5)); err == nil || !strings.Contains(err.Error(), "it is of other data") {
		t.Errorf("%v", err)
	}
	for says, content := range map[string][]byte{"has changed since": whole[:len(whole)-1], "row group": damaged} {
		info, _ := os.Stat(name)
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
		if says == "row group" { // as damage on a disk does: size and time stay
			if err := os.Chtimes(name, info.ModTime(), info.ModTime()); err != nil {
				t.Fatal(err)
			}
			s = mustOpen(t, Config{Source: []string{dir}, Shuffle: None, Fields: []Want{
				{Name: "id", Columns: []string{"id"}},
				{Name: "a", Columns: []string{"a"}},
				{Name: "b", Columns: []string{"b"}},
				{Name: "text", Columns: []string{"text"}},
			}})
		}
		r := mustRead(t, s, Walk{0, 0, 0, 1, 100, plan.Short, nil})
		var err error
		for err == nil {
			var b *Batch
			if b, err = next(t, r); err == nil {
				b.Release()
			}
		}
		if !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "part-01.parquet") {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

func TestInspect(t *testing.T) {
	dir := t.TempDir()
	table(t, dir, 100, 250, 50)
	look, err := Inspect(context.Background(), []string{dir}, 1<<12, nil)
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	if err := look.Write(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"300 rows in 2 files, 4 row groups", "maybe  float64, may be null (snappy)", "text   string (snappy)", "% of the data are mixed at a time", "a second of the first row group"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is not in\n%s", want, &page)
		}
	}
	if !look.Checksums || strings.Contains(page.String(), "no checksums") {
		t.Error("the pages have checksums")
	}
}
