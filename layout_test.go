package hora_test

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The house rules that a machine can hold. ARCHITECTURE.md tells the reasons; a new
// package or edge is one commit that changes this table and says why.

// packages maps each package (its folder, "." for the root) to the packages of ours
// that it may import. "any" lifts the restriction, "std" in the third column keeps
// everything but the standard library and golang.org/x/sys out.
var packages = map[string]struct {
	mayImport  string
	thirdParty string // space-separated module prefixes, "std" for none
}{
	"tensor":              {"", "std"},
	"event":               {"", "std"},
	"internal/kernel":     {"tensor", "std"},
	"internal/wire":       {"tensor", "std"},
	"internal/secret":     {"internal/wire", "std"},
	"transport":           {"", "std"},
	"transport/mem":       {"transport internal/wire internal/secret", "std"},
	"transport/shm":       {"transport internal/wire internal/secret", "std"},
	"transport/tcp":       {"transport internal/wire internal/secret", "std"},
	"collective":          {"tensor internal/kernel transport", "std"},
	"engine":              {"tensor internal/kernel collective transport internal/wire event", "std"},
	"internal/bridge":     {"engine", "std"}, // what libhora has of a group and no Go program's page shows
	"elastic":             {"event", "std"},
	"elastic/rendezvous":  {"elastic internal/wire internal/secret event", "std"},
	".":                   {"tensor engine collective transport transport/mem transport/shm transport/tcp elastic elastic/rendezvous internal/bridge internal/wire internal/secret event timeline", "std"},
	"device":              {"tensor", "std"},
	"timeline":            {"event", "std"},
	"job":                 {"event", "go.yaml.in/yaml"},
	"demo":                {". launch elastic event tensor demo/digits job", "gonum.org/v1/gonum"},
	"demo/digits":         {"", "std"},
	"observe":             {"event", "std"},
	"probe":               {". tensor event", "std"},
	"job/schedule":        {"", "std"},
	"doctor":              {". launch launch/machine event tensor probe", ""},
	"bench":               {". launch event tensor", ""},
	"storage":             {"storage/credentials", ""},
	"storage/credentials": {"", "std"},
	"dataset":             {"storage dataset/plan dataset/parquet dataset/source", ""},
	"dataset/plan":        {"", "std"},
	"dataset/parquet":     {"", "github.com/klauspost/compress github.com/andybalholm/brotli github.com/pierrec/lz4"},
	"dataset/source":      {"storage dataset/parquet", "github.com/klauspost/compress"},
	"server":              {"event job job/schedule server/backend server/client server/environment server/snapshot server/store server/web storage/credentials", "github.com/danielgtaylor/huma/v2"},
	"server/backend":      {"job/schedule server/client server/snapshot", "std"},
	"server/client":       {"job", "std"},
	"server/environment":  {"server/client", "go.yaml.in/yaml"},
	"server/fleet":        {"job/schedule server/backend server/client server/node", "std"},
	"server/node":         {"job job/schedule launch/environ server/backend server/client server/environment server/snapshot storage/credentials", "std"},
	"server/snapshot":     {"", "std"},
	"server/store":        {"job server/client storage", "modernc.org/sqlite filippo.io/age github.com/klauspost/compress"},
	"server/web":          {"job server/client", "std"},
	"cmd/horad":           {"any", ""},
	"cmd/hora":            {"any", ""},
	"cmd/console":         {"job", "github.com/spf13/cobra github.com/spf13/pflag"}, // what the command lines of both say
	"cmd/libhora":         {". internal/bridge tensor device timeline event dataset dataset/plan", "std"},
	"internal/simtest":    {"any", "std"},
	"internal/hosttest":   {"", "std"},
	"internal/jobtest":    {"", "std"}, // its tests may import any, as all tests

	// A job knows its hosts by launch/reach alone; launch/named, which knows them by name, is only what it takes where
	// a Spec names no other. An agent knows the launcher by launch/protocol alone, whatever way leads there.
	"launch":          {"elastic elastic/rendezvous internal/wire internal/secret event launch/protocol launch/machine launch/environ launch/logs launch/reach launch/named launch/local launch/ssh job", ""},
	"launch/machine":  {"", "std"},
	"launch/environ":  {"", "std"},
	"launch/logs":     {"", "std"},
	"launch/protocol": {"internal/wire launch/machine", "std"},
	"launch/agent":    {"elastic/rendezvous internal/wire internal/secret launch/protocol launch/machine launch/environ launch/logs", "std"},
	"launch/reach":    {"internal/secret launch/protocol launch/machine", "std"},
	"launch/local":    {"internal/secret internal/wire launch/agent launch/environ launch/machine launch/protocol launch/reach", "std"},
	"launch/ssh":      {"event internal/wire launch/environ launch/local launch/logs launch/machine launch/protocol launch/reach", "std"},
	"launch/hub":      {"elastic event internal/secret internal/wire launch/agent launch/environ launch/machine launch/protocol launch/reach", "std"},
	"launch/named":    {"launch/local launch/machine launch/protocol launch/reach launch/ssh", "std"},
}

