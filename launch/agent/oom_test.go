package agent

import (
	"os"
	"path/filepath"
	"testing"
)

// tree writes files under a root of their own.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestARecordCountsOnce(t *testing.T) {
	root := tree(t, map[string]string{"sys/fs/cgroup/memory.events": "oom_kill 2\n"})
	o := openOOM(root)
	if o.grew() {
		t.Error("an old record counts as new")
	}
	if err := os.WriteFile(o.file, []byte("oom_kill 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if !o.grew() || o.grew() {
		t.Error("a new record counts once")
	}
}
