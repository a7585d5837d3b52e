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

// TestWhomTheKernelNames: of two jobs in one control group the kernel ends a worker of one; a worker of the other that
// somebody kills then was not out of memory. Where it names nobody, or is not to be read, the counter alone counts.
func TestWhomTheKernelNames(t *testing.T) {
	const named = "3,17,9,-;Memory cgroup out of memory: Killed process 41 (python) total-vm:7kB, anon-rss:6kB\n CPU=1\n"
	for _, c := range []struct {
		what, space, log string
		pid              int
		child, want      bool
	}{
		{"the one that is named", firstNamespace, named, 41, false, true},
		{"another one", firstNamespace, named, 42, false, false},
		{"a machine without memory", firstNamespace, "3,1,9,-;Out of memory: Killed process 42 (python) total-vm:7kB\n", 42, false, true},
		{"a shell that tells of its child", firstNamespace, named, 42, true, true},
		{"nobody is named", firstNamespace, "6,1,9,-;eth0: link is up\n", 42, false, true},
		{"a container's numbers", "pid:[4026532000]", named, 42, false, true},
	} {
		root := tree(t, map[string]string{"sys/fs/cgroup/memory.events": "oom_kill 2\n", "dev/kmsg": "3,1,1,-;Out of memory: Killed process 42 (old)\n"})
		if err := os.MkdirAll(filepath.Join(root, "proc/self/ns"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(c.space, filepath.Join(root, "proc/self/ns/pid")); err != nil {
			t.Fatal(err)
		}
		o := openOOM(root)
		if o.ended(c.pid, c.child) {
			t.Errorf("%s: what was before it counts", c.what)
		}
		log, err := os.OpenFile(filepath.Join(root, "dev/kmsg"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.WriteString(c.log); err != nil {
			t.Fatal(err)
		}
		log.Close()
		if err := os.WriteFile(o.file, []byte("oom_kill 3\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := o.ended(c.pid, c.child); got != c.want {
			t.Errorf("%s: ended for want of memory: %t, and not %t", c.what, got, c.want)
		}
	}
}
