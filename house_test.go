package hora_test

import (
	"go/ast"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What the house promises in words: pages that are short, links that lead somewhere, a map
// that has every package.

var (
	mdLink     = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
	tourStop   = regexp.MustCompile(`(?m)^[1-9]\. \[([^]]+)\]`)
	makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	mapRow     = regexp.MustCompile("(?m)^\\| (`[^|]*) \\|")
	quoted     = regexp.MustCompile("`([^`]+)`")
)

func page(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLinksLeadSomewhere(t *testing.T) {
	links := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "dist" || d.Name() == "node_modules" ||
				strings.HasSuffix(d.Name(), ".egg-info")) {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		for _, m := range mdLink.FindAllStringSubmatch(page(t, path), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if links < 20 {
		t.Errorf("found %d links: the search is broken", links)
	}
}

func TestTourArchitectureAndMakefile(t *testing.T) {
	if stops := tourStop.FindAllString(page(t, "README.md"), -1); len(stops) != 6 {
		t.Errorf("README's tour has %d files, not six: %q", len(stops), stops)
	}
	architecture := page(t, "ARCHITECTURE.md")
	if n := strings.Count(architecture, "\n"); n > 200 {
		t.Errorf("ARCHITECTURE.md has %d lines, at most 200", n)
	}
	mapped := map[string]bool{}
	for _, row := range mapRow.FindAllStringSubmatch(architecture, -1) {
		at := ""
		for i, name := range quoted.FindAllStringSubmatch(row[1], -1) {
			if i == 0 {
				at = filepath.Dir(name[1])
			}
			mapped[name[1]], mapped[at+"/"+name[1]] = true, true // "`transport/shm`, `tcp`, `mem`"
		}
	}
	mapped["."], mapped["elastic/rendezvous"] = mapped["hora"], strings.Contains(architecture, "`elastic/rendezvous`")
	for dir := range packages {
		if !mapped[dir] {
			t.Errorf("ARCHITECTURE.md's map has no row for %s", dir)
		}
	}
	if targets := makeTarget.FindAllString(page(t, "Makefile"), -1); len(targets) == 0 || len(targets) > 16 {
		t.Errorf("the Makefile has %d targets, at most 16: %q", len(targets), targets)
	}
	if run := page(t, ".ci/run"); !strings.Contains(page(t, "README.md"), "\nmake test\n") || !strings.Contains(run, "make --no-print-directory test") {
		t.Errorf(".ci/run does not run README's test command:\n%s", run)
	}
}

// TestSkipsAreListed finds what tests print when they are left out in docs/skips.md. A text
// with a verb counts up to it. (Benchmarks may skip for any reason: no suite runs them.)
func TestSkipsAreListed(t *testing.T) {
	var rows []string
	for _, line := range strings.Split(page(t, "docs/skips.md"), "\n") {
		if m := quoted.FindStringSubmatch(line); m != nil && strings.HasPrefix(line, "| `") {
			rows = append(rows, m[1])
		}
	}
	found := 0
	for _, f := range goFiles(t) {
		ast.Inspect(f.tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || method.Sel.Name != "Skip" && method.Sel.Name != "Skipf" {
				return true
			}
			text, ok := call.Args[0].(*ast.BasicLit)
			if who, is := method.X.(*ast.Ident); !ok || !is || who.Name == "b" {
				return true
			}
			words, err := strconv.Unquote(text.Value)
			if err != nil {
				t.Fatal(err)
			}
			found++
			words, _, open := strings.Cut(words, "%")
			if !slices.ContainsFunc(rows, func(row string) bool {
				return strings.Contains(words, row) || open && strings.HasPrefix(row, words)
			}) {
				t.Errorf("%s: a test is skipped with %q, which docs/skips.md does not list", f.fset.Position(text.Pos()), words)
			}
			return true
		})
	}
	if found < 20 {
		t.Errorf("found %d skips: the search is broken", found)
	}
}

// TestTheNameOnTheIndexIsNotOurs holds that no page, message or docstring sends anybody to a public index for hora.
func TestTheNameOnTheIndexIsNotOurs(t *testing.T) {
	install := regexp.MustCompile("pip[\"',]* +[\"']?install[^\n#`]*\\bhora(-compat)?\\b[^\n]*") // what a comment says is no name
	looked := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "dist" || d.Name() == "tests" || d.Name() == "results") {
				return fs.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(path); ext != ".md" && ext != ".py" && ext != ".go" || path == "house_test.go" {
			return nil
		}
		looked++
		for _, line := range install.FindAllString(page(t, path), -1) {
			if !strings.Contains(line, "--find-links") && !strings.Contains(line, ".whl") {
				t.Errorf("%s: %q: name the wheel's file, or --no-index --find-links dist: the name on the index is not ours", path, line)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if looked < 100 {
		t.Errorf("looked at %d files: the search is broken", looked)
	}
}

// frameworks has, for each row of README's table, how the row of the page with the releases begins, and the pages that
// have the names of both.
var frameworks = []struct {
	row, release string
	pages        []string
}{
	{"PyTorch", "PyTorch [0-9]", []string{"python.md", "horovod.md"}},
	{"JAX", "JAX [0-9]", []string{"python.md"}},
	{"TensorFlow", "TensorFlow [0-9]", []string{"python.md", "horovod.md", "environment.md"}},
	{"Keras", "Keras [0-9]", []string{"python.md", "horovod.md", "spark.md"}},
	{"MXNet", "MXNet [0-9]", []string{"horovod.md"}},
	{"NumPy", "NumPy [0-9]", []string{"python.md"}},
	{"Go", "Go [0-9]", []string{"go.md"}},
	{"Parquet data", "Parquet,", []string{"data.md"}},
	{"Petastorm", "Petastorm [0-9]", []string{"petastorm.md"}},
	{"Spark", "pyspark [0-9]", []string{"spark.md"}},
	{"Azure ML", "Azure ML", []string{"azureml.md"}},
	{"A queue", "A queue", []string{"server.md"}},
}

// TestTheTableOfFrameworks holds README's table to the page with the releases: what is missing somewhere is said there,
// and makes the row a part; and both to the pages of each.
func TestTheTableOfFrameworks(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \| (works|partly|not yet)(.*) \|$`).FindAllStringSubmatch(page(t, "README.md"), -1)
	if len(rows) != len(frameworks) {
		t.Fatalf("README's table of frameworks has %d rows, and the test %d: %q", len(rows), len(frameworks), rows)
	}
	releases := page(t, "docs/compatibility.md")
	for _, f := range frameworks {
		at := slices.IndexFunc(rows, func(r []string) bool { return strings.HasPrefix(r[1], f.row) })
		release := regexp.MustCompile(`(?m)^\| ` + f.release + `.*$`).FindString(releases)
		if at < 0 || release == "" {
			t.Errorf("%s: README has no row for it, or docs/compatibility.md none that begins with %q", f.row, f.release)
			continue
		}
		lacks := regexp.MustCompile(`Not (yet|there):`).MatchString(release)
		if want := map[bool]string{true: "partly", false: "works"}[lacks]; rows[at][2] != want {
			t.Errorf("README says that %s %s; by docs/compatibility.md it is %q: %s", f.row, rows[at][2], want, release)
		}
		text := ""
		for _, name := range f.pages {
			text += page(t, "docs/"+name)
		}
		for _, m := range quoted.FindAllStringSubmatch(rows[at][0]+release, -1) {
			if name := m[1]; !strings.HasPrefix(name, "make ") && !strings.Contains(text, name) {
				t.Errorf("%s: README or docs/compatibility.md has %q, of which %v say nothing", f.row, name, f.pages)
			}
		}
	}
	wheelsReleases(t, releases)
	one := strings.Contains(page(t, "docs/server.md"), "An elastic job stays on one node.")
	if said := strings.Contains(page(t, "README.md"), "not yet elastic jobs on several nodes"); said != one {
		t.Errorf("README says %v, and docs/server.md %v, that an elastic job stays on one node", said, one)
	}
}

// TestWhatNoHardwareHasSeen: while docs/gpu.md says that nothing was verified on hardware, so do the rows that offer
// it, and no longer.
func TestWhatNoHardwareHasSeen(t *testing.T) {
	const said = "not yet verified on hardware"
	open := strings.Contains(page(t, "docs/gpu.md"), "**on hardware: nothing yet.**")
	for _, at := range []struct{ page, line string }{
		{"README.md", `(?m)^\| PyTorch \| .*$`},
		{"docs/compatibility.md", `(?m)^\| PyTorch [0-9.]+ \| in .make test.*$`},
		{"docs/compatibility.md", `(?m)^Accelerators: .*$`},
	} {
		line := regexp.MustCompile(at.line).FindString(page(t, at.page))
		if line == "" || !strings.Contains(line, "gpu.md") || strings.Contains(line, said) != open {
			t.Errorf("%s: %q; that GPUs are %s is %v by docs/gpu.md", at.page, line, said, open)
		}
	}
}

// wheelsReleases holds the releases that README promises for one wheel to the page with them, and to what refuses
// others.
func wheelsReleases(t *testing.T, releases string) {
	t.Helper()
	wheel := regexp.MustCompile(`The same wheel works with ([^;(]+), installed`).FindStringSubmatch(page(t, "README.md"))
	if wheel == nil {
		t.Fatal("README does not say which releases a wheel works with")
	}
	refused := map[string]string{ // the sentence or check that keeps older releases out
		"PyTorch":    "python/hora/torch/__init__.py",
		"TensorFlow": "python/hora/tensorflow/__init__.py",
		"JAX":        "python/hora/jax/_xla.py",
	}
	for _, part := range strings.Split(wheel[1], ", ") {
		name, oldest, _ := strings.Cut(part, " from ")
		if !regexp.MustCompile(`(?m)^\| ` + name + ` ` + regexp.QuoteMeta(oldest) + `(\.0)? to `).MatchString(releases) {
			t.Errorf("README has %s from %s on, which is not where docs/compatibility.md begins", name, oldest)
		}
		pair := `\(` + strings.ReplaceAll(oldest, ".", ", ") + `[,)]`
		if !regexp.MustCompile(pair).MatchString(page(t, refused[name])) {
			t.Errorf("README has %s from %s on; %s refuses others", name, oldest, refused[name])
		}
		delete(refused, name)
	}
	if len(refused) > 0 {
		t.Errorf("README does not say from which release on a wheel works with the frameworks of %v", refused)
	}
}

// TestNoProgramIsKept: what go build leaves beside the sources is not theirs.
func TestNoProgramIsKept(t *testing.T) {
	all, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Split(strings.TrimRight(string(all), "\x00"), "\x00")
	if len(names) < 1000 {
		t.Fatalf("git names %d files", len(names))
	}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			continue // removed, and not committed yet
		}
		begin := make([]byte, 4)
		n, _ := f.Read(begin)
		if f.Close(); string(begin[:n]) == "\x7fELF" {
			t.Errorf("%s is a program: git rm --cached %s", name, name)
		}
	}
}