// pure packages are state machines: no network, files, clock, locks or goroutines.
var pure = []string{"elastic", "observe", "dataset/plan", "job", "job/schedule"}

var drawers = []string{"util", "utils", "common", "helper", "helpers", "misc", "pkg", "base"}

const (
	maxFileLines     = 800
	maxFunctionLines = 80
	maxTopLevel      = 28
)

type goFile struct {
	path string // relative to the root, with slashes
	dir  string // "." for the root
	test bool
	src  []byte
	tree *ast.File
	fset *token.FileSet
}

// nestedModule reports a folder with its own go.mod: its rules are its own.
func nestedModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil && dir != "."
}

// goFiles are the files of this module.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	return filesOf(t, ".")
}

// allGoFiles are those of the modules within it too: of the tools, of the kernels' generator.
func allGoFiles(t *testing.T) []goFile {
	t.Helper()
	all := goFiles(t)
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir() || p == ".":
			return err
		case skipped(d.Name()):
			return fs.SkipDir
		case nestedModule(p):
			all = append(all, filesOf(t, p)...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// skipped reports a folder's name below which nothing is a source of ours.
func skipped(name string) bool {
	return strings.HasPrefix(name, ".") || name == "testdata" || name == "dist"
}

// filesOf are the files of the module in a folder.
func filesOf(t *testing.T, module string) []goFile {
	t.Helper()
	var files []goFile
	err := filepath.WalkDir(module, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p != module && (skipped(d.Name()) || nestedModule(p)) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		f := goFile{path: filepath.ToSlash(p), test: strings.HasSuffix(p, "_test.go"), src: src, fset: token.NewFileSet()}
		f.dir = path.Dir(f.path)
		f.tree, err = parser.ParseFile(f.fset, p, src, parser.ParseComments)
		if err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 3 {
		t.Fatalf("found %d Go files below %s: the walk is broken", len(files), module)
	}
	return files
}

func imports(f goFile) []string {
	var all []string
	for _, spec := range f.tree.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		all = append(all, p)
	}
	return all
}

// ours turns "hora/engine" into "engine" and "hora" into ".", whatever this module is called: see tools/rename.
func ours(importPath string) (string, bool) {
	if importPath == module() {
		return ".", true
	}
	return strings.CutPrefix(importPath, module()+"/")
}

var module = sync.OnceValue(func() string {
	b, err := os.ReadFile("go.mod")
	name, found := strings.CutPrefix(string(b), "module ")
	if name, _, _ = strings.Cut(name, "\n"); err != nil || !found || name == "" {
		panic(fmt.Sprintf("go.mod names no module: %v", err))
	}
	return name
})

// shown are the packages that programs in Go import, and so examples do.
var shown = []string{".", "dataset", "dataset/plan", "dataset/source", "demo/digits"}

func TestImportTable(t *testing.T) {
	there := map[string]bool{}
	for _, f := range goFiles(t) {
		there[f.dir] = true
	}
	for dir, row := range packages {
		for _, named := range append(strings.Fields(row.mayImport), dir) {
			if named != "any" && !there[named] {
				t.Errorf("the row of %s names package %s, which is not there", dir, named)
			}
		}
	}
	for _, f := range goFiles(t) {
		if f.dir == "examples" || strings.HasPrefix(f.dir, "examples/") {
			for _, imp := range imports(f) {
				if p, is := ours(imp); is && !slices.Contains(shown, p) && !f.test {
					t.Errorf("%s imports %s: an example shows what users import: %v", f.path, imp, shown)
				}
			}
			continue
		}
		row, known := packages[f.dir]
		if !known {
			if f.dir == "tools" || strings.HasPrefix(f.dir, "tools/") {
				continue
			}
			t.Errorf("%s: package %s is not in the import table of layout_test.go; add its row and say why in the commit", f.path, f.dir)
			continue
		}
		for _, imp := range imports(f) {
			checkImport(t, f, row.mayImport, row.thirdParty, imp)
		}
	}
}

func checkImport(t *testing.T, f goFile, mayImport, thirdParty, imp string) {
	t.Helper()
	if p, is := ours(imp); is {
		// A test in package x_test may look at its own package and at the simulator.
		if mayImport == "any" || p == f.dir || f.test || slices.Contains(strings.Fields(mayImport), p) {
			return
		}
		t.Errorf("%s imports %s, but the table lets %s import only: %s", f.path, imp, f.dir, mayImport)
		return
	}
	if thirdParty == "" || imp == "C" || f.test {
		return
	}
	if !strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") || strings.HasPrefix(imp, "golang.org/x/sys") {
		return
	}
	for _, allowed := range strings.Fields(thirdParty) {
		if strings.HasPrefix(imp, allowed) {
			return
		}
	}
	t.Errorf("%s imports %s: package %s keeps to the standard library and golang.org/x/sys", f.path, imp, f.dir)
}

// kinds are the words by which launch could ask what kind of host it works with.
var kinds = regexp.MustCompile("(?i)^(near|far|local|remote|here|attended|guest)$")

// TestTheSeamOfLaunch: one file of launch names the ways to hosts, to choose where nobody else has, and no line of the
// others asks what kind of host this is: the reaches alone know, and what they say of a host has no word for it.
func TestTheSeamOfLaunch(t *testing.T) {
	asks := func(f goFile, n ast.Node) {
		t.Errorf("%s asks what kind of host this is: have its reach do what differs", f.fset.Position(n.Pos()))
	}
	for _, f := range goFiles(t) {
		if f.dir == "launch/reach" && !f.test {
			ast.Inspect(f.tree, func(n ast.Node) bool {
				if field, is := n.(*ast.Field); is && slices.ContainsFunc(field.Names, func(id *ast.Ident) bool {
					return kinds.MatchString(id.Name)
				}) {
					asks(f, field)
				}
				return true
			})
		}
		if f.dir != "launch" || f.test {
			continue
		}
		for _, imp := range imports(f) {
			at, _ := ours(imp)
			way := at == "launch/local" || at == "launch/ssh" || at == "launch/named" || at == "launch/hub"
			if way && f.path != "launch/launch.go" {
				t.Errorf("%s imports %s: a job knows hosts by launch/reach alone", f.path, imp)
			}
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			text, is := n.(*ast.BasicLit)
			if is && strings.Contains(text.Value, "ssh") && f.path != "launch/launch.go" {
				t.Errorf("%s: %s: a job knows hosts by launch/reach alone", f.fset.Position(text.Pos()), text.Value)
			}
			if of, is := n.(*ast.SelectorExpr); is && kinds.MatchString(of.Sel.Name) {
				asks(f, of)
			}
			return true
		})
	}
}

