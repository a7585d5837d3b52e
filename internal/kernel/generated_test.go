//go:build !race

package kernel

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// The checked-in vector code is what the generator writes.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	if testing.Short() || runtime.GOARCH != "amd64" {
		return // once is enough, and not under emulation
	}
	dir := t.TempDir()
	gen := exec.Command("go", "run", ".", dir)
	gen.Dir = "gen"
	gen.Env = append(os.Environ(), "GOWORK=off")
	if out, err := gen.CombinedOutput(); err != nil {
		t.Fatalf("generate: %v\n%s", err, out)
	}
	made, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(made) != 9 {
		t.Fatalf("generated %v, %v", made, err)
	}
	for _, path := range made {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Base(path))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what gen writes (%v): run `go run .` in internal/kernel/gen", filepath.Base(path), err)
		}
	}
}
