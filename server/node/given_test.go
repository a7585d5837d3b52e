package node

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestWhatWasGivenIsNoOutput: of outputs/ comes back what an attempt has made or changed, and all where nobody knows
// what was there before. What is no folder has none.
func TestWhatWasGivenIsNoOutput(t *testing.T) {
	l := &Local{Dir: t.TempDir()}
	dir := l.Folder(1, 1)
	outputs := filepath.Join(dir, WorkFolder, OutputsName)
	if err := os.MkdirAll(filepath.Join(outputs, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(outputs, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	look := func(want ...string) {
		t.Helper()
		if all, err := l.Outputs(1, 1); err != nil || !slices.Equal(all, want) {
			t.Errorf("there are %q, and should be %q: %v", all, want, err)
		}
	}
	write("left", "as it was")
	write("deep/changed", "old")
	if err := noteGiven(dir); err != nil {
		t.Fatal(err)
	}
	look()
	write("deep/changed", "newer")
	write("made", "new")
	look("deep/changed", "made")
	if err := os.WriteFile(filepath.Join(dir, givenFile), make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	look("deep/changed", "left", "made")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	look()
}
