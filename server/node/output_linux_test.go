package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAFileThatIsNeverLeftAlone: a state that is saved twice a second never came back while its job ran, and was lost
// with its node.
func TestAFileThatIsNeverLeftAlone(t *testing.T) {
	dir := t.TempDir()
	box, err := openOutbox(dir)
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{dir: dir, box: box, seen: map[string]stamp{}, restless: map[string]time.Time{}}
	name := filepath.Join(dir, WorkFolder, OutputsName, "state")
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	told := func(want int, when string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, "outbox"))
		if err != nil && want > 0 {
			t.Fatal(err)
		}
		if n := strings.Count(string(b), `"state"`); n != want {
			t.Errorf("%s it is told of %d times, not %d:\n%s", when, n, want, b)
		}
	}
	write := func(text string, old time.Duration) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-old)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write("1", 0)
	k.outputs(false)
	write("two", 0)
	k.outputs(false)
	told(0, "written just now,")
	k.restless["state"] = time.Now().Add(-restlessFor(3) - time.Second)
	k.outputs(false)
	told(1, "written for six seconds,")
	write("three", 0)
	k.outputs(false)
	told(1, "and a moment later")
	write("four!!", 2*time.Second)
	k.outputs(false)
	told(2, "left alone,")
	if len(k.restless) > 0 {
		t.Errorf("it counts as restless still: %v", k.restless)
	}
	if small, large := restlessFor(1), restlessFor(1<<30); small != 5*time.Second || large < time.Minute {
		t.Errorf("a byte is waited for %v, a GiB %v", small, large)
	}
}
