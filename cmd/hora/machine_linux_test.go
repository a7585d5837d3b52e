package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFreeMemory: what caches hold counts as free, and what a control group leaves is all
// there is.
func TestFreeMemory(t *testing.T) {
	const info = "MemTotal:       24681472 kB\nMemFree:         1000 kB\nMemAvailable:    2000 kB\n"
	const version1, version2 = "4:memory:/a/b\n0::/\n", "0::/a/b\n"
	for _, c := range []struct {
		what  string
		files map[string]string
		want  uint64
	}{
		{"nothing known", nil, 0},
		{"no group", map[string]string{"proc/meminfo": info}, 2000 << 10},
		{"a group without a limit", map[string]string{
			"proc/meminfo": info, "proc/self/cgroup": version2, "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.current": "5000\n",
		}, 2000 << 10},
		{"a group", map[string]string{
			"proc/meminfo": info, "proc/self/cgroup": version2, "sys/fs/cgroup/a/b/memory.max": "100000\n",
			"sys/fs/cgroup/a/b/memory.current": "40000\n", "sys/fs/cgroup/a/b/memory.stat": "anon 1\ninactive_file 10000\n",
		}, 70000},
		{"one above it", map[string]string{
			"proc/meminfo": info, "proc/self/cgroup": version2, "sys/fs/cgroup/a/b/memory.max": "100000\n", "sys/fs/cgroup/a/b/memory.current": "40000\n",
			"sys/fs/cgroup/a/memory.max": "50000\n", "sys/fs/cgroup/a/memory.current": "40000\n",
		}, 10000},
		{"version 1", map[string]string{
			"proc/meminfo": info, "proc/self/cgroup": version1, "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "100000\n",
			"sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": "40000\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 60000},
		{"a full group", map[string]string{
			"proc/meminfo": info, "proc/self/cgroup": version2, "sys/fs/cgroup/a/b/memory.max": "100000\n", "sys/fs/cgroup/a/b/memory.current": "100001\n",
		}, 10},
	} {
		root := t.TempDir()
		for name, text := range c.files {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := freeMemoryUnder(root); got != c.want/10*9 {
			t.Errorf("%s: %d bytes, want nine tenths of %d", c.what, got, c.want)
		}
	}
}
