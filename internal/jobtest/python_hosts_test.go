package jobtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hora/internal/hosttest"
)

// notebook is a program on the first host that runs functions on it and on another.
const notebook = `
import os
import beside  # lies on this host alone
import hora

os.environ.update(HOROVOD_FUSION_THRESHOLD="12345", NCCL_DEBUG="INFO", HORA_PEER_TIMEOUT="7")


class Stopped(Exception):
    pass


def look(factor, ballast=""):
    hora.init()
    print("no line's end", end="")
    seen = tuple(os.environ.get(k) for k in ("HOROVOD_FUSION_THRESHOLD", "NCCL_DEBUG", "HORA_PEER_TIMEOUT", "EXTRA"))
    places = hora.rank(), hora.size(), hora.local_rank(), hora.local_size(), hora.cross_rank(), hora.cross_size(), hora.host()
    return places, seen, hora.allreduce(beside.double(factor)), ballast


def fail(rank):
    hora.init()
    if hora.rank() == rank:
        raise Stopped(f"the worker's own on {hora.host()}")
    hora.barrier()


want = ("12345", "INFO", "7", "mine")
got = hora.run(look, args=(21,), np=3, hosts="a:1,b:2", env={"EXTRA": "mine"})
assert got == [
    ((0, 3, 0, 1, 0, 2, "a"), want, 126, ""),
    ((1, 3, 0, 2, 1, 2, "b"), want, 126, ""),
    ((2, 3, 1, 2, 0, 1, "b"), want, 126, ""),
], got
big = "x" * 5_000_000
got = hora.run(look, args=(21, big), np=2, hosts="b:2", env={"EXTRA": "mine"})  # nobody is here
assert got == [((r, 2, r, 2, 0, 1, "b"), want, 84, big) for r in range(2)], got
got = hora.run(look, args=(21, big), np=3, hosts="a:1,b:2", restarts=1, env={"EXTRA": "mine"})  # elastic, and nothing is shared
assert [(p[0], p[6], b == big) for p, _, _, b in got] == [(0, "a", True), (1, "b", True), (2, "b", True)], got
for hosts, rank, host in (("a:1,b:2", 0, "a"), ("a:1,b:2", 2, "b"), ("b:1", 0, "b")):
    try:
        hora.run(fail, args=(rank,), np=3 if "," in hosts else 1, hosts=hosts)
    except Stopped as e:
        assert str(e) == f"the worker's own on {host}", e
        cause = e.__cause__
        assert (cause.rank, cause.host) == (rank, host) and ", in fail\n" in str(cause), cause
    else:
        raise AssertionError("no exception")
print("all as it should be")
`

// TestRunFromANotebookOnHosts: results and exceptions of hora.run come back from other hosts, and what belongs to the
// call gets there.
func TestRunFromANotebookOnHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	python := filepath.Join(command(t, "sh", "tools/deps.sh", "path", "venv"), "bin", "python")
	pickler := command(t, python, "-c", "import cloudpickle, os; print(os.path.dirname(cloudpickle.__file__))")
	n := hosttest.Up(t, "a", "b")
	home := pythonOn(t, n, buildLibrary(t))
	for _, h := range n.Hosts {
		if err := os.CopyFS(filepath.Join(h.Home, "python", "cloudpickle"), os.DirFS(pickler)); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(t.TempDir(), "hora")
	command(t, "go", "build", "-o", program, "./cmd/hora")
	a := n.Hosts[0]
	a.Install(program, "hora")
	for name, text := range map[string]string{"notebook.py": notebook, "beside.py": "def double(x):\n    return 2 * x\n"} {
		// the package, below the notebook's folder, is not taken for the user's own
		if err := os.WriteFile(filepath.Join(a.Home, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := a.Output(time.Minute, "sh", "-c", "PATH="+home+":$PATH PYTHONPATH="+home+"/python python3 notebook.py")
	if code != 0 || !strings.HasSuffix(out, "all as it should be\n") || strings.Count(out, ">:no line's end\n") != 8 {
		t.Errorf("exit code %d\n%s\n%s", code, out, errs)
	}
}

// command runs a program to its end and returns what it prints.
func command(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
	return strings.TrimSpace(string(out))
}

// buildLibrary makes the Python package's two libraries of this tree, and returns where they lie.
func buildLibrary(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	command(t, "go", "build", "-buildmode=c-shared", "-o", filepath.Join(dir, "libhora.so"), "./cmd/libhora")
	command(t, "gcc", "-O2", "-fPIC", "-shared", "-I", "cmd/libhora", "-o", filepath.Join(dir, "_fast.abi3.so"), "python/hora/_fast.c")
	return dir
}

// folders puts the folders of the package that `import hora` needs into to.
func folders(t *testing.T, to string) {
	t.Helper()
	for _, name := range []string{"arrays", "gradients"} {
		if err := os.CopyFS(filepath.Join(to, name), os.DirFS(filepath.Join("python", "hora", name))); err != nil {
			t.Fatal(err)
		}
	}
}

// pythonOn puts the package into the folder python of every host's home, and returns where that home is on them.
func pythonOn(t *testing.T, n *hosttest.Net, library string) (home string) {
	t.Helper()
	for _, h := range n.Hosts {
		if code, _, _ := h.Output(20*time.Second, "python3", "-c", "import sys; sys.exit(sys.version_info < (3, 10))"); code != 0 {
			t.Skip("needs the system's python3, 3.10 or newer: hosts have homes of their own")
		}
		to := filepath.Join(h.Home, "python", "hora")
		sources, err := filepath.Glob("python/hora/*.py")
		if err == nil {
			err = os.MkdirAll(to, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		folders(t, to)
		for _, from := range append(sources, filepath.Join(library, "libhora.so"), filepath.Join(library, "_fast.abi3.so")) {
			home = strings.TrimSuffix(
				h.Install(from, filepath.Join("python", "hora", filepath.Base(from))),
				filepath.Join("/python/hora", filepath.Base(from)),
			)
		}
	}
	return home
}
