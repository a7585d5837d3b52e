package hora_test

import (
	"go/ast"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Pages that speak of the code are held to it.

// TestGlossary: the file of each word, or one of its folder, declares it, or tells of it in a sentence that begins with
// it.
func TestGlossary(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| ([a-z ]+) \\| `([^`]+)` \\|")
	all := strings.Count(page(t, "docs/glossary.md"), "\n| ") - 2 // less the head and the line below it
	rows := row.FindAllStringSubmatch(page(t, "docs/glossary.md"), -1)
	if len(rows) != all || all < 30 {
		t.Errorf("%d of %d rows: the search is broken", len(rows), all)
	}
	files := goFiles(t)
	for _, m := range rows {
		words := strings.Fields(m[1])
		found := slices.ContainsFunc(files, func(f goFile) bool {
			return !f.test && (f.path == m[2] || f.dir == m[2]) && defines(f, words)
		})
		if !found {
			t.Errorf("docs/glossary.md sends to %s for %q, which is neither declared nor told of there", m[2], m[1])
		}
	}
}

// defines reports whether a file declares a word (of several, the last one or all as one name), alone or in the plural,
// or has a comment in which a sentence begins with it.
func defines(f goFile, words []string) bool {
	last := words[len(words)-1]
	wanted := []string{last, last + "s", strings.Join(words, "")}
	found := false
	declared := func(names ...*ast.Ident) {
		for _, n := range names {
			found = found || n != nil && slices.Contains(wanted, strings.ToLower(n.Name))
		}
	}
	for _, d := range f.tree.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			declared(fn.Name)
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				declared(n.Name)
			case *ast.ValueSpec:
				declared(n.Names...)
			case *ast.StructType:
				for _, field := range n.Fields.List {
					declared(field.Names...)
				}
			}
			return true
		})
	}
	told := regexp.MustCompile(`(?:^|\. )(?:An?|The) ` + strings.Join(words, " ") + ` is `)
	for _, c := range f.tree.Comments {
		found = found || told.MatchString(strings.Join(strings.Fields(c.Text()), " "))
	}
	return found
}

// said returns the sentences of the program: its string literals, in Go with what is added to them.
func said(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, f := range goFiles(t) {
		if f.test {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text := literal(e)
			if text != "" {
				all = append(all, text)
			}
			return text == ""
		})
	}
	joined := regexp.MustCompile(`"\n\s*f?"`) // neighbours are one in Python
	err := filepath.WalkDir("python/hora", func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".py" {
			all = append(all, strings.Split(joined.ReplaceAllString(page(t, path), ""), "\n")...)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// literal is the text of a string literal, or of several that are added, with a gap where something else is.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			s, _ := strconv.Unquote(e.Value)
			return s
		}
	case *ast.BinaryExpr:
		if a, b := literal(e.X), literal(e.Y); e.Op == token.ADD && a+b != "" {
			return a + b
		}
	}
	return ""
}

// TestTroubleshooting: each sentence of the page is one of the program's.
func TestTroubleshooting(t *testing.T) {
	texts := said(t)
	sentences := 0
	for line := range strings.Lines(page(t, "docs/troubleshooting.md")) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			sentences++
			var parts []string
			for part := range strings.SplitSeq(m[1], "…") {
				parts = append(parts, regexp.QuoteMeta(strings.TrimSpace(part)))
			}
			want := regexp.MustCompile("(?s)" + strings.Join(parts, ".+"))
			found := false
			for _, text := range texts {
				found = found || want.MatchString(text)
			}
			if !found {
				t.Errorf("docs/troubleshooting.md: the program says nowhere %q", m[1])
			}
		}
	}
	if sentences < 30 {
		t.Errorf("%d sentences: the search is broken", sentences)
	}
}

// TestDocsIndex: docs/README.md leads to every page, each under a question.
func TestDocsIndex(t *testing.T) {
	index := page(t, "docs/README.md")
	pages, err := filepath.Glob("docs/*.md")
	if err != nil || len(pages) < 15 {
		t.Fatal(err, pages)
	}
	for _, p := range pages {
		if name := filepath.Base(p); name != "README.md" && !strings.Contains(index, "("+name) {
			t.Errorf("docs/README.md does not lead to %s", name)
		}
	}
}