// TestTheScriptOfThePages: the server's pages have one script, of at most 500 lines that one can read, and nothing of
// npm's. They name no other; that none has words of a script in itself, their policy sees to.
func TestTheScriptOfThePages(t *testing.T) {
	const folder, most = "server/web/files", 500
	named := regexp.MustCompile(`<script[^>]*>`)
	scripts := map[string]bool{}
	pages := 0
	err := filepath.WalkDir("server", func(path string, d fs.DirEntry, err error) error {
		switch ext := filepath.Ext(path); {
		case err != nil:
			return err
		case d.Name() == "node_modules" || d.Name() == "package.json":
			t.Errorf("%s is npm's", path)
		case slices.Contains([]string{".js", ".mjs", ".ts", ".jsx", ".tsx", ".wasm"}, ext):
			lines := strings.Split(page(t, path), "\n")
			if len(lines) > most || slices.ContainsFunc(lines, func(l string) bool { return len(l) > 120 }) {
				t.Errorf("%s has %d lines, at most %d of at most 120 columns are allowed", path, len(lines), most)
			}
			scripts[filepath.Base(path)] = true
		case ext == ".html" && strings.HasPrefix(path, folder):
			pages++
			for _, tag := range named.FindAllString(page(t, path), -1) {
				if !strings.Contains(tag, ` src="/static/live.js"`) {
					t.Errorf("%s has the script %s", path, tag)
				}
			}
		}
		return nil
	})
	if err != nil || len(scripts) != 1 || !scripts["live.js"] || pages < 8 {
		t.Errorf("%d pages have the scripts %v and are to have one, live.js; %v", pages, scripts, err)
	}
}

