package machine

import (
	"os"
	"path/filepath"
	"strings"
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

func TestControlGroupsUpToTheMount(t *testing.T) {
	files := map[string]string{
		"sys/fs/cgroup/a/b/x": "", "sys/fs/cgroup/memory/m/n/x": "", "sys/fs/cgroup/cpu/x": "",
	}
	for _, c := range []struct{ list, controller, want string }{
		{"0::/a/b\n", "memory", "/a/b /a /"},
		{"0::/a/hidden/b\n", "cpu", "/a /"},
		{"0::/../a\n", "cpu", "/a /"},
		{"", "cpu", "/"},
		{"0::/\n", "cpu", "/"},
		{"5:cpu,cpuacct:/far/away\n4:memory:/m/n\n0::/a/b\n", "memory", "/memory/m/n /memory/m /memory"},
		{"0::/a/b\n5:cpu,cpuacct:/far/away\n", "cpu", "/cpu"},
	} {
		files["proc/self/cgroup"] = c.list
		root := tree(t, files)
		var got []string
		for _, dir := range Cgroup(root, c.controller) {
			got = append(got, "/"+strings.TrimPrefix(strings.TrimPrefix(dir, root+"/sys/fs/cgroup"), "/"))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s of %q: %q, want %q", c.controller, c.list, got, c.want)
		}
	}
}
