package dataset

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOtherData: a state of other files names those that were added, removed, changed.
func TestOtherData(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	lookup := func(name string) string { return map[string]string{"HORA_DATA_CACHE": cache}[name] }
	table(t, dir, 10, 20, 30, 40)
	open := func(filter ...[]Condition) *Set {
		return mustOpen(t, Config{Source: []string{dir}, Fields: everything[:1], Lookup: lookup, Filter: filter})
	}
	s := open()
	state := s.State(0, 7)
	if got := s.otherData(state.Data); !strings.Contains(got, "no list of that time is in") {
		t.Error(got)
	}
	s.Remember()
	s.Remember()
	if err := os.Rename(filepath.Join(dir, "part-00.parquet"), filepath.Join(dir, "other.parquet")); err != nil {
		t.Fatal(err)
	}
	table(t, filepath.Join(dir), 10, 1) // part-00 is another one now
	if err := os.Remove(filepath.Join(dir, "part-02.parquet")); err != nil {
		t.Fatal(err)
	}
	now := open()
	const want = "1 added (other.parquet), 1 removed (part-02.parquet), 1 changed (part-00.parquet); open the files of that time"
	if err := now.Resume(state); err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	now.Remember()
	filtered := open([]Condition{{Column: "id", Op: "<", Value: json.Number("5")}})
	if err := filtered.Resume(now.State(0, 0)); err == nil || !strings.Contains(err.Error(), "another filter=") {
		t.Error(err)
	}
	list := filepath.Join(cache, "lists", state.Data)
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	for i := range text { // a damaged list is none
		text[i] ^= 4
		if err := os.WriteFile(list, text, 0o600); err != nil {
			t.Fatal(err)
		}
		text[i] ^= 4
		if got := now.otherData(state.Data); !strings.Contains(got, "is not known here") {
			t.Fatalf("byte %d: %s", i, got)
		}
	}
	for i := range listsKept + 5 {
		if err := os.WriteFile(filepath.Join(cache, "lists", strings.Repeat("x", i+1)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	filtered.Remember()
	if left, _ := os.ReadDir(filepath.Join(cache, "lists")); len(left) > listsKept+1 {
		t.Errorf("%d lists are left", len(left))
	}
}
