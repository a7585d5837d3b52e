package dataset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hora/dataset/plan"
)

func mixture(t testing.TB, cfg Config, rows int64, parts ...Part) *Mixed {
	t.Helper()
	m, err := OpenMix(context.Background(), cfg, parts, rows, "from")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// two writes two tables, of 500 and 130 rows.
func two(t testing.TB) []Part {
	t.Helper()
	dir := t.TempDir()
	for name, files := range map[string][]int{"a": {300, 7, 193}, "b": {130}} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		table(t, filepath.Join(dir, name), 41, files...)
	}
	return []Part{{"a", "0.7", []string{filepath.Join(dir, "a")}}, {"b", "0.3", []string{filepath.Join(dir, "b")}}}
}

// taken are the rows of a batch: member and id.
func taken(t testing.TB, r *Reader, b *Batch) [][2]int64 {
	t.Helper()
	all := ids(t, r, b)
	fields := r.Layout()
	at := fields[len(fields)-1]
	if at.Name != "from" || at.At%64 != 0 {
		t.Fatalf("%+v is no origin", at)
	}
	out := make([][2]int64, len(all))
	for i, from := range view[int32](b, at.At, b.Rows) {
		out[i] = [2]int64{int64(from), all[i]}
	}
	return out
}

// TestMixture: whatever ranks, batches and weights come, each step has what the weights
// say of each member, and of each member's epoch every row comes once.
func TestMixture(t *testing.T) {
	parts := two(t)
	sizes := []int64{500, 130}
	for seed := range uint64(9) {
		rng := rand.New(rand.NewPCG(seed, 4))
		cfg := Config{
			Fields: everything, Nulls: map[string]any{"maybe": "mask"}, Seed: seed,
			Shuffle: []Shuffle{Window, None}[seed%2], Memory: 40_000, Threads: 2,
		}
		m := mixture(t, cfg, 1700, slices.Clone(parts)...)
		state, err := m.State(seed, 0)
		if err != nil {
			t.Fatal(err)
		}
		drawn := [2][]int64{}
		started := [2]int64{}
		for i, member := range state.Members {
			started[i] = int64(member.Epoch)*sizes[i] + member.Position
		}
		for state.Epoch < seed+2 {
			size, batch, steps := 1+rng.IntN(4), int64(1+rng.IntN(300)), int64(1+rng.IntN(3))
			if rng.IntN(3) == 0 {
				weights := [][]string{{"1", "1"}, {"0", "1"}, {"2", "0.5"}}[rng.IntN(3)]
				if err := m.Weigh(weights, state.Epoch, state.Position); err != nil {
					t.Fatal(err)
				}
			}
			reached := min(1700, state.Position+steps*batch)
			for pos := state.Position; pos < reached; pos += batch {
				least, most := 1<<30, 0
				rows := [2][]int64{}
				for rank := range size {
					n := 0
					for _, row := range oneStep(
						t, m, Walk{Epoch: state.Epoch, Position: pos, Rank: rank, Size: size, Batch: batch}, 1700,
					) {
						rows[row[0]] = append(rows[row[0]], row[1])
						n++
					}
					least, most = min(least, n), max(most, n)
				}
				if most-least > 1 {
					t.Fatalf("ranks have %d to %d rows", least, most)
				}
				for i := range rows {
					drawn[i] = append(drawn[i], rows[i]...)
				}
			}
			saved, err := m.State(state.Epoch, reached)
			if err != nil {
				t.Fatal(err)
			}
			if state, err = plan.ParseMixState(saved.JSON()); err != nil {
				t.Fatal(err)
			}
			for i, member := range state.Members {
				if got := int64(len(drawn[i])) + started[i]; got != int64(member.Epoch)*sizes[i]+member.Position {
					t.Fatalf("seed %d: member %d has handed out %d rows and stands at %+v", seed, i, got, member)
				}
			}
			if rng.IntN(2) == 0 { // another process goes on
				again := mixture(t, cfg, 0, slices.Clone(parts)...)
				if err := again.Resume(state); err != nil {
					t.Fatal(err)
				}
				m = again
			}
			if state.Position == 1700 {
				state.Epoch, state.Position = state.Epoch+1, 0
			}
		}
		for i, size := range sizes {
			onceAnEpoch(t, drawn[i], started[i], size)
		}
	}
}

// onceAnEpoch: each row once in each whole epoch, and at most once in the ones that are cut.
func onceAnEpoch(t *testing.T, drawn []int64, began, size int64) {
	t.Helper()
	last := began + int64(len(drawn))
	least := max(0, last/size-(began+size-1)/size)
	most := (last+size-1)/size - began/size
	times := map[int64]int64{}
	for _, id := range drawn {
		times[id]++
	}
	for id := range size {
		if n := times[id]; n < least || n > most {
			t.Fatalf("row %d was taken %d times between the rows %d and %d of a member", id, n, began, last)
		}
	}
}