// TestTheSeamOfTheServer: what stands above server/backend knows nobody's nodes, and that is four calls and a Close. Of
// the tests above it one site alone has nodes that dial in.
func TestTheSeamOfTheServer(t *testing.T) {
	above := []string{"server", "server/backend", "server/store", "server/web", "server/client", "job/schedule"}
	withNodes := []string{"server/calls_test.go", "server/ending_test.go"}
	var calls []string
	for _, f := range goFiles(t) {
		if !slices.Contains(above, f.dir) {
			continue
		}
		for _, imp := range imports(f) {
			at, _ := ours(imp)
			if (at == "server/fleet" || at == "server/node") && !slices.Contains(withNodes, f.path) {
				t.Errorf("%s imports %s: the queue knows what runs its jobs by server/backend alone", f.path, imp)
			}
		}
		if f.dir != "server/backend" || f.test {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			is, ok := n.(*ast.TypeSpec)
			if !ok || is.Name.Name != "Backend" {
				return true
			}
			for _, m := range is.Type.(*ast.InterfaceType).Methods.List {
				calls = append(calls, m.Names[0].Name)
			}
			return false
		})
	}
	if want := []string{"Capacity", "Start", "Watch", "Kill", "Close"}; !slices.Equal(calls, want) {
		t.Errorf("a back end has the calls %v: each further one is one that every other back end must have too, so it has %v", calls, want)
	}
}

// TestNoTypeOfLaunchDoesEverything: neither the launcher nor the agent grows back to one type that does it all, be it
// by methods, by those of what it embeds, or by functions that are handed it.
func TestNoTypeOfLaunchDoesEverything(t *testing.T) {
	const most = 30
	for dir, hub := range map[string]string{"launch": "job", "launch/agent": "agent"} {
		counts := deeds(t, dir)
		if counts[hub] == 0 {
			t.Errorf("%s has no type %s any more: name the one that owns the rest", dir, hub)
		}
		largest := ""
		for name, n := range counts {
			if n > counts[largest] || n == counts[largest] && name < largest {
				largest = name
			}
			if n > most {
				t.Errorf("%s.%s has %d methods, at most %d: split it by what its fields are for", dir, name, n, most)
			}
		}
		t.Logf("%s: %s has %d, the largest type, %s, has %d", dir, hub, counts[hub], largest, counts[largest])
	}
}

