package jobtest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hora/internal/hosttest"
)

// newer stands for a TensorFlow of today: names of version 1 are in compat.v1 alone.
const newer = `
import types
space = types.SimpleNamespace
names = dict.fromkeys(("make_one_shot_iterator", "make_initializable_iterator", "get_output_types", "get_output_shapes",
                       "get_output_classes"))
nn = types.ModuleType("tensorflow.nn")
data = space(Dataset=type("Dataset", (), {}))
compat = space(v1=space(ConfigProto="of version 1", layers=None, nn=space(), data=space(**names)))
`

const oldScript = `
import hora
import tensorflow as tf
hora.init()
print(hora.host(), "has", getattr(tf, "ConfigProto", "nothing"), flush=True)
`

// TestOldNamesReachOtherHosts: --legacy tf1 has each rank's TensorFlow complete, under hora run and horovodrun, on the
// launcher's host and on another.
func TestOldNamesReachOtherHosts(t *testing.T) {
	n := hosttest.Up(t, "a", "b")
	home := pythonOn(t, n, buildLibrary(t))
	for _, h := range n.Hosts {
		to := filepath.Join(h.Home, "python", "tensorflow")
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		for path, text := range map[string]string{filepath.Join(to, "__init__.py"): newer, filepath.Join(h.Home, "old.py"): oldScript} {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	program := filepath.Join(t.TempDir(), "hora")
	command(t, "go", "build", "-o", program, "./cmd/hora")
	a := n.Hosts[0]
	a.Install(program, "hora")
	a.Install(program, "horovodrun")
	for start, want := range map[string]string{
		"hora run --legacy tf1":   "of version 1",
		"horovodrun --legacy tf1": "of version 1",
		"hora run":                "nothing",
	} {
		line := "cd " + home + "; PATH=" + home + ":$PATH PYTHONPATH=" + home + "/python " + start + " -np 2 -H a:1,b:1 python3 " + home + "/old.py"
		code, out, errs := a.Output(time.Minute, "sh", "-c", line)
		if code != 0 || !strings.Contains(out, "a has "+want+"\n") || !strings.Contains(out, "b has "+want+"\n") {
			t.Errorf("%s: exit code %d\n%s\n%s", start, code, out, errs)
		}
	}
}
