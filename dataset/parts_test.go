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
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"hora/dataset/plan"
)

// oneGroup writes one row group of so many rows, in pages of some hundred bytes: those of texts, numbers and what may
// be null begin with different rows.
func oneGroup(t testing.TB, dir string, rows int64) string {
	t.Helper()
	path := filepath.Join(dir, "large.parquet")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := parquet.NewGenericWriter[record](f, parquet.PageBufferSize(512), parquet.Compression(&parquet.Snappy))
	all := make([]record, 0, rows)
	for i := range rows {
		all = append(all, numbered(i))
	}
	if _, err := w.Write(all); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// drain reads the rest of an epoch in world and counts each row's id; what rows have is checked by ids.
func drain(
	t *testing.T, s *Set, state *plan.State, rows int64, size int, batch int64, steps int, seen map[int64]int,
) *plan.State {
	t.Helper()
	end := min(rows, state.Position+int64(steps)*batch)
	for rank := range size {
		r := mustRead(t, s, Walk{state.Epoch, state.Position, rank, size, batch, plan.Short, nil})
		for pos := state.Position; pos < end; pos += batch {
			if from, to := plan.Share(min(batch, rows-pos), rank, size); from == to {
				continue
			}
			b, err := next(t, r)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range ids(t, r, b) {
				seen[id]++
			}
			b.Release()
		}
		if end == rows {
			if _, err := next(t, r); !errors.Is(err, io.EOF) {
				t.Fatalf("at the end: %v", err)
			}
		}
		r.Close()
	}
	saved, err := plan.ParseState(s.State(state.Epoch, end).JSON())
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

// TestLargeRowGroupsAreCut: where the memory holds a few lanes of whole row groups, blocks are parts of them. Each row
// comes once and is what it was, also after a resume where the memory is another.
func TestLargeRowGroupsAreCut(t *testing.T) {
	dir := t.TempDir()
	const rows = 20_000
	oneGroup(t, dir, rows)
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 0))
		cfg := Config{
			Source: []string{dir}, Fields: everything, Nulls: map[string]any{"maybe": "mask"}, Seed: seed,
			Memory: 200_000, Threads: 1 + rng.IntN(2),
		}
		if seed%2 == 1 {
			cfg.Filter = [][]Condition{{{Column: "id", Op: ">=", Value: json.Number("4321")}}}
		}
		s := mustOpen(t, cfg)
		if s.rowsOfParts == 0 || s.lanes < 16 || s.Blocks() != 1 || !strings.Contains(s.Mixing(), "are read in parts of") {
			t.Fatalf("parts of %d rows, %d row groups, %s", s.rowsOfParts, s.Blocks(), s.Mixing())
		}
		seen := map[int64]int{}
		state := drain(t, s, s.State(seed, 0), s.Rows(), 1+rng.IntN(3), int64(50+rng.IntN(300)), 9, seen)
		cfg.Memory = 1 << 30
		other := mustOpen(t, cfg)
		if other.rowsOfParts != 0 {
			t.Fatalf("with room for all it is cut in parts of %d rows", other.rowsOfParts)
		}
		if err := other.Resume(state); err != nil {
			t.Fatal(err)
		}
		for state.Position < s.Rows() {
			state = drain(t, other, state, s.Rows(), 1+rng.IntN(3), int64(500+rng.IntN(3000)), 2, seen)
		}
		for id := range int64(rows) {
			want := 1
			if seed%2 == 1 && id < 4321 {
				want = 0
			}
			if seen[id] != want {
				t.Fatalf("seed %d: row %d was taken %d times", seed, id, seen[id])
			}
		}
	}
}

// TestWhatIsNotCut: files without offset indexes, an order that needs no parts, and what a state of old says.
func TestWhatIsNotCut(t *testing.T) {
	dir := t.TempDir()
	oneGroup(t, dir, 20_000)
	for _, c := range []struct {
		shuffle Shuffle
		memory  int64
	}{{None, 200_000}, {Window, 1 << 30}, {Full, 1 << 30}} {
		s := mustOpen(t, Config{
			Source: []string{dir}, Fields: everything, Nulls: map[string]any{"maybe": "mask"}, Shuffle: c.shuffle,
			Memory: c.memory,
		})
		if s.rowsOfParts != 0 || len(s.blocks) != 1 {
			t.Errorf("shuffle %d in %d bytes: parts of %d rows", c.shuffle, c.memory, s.rowsOfParts)
		}
	}
	s := mustOpen(t, Config{Source: []string{dir}, Fields: everything, Nulls: map[string]any{"maybe": "mask"}, Memory: 200_000})
	old := &plan.State{Version: plan.Version, Data: s.fingerprint, Lanes: 1, Window: 100}
	if err := s.Resume(old); err != nil {
		t.Fatal(err)
	}
	if len(s.blocks) != 1 || s.sizes[0] != 20_000 {
		t.Errorf("a state without parts leaves %d blocks, the first of %d rows", len(s.blocks), s.sizes[0])
	}
	old.Part = 1000
	if err := s.Resume(old); err != nil {
		t.Fatal(err)
	}
	if len(s.blocks) != 21 || s.sizes[0] != 0 || s.sizes[20] != 1000 {
		t.Errorf("a state with parts of 1000 rows leaves %d blocks with rows %v", len(s.blocks), s.sizes)
	}
}

