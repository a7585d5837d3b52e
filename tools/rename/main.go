// Command rename gives the module another path, for whoever publishes it under one of their own: it rewrites the line
// of go.mod that names it, and every import of its packages.
//
//	cd tools && go run ./rename example.org/you/hora
package main

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: cd tools && go run ./rename example.org/you/hora")
		os.Exit(2)
	}
	n, err := rename("..", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "rename:", err)
		os.Exit(1)
	}
	fmt.Printf("%d files changed; go build ./... tells whether all is well\n", n)
}

var (
	modulePath = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._~-]*(/[a-zA-Z0-9._~-]+)*$`)
	moduleLine = regexp.MustCompile(`(?m)^module\s+(\S+)`)
)

// rename gives the module in folder root the path to, and returns how many files that changed.
func rename(root, to string) (int, error) {
	if !modulePath.MatchString(to) {
		return 0, fmt.Errorf("%q is no module path: write one such as example.org/you/hora", to)
	}
	from, err := module(filepath.Join(root, "go.mod"))
	if err != nil {
		return 0, err
	}
	changed := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "dist"):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		was, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		is := was
		switch {
		case d.Name() == "go.mod":
			is = ofModule(was, from, to)
		case filepath.Ext(path) == ".go":
			if is, err = imports(path, was, from, to); err != nil {
				return err
			}
		}
		if bytes.Equal(was, is) {
			return nil
		}
		changed++
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(path, is, info.Mode().Perm())
	})
	return changed, err
}

// module returns the path that a go.mod names.
func module(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%w: start it in the folder tools of the source tree", err)
	}
	m := moduleLine.FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("%s names no module", path)
	}
	return string(m[1]), nil
}

// ofModule renames the module itself, and nested ones that are named after it.
func ofModule(text []byte, from, to string) []byte {
	return moduleLine.ReplaceAllFunc(text, func(line []byte) []byte {
		name := string(moduleLine.FindSubmatch(line)[1])
		if name != from && !strings.HasPrefix(name, from+"/") {
			return line
		}
		return []byte("module " + to + strings.TrimPrefix(name, from))
	})
}

// imports rewrites a file's imports of the module's packages, and nothing else in it.
func imports(path string, text []byte, from, to string) ([]byte, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, text, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	for _, spec := range slices.Backward(f.Imports) {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil || name != from && !strings.HasPrefix(name, from+"/") {
			continue
		}
		start, end := fset.Position(spec.Path.Pos()).Offset, fset.Position(spec.Path.End()).Offset
		is := strconv.Quote(to + strings.TrimPrefix(name, from))
		if name == from && spec.Name == nil && to[strings.LastIndexByte(to, '/')+1:] != from {
			is = from + " " + is // the package keeps its name
		}
		text = slices.Concat(text[:start], []byte(is), text[end:])
	}
	return text, nil
}
