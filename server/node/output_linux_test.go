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
	k := &keeper{dir: dir, box: box, seen: map[string]stamp{}, restless: map[string]restless{}}
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
	for has := range k.restless {
		k.restless[has] = restless{time.Now().Add(-6 * time.Second), 0}
	}
	k.outputs(false)
	told(1, "written for six seconds,")
	k.outputs(false) // it is as it was sent, and young
	write("three", 0)
	k.outputs(false)
	told(1, "and a moment later")
	k.restless["state"] = restless{time.Now().Add(-6 * time.Second), k.restless["state"].sent}
	k.outputs(false)
	told(1, "six seconds after that, since it is waited for twice as long,")
	write("four!!", 2*time.Second)
	k.outputs(false)
	told(2, "left alone,")
	if len(k.restless) > 0 {
		t.Errorf("it counts as restless still: %v", k.restless)
	}
	write("half", 0)
	k.outputs(false)
	if err := os.Remove(name); err != nil { // as where it is written beside and renamed
		t.Fatal(err)
	}
	k.outputs(false)
	write("half again", 0)
	k.outputs(false)
	if since := k.restless["state"].since; time.Since(since) > time.Second {
		t.Errorf("another file of that name counts from the first one on: %v", since)
	}
	told(2, "written anew just now,")
	small, large, often := restless{}.wait(1), restless{}.wait(1<<30), restless{sent: 99}.wait(1<<40)
	if small != 5*time.Second || large < time.Minute || often != restlessMost {
		t.Errorf("a byte is waited for %v, a GiB %v, and at most %v", small, large, often)
	}
}