// lists is a row with a list of three numbers, and lists of any length.
type lists struct {
	ID    int64     `parquet:"id"`
	Fixed []float32 `parquet:"fixed,list"`
	Any   []int32   `parquet:"any,list"`
	Words []string  `parquet:"words,list"`
}

func listedRow(i int64) lists {
	l := lists{ID: i, Fixed: []float32{float32(i), float32(i) + 0.25, float32(i) + 0.5}}
	for n := range i % 7 {
		l.Any = append(l.Any, int32(i*10+n))
	}
	for n := range i % 3 {
		l.Words = append(l.Words, fmt.Sprint("w", i, n))
	}
	return l
}

// TestPartsOfLists: lists in parts of a row group are those of the whole.
func TestPartsOfLists(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "lists.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	w := parquet.NewGenericWriter[lists](f, parquet.PageBufferSize(2<<10))
	const rows = 5000
	for i := range int64(rows) {
		if _, err := w.Write([]lists{listedRow(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Source: []string{dir}, Memory: 1 << 30, Shuffle: None, Fields: []Want{
		{Name: "id", Columns: []string{"id"}},
		{Name: "fixed", Columns: []string{"fixed"}},
		{Name: "any", Columns: []string{"any"}, Ragged: true},
		{Name: "words", Columns: []string{"words"}, Ragged: true},
	}}
	whole := mustOpen(t, cfg)
	cut := mustOpen(t, cfg)
	for _, part := range []int64{1, 97, 512, 4999} {
		cut.cut(part)
		if want := (rows + part - 1) / part; int64(len(cut.blocks)) != 1+want {
			t.Fatalf("parts of %d rows: %d blocks", part, len(cut.blocks))
		}
		walk := Walk{Size: 1, Batch: 300, Last: plan.Short}
		a, b := mustRead(t, whole, walk), mustRead(t, cut, walk)
		for {
			x, errX := next(t, a)
			y, errY := next(t, b)
			if errors.Is(errX, io.EOF) && errors.Is(errY, io.EOF) {
				break
			}
			if errX != nil || errY != nil {
				t.Fatal(errX, errY)
			}
			same(t, a, x, y)
			x.Release()
			y.Release()
		}
		a.Close()
		b.Close()
	}
}

// same compares two batches of one layout.
func same(t *testing.T, r *Reader, x, y *Batch) {
	t.Helper()
	if x.Rows != y.Rows {
		t.Fatalf("%d and %d rows", x.Rows, y.Rows)
	}
	for _, f := range r.Layout() {
		a, b := x.Memory()[f.At:f.At+f.Width*x.Rows], y.Memory()[f.At:f.At+f.Width*x.Rows]
		if f.Text >= 0 {
			n := 8 * (x.Rows + 1)
			a, b = x.Memory()[f.At:f.At+n], y.Memory()[f.At:f.At+n]
			end := view[int64](x, f.At, x.Rows+1)[x.Rows]
			atX, atY := view[int64](x, 0, f.Text+2)[f.Text], view[int64](y, 0, f.Text+2)[f.Text]
			if string(x.Memory()[atX:atX+end]) != string(y.Memory()[atY:atY+end]) {
				t.Fatalf("%s differs", f.Name)
			}
		}
		if string(a) != string(b) {
			t.Fatalf("%s differs", f.Name)
		}
	}
}

// TestADamagedOffsetIndex: each byte of it turned is an error that names it, or leaves what it says right; never other
// rows.
func TestADamagedOffsetIndex(t *testing.T) {
	dir := t.TempDir()
	path := oneGroup(t, dir, 3000)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, Config{Source: []string{dir}, Fields: everything, Nulls: map[string]any{"maybe": "mask"}, Shuffle: None})
	at, n := s.files[0].meta.Groups[0].Chunks[0].Indexed()
	if n == 0 {
		t.Fatal("the file has no offset index")
	}
	refused := 0
	for i := at; i < at+n; i++ {
		bad := append([]byte(nil), whole...)
		bad[i] ^= byte(1 + i%255)
		if err := os.WriteFile(path, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := Open(context.Background(), Config{
			Source: []string{dir}, Fields: everything, Nulls: map[string]any{"maybe": "mask"}, Shuffle: None,
		})
		if err != nil {
			t.Fatal(err)
		}
		s.cut(500)
		r := mustRead(t, s, Walk{Size: 1, Batch: 1000, Last: plan.Short})
		for rows := 0; ; {
			b, err := next(t, r)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				if !strings.Contains(err.Error(), `column "`) {
					t.Errorf("byte %d: %v", i, err)
				}
				refused++
				break
			}
			for k, id := range ids(t, r, b) {
				if id != int64(rows+k) {
					t.Fatalf("byte %d: row %d is %d, and nobody says so", i, rows+k, id)
				}
			}
			rows += b.Rows
			b.Release()
		}
		r.Close()
		s.Close()
	}
	if refused == 0 {
		t.Error("no turned byte was noticed")
	}
}
