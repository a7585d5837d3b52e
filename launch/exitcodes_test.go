package launch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/exit-codes.md and the constants are one table.
func TestExitCodesAreDocumented(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "protocol/codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	code := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "Exit") && len(v.Values) == 1 {
			if lit, ok := v.Values[0].(*ast.BasicLit); ok {
				code[v.Names[0].Name] = lit.Value
			}
		}
		return true
	})
	doc, err := os.ReadFile("../docs/exit-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+)(\+N)? \| (Exit\w+) \|`).FindAllStringSubmatch(string(doc), -1)
	for _, r := range rows {
		if code[r[3]] != r[1] {
			t.Errorf("docs/exit-codes.md says %s = %s, the code %q", r[3], r[1], code[r[3]])
		}
		delete(code, r[3])
	}
	for name := range code {
		t.Errorf("docs/exit-codes.md lacks %s", name)
	}
}
