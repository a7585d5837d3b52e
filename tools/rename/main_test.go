package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRename: imports and modules are another's, and nothing else is changed.
func TestRename(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module hora\n\ngo 1.26\n",
		"tools/go.mod": "module hora/tools\n",
		"other/go.mod": "module horatio\n",
		"a.go":         "package hora\n\nimport (\n\t\"fmt\"\n\t\"hora/job\"\n\tx \"hora\"\n\t\"horatio/y\"\n)\n\nvar s = \"hora/job\" // import \"hora\"\n",
		"job/b.go":     "package job\n\nimport \"hora\"\n",
		".git/c.go":    "package c\n\nimport \"hora\"\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := rename(root, "example.org/you/fast"); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for name, want := range map[string]string{
		"go.mod":       "module example.org/you/fast\n\ngo 1.26\n",
		"tools/go.mod": "module example.org/you/fast/tools\n",
		"other/go.mod": "module horatio\n",
		"a.go":         "package hora\n\nimport (\n\t\"fmt\"\n\t\"example.org/you/fast/job\"\n\tx \"example.org/you/fast\"\n\t\"horatio/y\"\n)\n\nvar s = \"hora/job\" // import \"hora\"\n",
		"job/b.go":     "package job\n\nimport hora \"example.org/you/fast\"\n",
		".git/c.go":    "package c\n\nimport \"hora\"\n",
	} {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, bad := range []string{"", "a b", "/x", "x//y"} {
		if _, err := rename(root, bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if _, err := rename(filepath.Join(root, "job"), "example.org/x"); err == nil {
		t.Error("a folder without go.mod is taken")
	}
}