// deeds counts for each type of a package its methods, those of the package's types that it embeds, and the functions
// with a parameter that points to it.
func deeds(t *testing.T, dir string) map[string]int {
	t.Helper()
	own, handed, embeds := map[string]int{}, map[string]int{}, map[string][]string{}
	for _, f := range goFiles(t) {
		if f.dir != dir || f.test {
			continue
		}
		for _, decl := range f.tree.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					name, _ := named(d.Recv.List[0].Type)
					own[name]++
					continue
				}
				seen := map[string]bool{}
				for _, p := range d.Type.Params.List {
					if name, pointer := named(p.Type); pointer && !seen[name] {
						seen[name] = true
						handed[name]++
					}
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if is, ok := spec.(*ast.TypeSpec); ok {
						embeds[is.Name.Name] = embedded(is.Type)
					}
				}
			}
		}
	}
	var all func(name string) int
	all = func(name string) int {
		n := own[name]
		for _, e := range embeds[name] {
			n += all(e)
		}
		return n
	}
	counts := map[string]int{}
	for name := range embeds { // all types
		counts[name] = all(name) + handed[name]
	}
	return counts
}

// embedded names the types of the same package that a struct embeds.
func embedded(of ast.Expr) (names []string) {
	st, ok := of.(*ast.StructType)
	if !ok {
		return nil
	}
	for _, field := range st.Fields.List {
		if name, _ := named(field.Type); len(field.Names) == 0 && name != "" {
			names = append(names, name)
		}
	}
	return names
}

// named returns the name of a type of the same package, and whether this is a pointer to it.
func named(of ast.Expr) (name string, pointer bool) {
	if star, ok := of.(*ast.StarExpr); ok {
		of, pointer = star.X, true
	}
	switch of := of.(type) {
	case *ast.Ident:
		return of.Name, pointer
	case *ast.IndexExpr:
		name, _ = named(of.X)
	case *ast.IndexListExpr:
		name, _ = named(of.X)
	}
	return name, pointer
}

func TestPackageComments(t *testing.T) {
	documented := map[string]int{}
	for _, f := range goFiles(t) {
		if f.test {
			continue
		}
		if _, seen := documented[f.dir]; !seen {
			documented[f.dir] = 0
		}
		if f.tree.Doc != nil {
			documented[f.dir]++
		}
	}
	for dir, n := range documented {
		if n != 1 {
			t.Errorf("package %s has %d package comments, want one that says what it owns, never does, and which goroutines it runs", dir, n)
		}
	}
}

