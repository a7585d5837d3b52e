package launch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"hora/launch/machine"
	"hora/launch/protocol"
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

// A worker that ends as the kernel's record of such ends grows was out of memory, wherever that record is kept.
func TestAWorkerThatTheKernelEndsForWantOfMemory(t *testing.T) {
	const events = "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n"
	const end = `kill -9 $$`
	for _, c := range []struct {
		name   string
		files  map[string]string
		record string // the file that grows
		end    string
		kind   Kind
	}{
		{"group", map[string]string{"proc/self/cgroup": "0::/slurm/job7\n", "sys/fs/cgroup/slurm/job7/memory.events": events}, "sys/fs/cgroup/slurm/job7/memory.events", end, OutOfMemory},
		{"first version", map[string]string{"proc/self/cgroup": "4:cpu,cpuacct:/c\n3:memory:/m\n0::/\n", "sys/fs/cgroup/memory/m/memory.oom_control": "under_oom 0\noom_kill 2\n"}, "sys/fs/cgroup/memory/m/memory.oom_control", end, OutOfMemory},
		{"container", map[string]string{"proc/self/cgroup": "0::/kubepods/pod1/c2\n", "sys/fs/cgroup/memory.events": events}, "sys/fs/cgroup/memory.events", end, OutOfMemory},
		{"machine", map[string]string{"proc/self/cgroup": "0::/\n", "proc/vmstat": "nr_free_pages 5\noom_kill 2\n"}, "proc/vmstat", end, OutOfMemory},
		{"child of a shell", map[string]string{"sys/fs/cgroup/memory.events": events}, "sys/fs/cgroup/memory.events", `exit 137`, OutOfMemory},
		{"old record", map[string]string{"sys/fs/cgroup/memory.events": events}, "other", end, Killed},
		{"other end", map[string]string{"sys/fs/cgroup/memory.events": events}, "sys/fs/cgroup/memory.events", `exit 3`, Failed},
		{"no record", nil, "other", end, Killed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, c.files)
			spec := testSpec(nil)
			spec.Environ = append(spec.Environ, "HORA_TEST_ROOT="+root, "RECORD="+filepath.Join(root, c.record))
			o, _, _ := script(t, spec, `[ $RANK = 0 ] && exec sleep 1000; echo "MemoryError: 3 GiB" >&2; printf 'oom 2\noom_kill 3\n' >"$RECORD"; `+c.end)
			if o.Kind != c.kind || o.Rank != 1 {
				t.Fatalf("outcome %v %q", o.Kind, o.String())
			}
			const want = "rank 1 on here: killed by the kernel: out of memory (take smaller batches, or fewer ranks on that host): MemoryError: 3 GiB"
			if c.kind == OutOfMemory && (o.String() != want ||
				o.ExitCode() != protocol.ExitSignal+int(syscall.SIGKILL)) {
				t.Errorf("%q, exit code %d", o.String(), o.ExitCode())
			}
		})
	}
}

// group makes a control group that may use so many bytes, and returns its directory.
func group(t *testing.T, limit string) string {
	t.Helper()
	var why error
	for _, above := range machine.Cgroup("", "memory") {
		dir := filepath.Join(above, "hora-test-"+strconv.Itoa(os.Getpid()))
		if why = os.Mkdir(dir, 0o755); why != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(dir) })
		for _, name := range []string{"memory.limit_in_bytes", "memory.max"} {
			if why = os.WriteFile(filepath.Join(dir, name), []byte(limit), 0o644); why == nil {
				return dir
			}
		}
	}
	t.Skipf("needs a control group of memory: %v", why)
	return ""
}

// The same with a worker that takes more memory than its group has, and a kernel that ends it.
func TestAWorkerThatTakesTooMuchMemory(t *testing.T) {
	dir := group(t, "209715200")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	cmd := exec.Command("sh", "-ec", `echo $$ >"$0/cgroup.procs"; exec "$@"`, dir, self, "__launch", "-np=2",
		"sh", "-c", `[ $RANK = 0 ] && exec sleep 1000; exec tail /dev/zero`)
	out, err := cmd.CombinedOutput()
	if want := "rank 1 on " + host + ": killed by the kernel: out of memory ("; cmd.ProcessState.ExitCode() != 137 || !strings.Contains(string(out), want) {
		t.Errorf("%v: %q, want %q", err, out, want)
	}
}
