package doctor

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// pythonNames are the interpreters that are looked for, the one that scripts usually get first.
var pythonNames = []string{"python3", "python", "python3.10", "python3.11", "python3.12", "python3.13", "python3.14", "python3.15"}

// packages are those whose versions are told.
const packages = "hora hora-compat torch tensorflow keras jax numpy horovod"

// pythonProbe prints what the interpreter would train with, without importing it.
const pythonProbe = `
import glob, os, sys, importlib.metadata as m
print("python", sys.version.split()[0], sys.executable)
print("place", os.path.realpath(sys.executable), sys.prefix)
for n in "` + packages + `".split():
    try:
        print(n, m.version(n))
    except m.PackageNotFoundError:
        pass
for d in sys.path:
    for f in sorted(glob.glob(os.path.join(glob.escape(d), "nvidia", "nccl", "lib", "libnccl.so*"))):
        print("nccl", f)
`

// python is one interpreter.
type python struct {
	name     string            // as it is called
	place    string            // the same for other names of it
	said     []string          // its version and place, then those of packages
	versions map[string]string // of packages
	nccl     []string          // its packages' files of NVIDIA's collective library
}

// pythons are all interpreters.
func (m *Machine) pythons(ctx context.Context) []python {
	m.ask.Do(func() { m.found = m.probe(ctx, pythonNames) })
	return m.found
}

// probe asks interpreters, all at once; one that has several names counts once.
func (m *Machine) probe(ctx context.Context, names []string) []python {
	all := make([]python, len(names))
	var asked sync.WaitGroup
	for i, name := range names {
		asked.Go(func() {
			if text, err := m.Command(ctx, name, "-c", pythonProbe); err == nil {
				all[i] = readPython(name, text)
			}
		})
	}
	asked.Wait()
	var found []python
	for _, p := range all {
		if len(p.said) > 0 && !slices.ContainsFunc(found, func(o python) bool { return o.place == p.place }) {
			found = append(found, p)
		}
	}
	return found
}

func readPython(name, text string) python {
	p := python{name: name, versions: map[string]string{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		what, value, _ := strings.Cut(line, " ")
		switch {
		case what == "nccl":
			if !slices.Contains(p.nccl, value) {
				p.nccl = append(p.nccl, value)
			}
		case what == "place":
			p.place = value
		case what == "python" && len(p.said) == 0, len(p.said) > 0 && slices.Contains(strings.Fields(packages), what):
			p.versions[what] = value
			p.said = append(p.said, line)
		}
	}
	if p.place == "" && len(p.said) > 0 {
		p.place = p.said[0]
	}
	return p
}

func (m *Machine) checkPython(ctx context.Context) []Finding {
	found := m.pythons(ctx)
	if len(found) == 0 {
		return []Finding{note("install Python 3.10 or newer; Go programs need none", "python3 was not found or does not start")}
	}
	var all []Finding
	for _, p := range found {
		all = append(all, good("%s", strings.Join(p.said, ", "))...)
		if p.versions["hora"] == "" && (p.name == "python3" || p.name == "python") {
			all = append(all, note(p.name+" -m pip install --no-index --find-links dist hora (dist: the folder with this version's wheel, from make wheel)", "package hora is not installed for this %s", p.name))
		}
		if p.versions["horovod"] != "" && p.versions["hora-compat"] != "" {
			all = append(all, problem(p.name+" -m pip uninstall -y horovod; "+p.name+" -m pip install --force-reinstall --no-deps --no-index --find-links dist hora-compat",
				"horovod %s is installed over hora-compat: import horovod may load either", p.versions["horovod"]))
		}
	}
	return all
}