func TestPurePackages(t *testing.T) {
	banned := []string{"net", "os", "sync", "io/fs", "os/exec", "sync/atomic", "net/http"}
	missing := slices.Clone(pure)
	for _, f := range goFiles(t) {
		if f.test || !slices.Contains(pure, f.dir) {
			continue
		}
		missing = slices.DeleteFunc(missing, func(dir string) bool { return dir == f.dir })
		for _, imp := range imports(f) {
			if slices.Contains(banned, imp) {
				t.Errorf("%s imports %s: %s is a pure machine, events in and actions out", f.path, imp, f.dir)
			}
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: a pure package starts no goroutine", f.fset.Position(n.Pos()))
			case *ast.SelectorExpr:
				if selects(n, "time", "Now") || selects(n, "time", "Sleep") {
					t.Errorf("%s: a pure package has no clock; time comes in with the event", f.fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
	if len(missing) > 0 {
		t.Errorf("the list of pure packages names %v, which are not there", missing)
	}
}

func selects(sel *ast.SelectorExpr, pkg, name string) bool {
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == pkg && sel.Sel.Name == name
}

// TestOutsideWorld keeps environment, exit and flags under cmd/ and examples/.
func TestOutsideWorld(t *testing.T) {
	for _, f := range goFiles(t) {
		edge := strings.HasPrefix(f.dir, "cmd/") || strings.HasPrefix(f.dir, "examples/") || strings.HasPrefix(f.dir, "tools")
		if f.test || edge {
			continue
		}
		for _, imp := range imports(f) {
			if imp == "flag" || imp == "github.com/spf13/pflag" || imp == "github.com/spf13/cobra" {
				t.Errorf("%s imports %s: flags live under cmd/ only", f.path, imp)
			}
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			for _, name := range []string{"Getenv", "LookupEnv", "Environ", "Setenv", "Exit"} {
				if selects(sel, "os", name) {
					t.Errorf("%s: os.%s outside cmd/: take a lookup function or return an error", f.fset.Position(n.Pos()), name)
				}
			}
			return true
		})
	}
}

func TestNoSleepInTests(t *testing.T) {
	for _, f := range goFiles(t) {
		if !f.test {
			continue
		}
		// In a synctest bubble sleeping is exact: it moves the fake clock, waits for nobody.
		if bytes.Contains(f.src, []byte(`"testing/synctest"`)) || f.dir == "internal/simtest" {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && selects(sel, "time", "Sleep") {
				t.Errorf("%s: a test that sleeps hopes; wait for the event itself", f.fset.Position(n.Pos()))
			}
			return true
		})
	}
}

// TestTheProgramHasNoDatabase keeps hora small: the server's inside belongs to cmd/horad.
func TestTheProgramHasNoDatabase(t *testing.T) {
	for _, f := range goFiles(t) {
		for _, imp := range imports(f) {
			at, _ := ours(imp)
			inside := at == "server" || at == "server/store" || at == "server/web"
			if inside && f.dir != "cmd/horad" && f.dir != "server" && !strings.HasPrefix(f.dir, "server/") {
				t.Errorf("%s imports %s, which only cmd/horad may", f.path, imp)
			}
		}
	}
}

func TestCgoInOnePlace(t *testing.T) {
	found := false
	for _, f := range goFiles(t) {
		if slices.Contains(imports(f), "C") {
			found = true
			if f.dir != "cmd/libhora" {
				t.Errorf(`%s: import "C" belongs to cmd/libhora alone`, f.path)
			}
		}
	}
	if !found {
		t.Log(`no file imports "C" yet`)
	}
}

func TestSizes(t *testing.T) {
	for _, f := range goFiles(t) {
		if n := bytes.Count(f.src, []byte("\n")); n > maxFileLines {
			t.Errorf("%s has %d lines, more than %d: split it by idea", f.path, n, maxFileLines)
		}
		for _, decl := range f.tree.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1
			if n > maxFunctionLines {
				t.Errorf("%s: %s has %d lines, more than %d", f.fset.Position(fn.Pos()), fn.Name.Name, n, maxFunctionLines)
			}
		}
	}
}

func TestNamesAndTopLevel(t *testing.T) {
	top := map[string]bool{}
	for _, f := range goFiles(t) {
		first := strings.SplitN(f.dir, "/", 2)[0]
		if first != "." && first != "examples" && first != "tools" {
			top[first] = true
		}
		if slices.Contains(drawers, f.tree.Name.Name) || slices.Contains(drawers, path.Base(f.dir)) {
			t.Errorf("%s: a package called %s is a drawer; name it after what it owns", f.path, f.tree.Name.Name)
		}
	}
	if len(top) > maxTopLevel {
		t.Errorf("%d Go packages at the top level, at most %d", len(top), maxTopLevel)
	}
}

func TestModuleFile(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	deps, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(mod))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "replace") {
			t.Errorf("go.mod: %q: no replace; nested modules use a go.work of their own", line)
		}
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		direct := len(fields) >= 2 && strings.Contains(fields[0], ".") && strings.HasPrefix(fields[1], "v") &&
			!strings.Contains(line, "// indirect")
		if direct && !bytes.Contains(deps, []byte("`"+fields[0]+"`")) {
			t.Errorf("go.mod requires %s, which docs/dependencies.md does not explain", fields[0])
		}
	}
}

// TestWords keeps the repository free of what only its first machine knew.
func TestWords(t *testing.T) {
	bad := []string{"/root" + "/", "TO" + "DO", "FIX" + "ME"}
	for _, f := range goFiles(t) {
		for _, word := range bad {
			if i := bytes.Index(f.src, []byte(word)); i >= 0 {
				line := 1 + bytes.Count(f.src[:i], []byte("\n"))
				t.Errorf("%s:%d: %q has no place in what we ship", f.path, line, word)
			}
		}
	}
}