// oneStep is what a rank gets of the step that begins where a walk does.
func oneStep(t *testing.T, m *Mixed, w Walk, epoch int64) [][2]int64 {
	t.Helper()
	r := mustMix(t, m, w)
	defer r.Close()
	b, err := next(t, r)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	if b.Position != min(epoch, w.Position+w.Batch) {
		return nil // a rank without rows of this step has the next one's
	}
	return taken(t, r, b)
}

func mustMix(t testing.TB, m *Mixed, w Walk) *Reader {
	t.Helper()
	r, err := m.Read(w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// TestMixtureGoesOn: one reader over several epochs of a member hands out what readers
// that begin anew at each step do.
func TestMixtureGoesOn(t *testing.T) {
	m := mixture(t, Config{Fields: everything, Nulls: map[string]any{"maybe": "mask"}, Seed: 3, Memory: 20_000}, 2500, two(t)...)
	whole := mustMix(t, m, Walk{Size: 1, Batch: 333, Last: plan.Wrap})
	for pos := int64(0); pos < 2500; pos += 333 {
		b, err := next(t, whole)
		if err != nil {
			t.Fatal(err)
		}
		one := mustMix(t, m, Walk{Position: pos, Size: 1, Batch: 333, Last: plan.Wrap})
		again, err := next(t, one)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := taken(t, whole, b), taken(t, one, again); !slices.Equal(got, want) || len(got) != 333 {
			t.Fatalf("at %d: %v and %v", pos, got, want)
		}
		b.Release()
		again.Release()
		one.Close()
	}
	if b, err := next(t, whole); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v %v", b, err)
	}
	if times := whole.Times(); times.Decode <= 0 {
		t.Errorf("%+v", times)
	}
}

func TestMixtureFaults(t *testing.T) {
	parts := two(t)
	open := func(change func(*Config, []Part)) error {
		cfg, p := Config{Nulls: map[string]any{}}, slices.Clone(parts)
		change(&cfg, p)
		m, err := OpenMix(context.Background(), cfg, p, 0, "from")
		if err == nil {
			m.Close()
		}
		return err
	}
	for says, change := range map[string]func(*Config, []Part){
		`the weight "-1"; give a positive number`: func(_ *Config, p []Part) { p[0].Weight = "-1" },
		`the mixture's member "b": list`:          func(_ *Config, p []Part) { p[1].Source = []string{"none"} },
		`have an array of that name`:              func(c *Config, _ []Part) { c.Fields = []Want{{Name: "from", Columns: []string{"id"}}} },
	} {
		if err := open(change); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
	}
	m := mixture(t, Config{Fields: everything[:1]}, 0, parts...)
	if m.Rows() != 433 { // a third as many rows of b are all there are
		t.Errorf("an epoch has %d rows", m.Rows())
	}
	if err := m.Weigh([]string{"1", "2"}, 2, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Read(Walk{Epoch: 1, Size: 1, Batch: 1}); err == nil || !strings.Contains(err.Error(), "lies before row 966, at which its weights were changed") {
		t.Error(err)
	}
	if _, err := m.Read(Walk{Epoch: 3, Size: 1, Batch: 1, Last: plan.Pad}); err == nil ||
		!strings.Contains(err.Error(), `use last="short"`) {
		t.Error(err)
	}
	state, err := m.State(2, 120)
	if err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(*plan.MixState){
		"of a mixture of 1 members (a) and this one has 2": func(s *plan.MixState) { s.Members = s.Members[:1] },
		`its member 0 is "c" and here it is "a"`:           func(s *plan.MixState) { s.Members[0].Name = "c" },
		`member "b" of the mixture: go on from saved`:      func(s *plan.MixState) { s.Members[1].Data = s.Members[0].Data },
		"stands before where it began":                     func(s *plan.MixState) { s.Members[1].Epoch, s.Members[1].Position = 0, 0 },
	} {
		bad := *state
		bad.Members = slices.Clone(state.Members)
		change(&bad)
		if err := m.Resume(&bad); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
	}
	dir := t.TempDir()
	table(t, dir, 10, 20)
	cfg := Config{Fields: []Want{{Name: "x", Columns: []string{"id"}}}}
	if _, err := OpenMix(
		context.Background(), cfg, []Part{{"a", "1", []string{dir}}, {"b", "1", parts[1].Source}}, 0, "",
	); err != nil {
		t.Error(err)
	}
	if fmt.Sprint(m.List()[0].Rows, m.Files(), m.Blocks() > 10, len(m.Skipped())) != "41 4 true 0" {
		t.Error(m.List()[0], m.Files(), m.Blocks())
	}
}
