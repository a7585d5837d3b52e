package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestClaim: a device is one worker's until that has ended, who needs several gets all of them or waits, and one that
// is dealt no more stays where it is.
func TestClaim(t *testing.T) {
	dir := t.TempDir()
	for name, place := range map[string]string{"GPU-a%2F1": "1", "7": "0", "3": "2", "old": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(place), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	take := func(n int, want ...string) []*os.File {
		t.Helper()
		ids, locks, err := claim(dir, n)
		if err != nil || !slices.Equal(ids, want) || len(locks) != len(want) {
			t.Fatalf("%d devices: %q with %d locks, %v; not %q", n, ids, len(locks), err, want)
		}
		return locks
	}
	first := take(1, "7")
	second := take(1, "GPU-a/1")
	take(2)
	third := take(1, "3")
	take(1)
	release(second)
	take(2)
	release(first)
	release(take(2, "7", "GPU-a/1"))
	release(third)
	take(4)
	take(3, "7", "GPU-a/1", "3")
}
