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

// TestDocCommentsGoOnWithAVerb: what a function returns is said with a verb, in the packages that are read the most.
func TestDocCommentsGoOnWithAVerb(t *testing.T) {
	looked := 0
	for _, f := range goFiles(t) {
		core := slices.Contains([]string{".", "engine", "elastic", "elastic/rendezvous", "cmd/libhora", "internal/bridge"}, f.dir)
		if f.test || !core && f.dir != "launch" && !strings.HasPrefix(f.dir, "launch/") {
			continue
		}
		for _, d := range f.tree.Decls {
			fn, is := d.(*ast.FuncDecl)
			if !is || fn.Doc == nil {
				continue
			}
			looked++
			words := strings.Fields(fn.Doc.Text())
			if len(words) > 1 && words[0] == fn.Name.Name && (words[1] == "is" || words[1] == "are") {
				t.Errorf("%s: %s %s …: say what it does: returns, reports, starts", f.fset.Position(fn.Pos()), words[0], words[1])
			}
		}
	}
	if looked < 1000 {
		t.Errorf("looked at %d functions: the search is broken", looked)
	}
}
