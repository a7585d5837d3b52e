package hora_test

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var inQuotes = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`")

// TestColumns holds lines to 120 columns, a tab being four. A text in quotes counts for nothing: a sentence that a user
// sees stands in one piece, where whoever searches for it finds it. All modules are looked at.
func TestColumns(t *testing.T) {
	const columns = 120
	for _, f := range allGoFiles(t) {
		raw := false
		for i, line := range strings.Split(string(f.src), "\n") {
			text := strings.ReplaceAll(line, "\t", "    ")
			odd := strings.Count(line, "`")%2 == 1
			within := raw
			raw = raw != odd
			if within || odd || len([]rune(inQuotes.ReplaceAllString(text, `""`))) <= columns {
				continue
			}
			t.Errorf("%s:%d has more than %d columns: break it", f.path, i+1, columns)
		}
	}
}

// readMost says whether a folder's package is one of those that are read the most.
func readMost(dir string) bool {
	core := []string{".", "engine", "elastic", "elastic/rendezvous", "cmd/libhora", "internal/bridge", "launch"}
	return slices.Contains(core, dir) || strings.HasPrefix(dir, "launch/")
}

// TestDocCommentsGoOnWithAVerb: what a function returns is said with a verb, behind the function's name.
func TestDocCommentsGoOnWithAVerb(t *testing.T) {
	looked := 0
	for _, f := range goFiles(t) {
		if f.test || !readMost(f.dir) {
			continue
		}
		for _, d := range f.tree.Decls {
			fn, is := d.(*ast.FuncDecl)
			if !is || fn.Doc == nil {
				continue
			}
			looked++
			words := strings.Fields(fn.Doc.Text())
			if len(words) > 0 && words[0] != fn.Name.Name {
				t.Errorf("%s: the comment of %s begins with %q", f.fset.Position(fn.Pos()), fn.Name.Name, words[0])
			}
			if len(words) > 1 && words[0] == fn.Name.Name && (words[1] == "is" || words[1] == "are") {
				t.Errorf("%s: %s %s …: say what it does: returns, reports, starts", f.fset.Position(fn.Pos()), words[0], words[1])
			}
		}
	}
	if looked < 1000 {
		t.Errorf("looked at %d functions: the search is broken", looked)
	}
}

// TestNamesThatMislead: names that the house has given up, since they say what their thing is not, or nothing.
func TestNamesThatMislead(t *testing.T) {
	gone := []string{"again", "lies", "lying", "oldestU", "perhaps"}
	for _, f := range goFiles(t) {
		if f.test || !readMost(f.dir) {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			if id, is := n.(*ast.Ident); is && slices.Contains(gone, id.Name) {
				t.Errorf("%s: %s: a name that says what it is", f.fset.Position(id.Pos()), id.Name)
			}
			return true
		})
	}
}

// TestExamplesNeedNoUnsafe: whatever an example does, its reader can do.
func TestExamplesNeedNoUnsafe(t *testing.T) {
	looked := 0
	for _, f := range goFiles(t) {
		if !strings.HasPrefix(f.dir, "examples/") {
			continue
		}
		looked++
		for _, i := range f.tree.Imports {
			if i.Path.Value == `"unsafe"` {
				t.Errorf("%s imports unsafe", f.path)
			}
		}
	}
	if looked < 3 {
		t.Errorf("looked at %d files: the search is broken", looked)
	}
}
