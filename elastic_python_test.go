package hora_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"hora/elastic"
	"hora/internal/hosttest"
)

// TestSoakOfPythonWorkersOverHosts is TestSoakOverHosts with workers written in Python: what
// @hora.elastic.run makes of kills, stops, cuts, drains and joins.
func TestSoakOfPythonWorkersOverHosts(t *testing.T) {
	events := 5
	switch {
	case *soakEvents > 0:
		events = *soakEvents
	case os.Getenv("HORA_SOAK") == "1":
		events = 100
	case testing.Short():
		t.Skip("takes long")
	}
	library := buildLibrary(t)
	for _, policy := range []elastic.Policy{elastic.Replace, elastic.Continue} {
		t.Run(policy.String(), func(t *testing.T) {
			n := hosttest.Up(t, "a", "b", "c")
			home := pythonOn(t, n, library)
			soakOn(t, n, policy, events, workers{
				command: []string{"python3", "worker.py"}, course: pythonCourse, env: []string{"PYTHONPATH=" + home + "/python"},
			})
		})
	}
}

// buildLibrary makes the Python package's two libraries of this tree, and returns where they lie.
func buildLibrary(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, argv := range [][]string{
		{"go", "build", "-buildmode=c-shared", "-o", filepath.Join(dir, "libhora.so"), "./cmd/libhora"},
		{"gcc", "-O2", "-fPIC", "-shared", "-I", "cmd/libhora", "-o", filepath.Join(dir, "_fast.abi3.so"), "python/hora/_fast.c"},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	return dir
}

// pythonOn puts the package and the worker into every host's home, and returns where that is on them.
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
		for _, from := range append(sources, filepath.Join(library, "libhora.so"), filepath.Join(library, "_fast.abi3.so")) {
			h.Install(from, filepath.Join("python", "hora", filepath.Base(from)))
		}
		home = filepath.Dir(h.Install("python/tests/soak_worker.py", "worker.py"))
	}
	return home
}

// pythonCourse is the digest before every step of python/tests/soak_worker.py that one process does alone.
func pythonCourse(steps int) []string {
	params := make([]int, 1000)
	for i := range params {
		params[i] = i % 17
	}
	var all []string
	for step := range steps + 1 {
		var b []byte
		for i, p := range params {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(p)))
			params[i] = (p + (p*31+step*17+i)%1009) % 65521
		}
		sum := sha256.Sum256(b)
		all = append(all, hex.EncodeToString(sum[:8]))
	}
	return all
}
