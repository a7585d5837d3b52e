package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// callOfHora finds a call in a line of code: hora first, perhaps behind variables, and the word after it.
var callOfHora = regexp.MustCompile(`^(?:[A-Z_]+=\S* )*(?:\./)?hora ([a-z][a-z_-]*)`)

// inlineCode finds what stands between single backticks.
var inlineCode = regexp.MustCompile("`([^`]+)`")

// callsOfHora returns the subcommands that a page calls, in its code alone, with their lines.
func callsOfHora(text string) map[string]int {
	all := map[string]int{}
	fenced := false
	for i, line := range strings.Split(text, "\n") {
		var code []string
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
		case fenced:
			code = []string{strings.TrimPrefix(strings.TrimSpace(line), "$ ")}
		default:
			for _, m := range inlineCode.FindAllStringSubmatch(line, -1) {
				code = append(code, m[1])
			}
		}
		for _, c := range code {
			if m := callOfHora.FindStringSubmatch(c); m != nil {
				all[m[1]] = i + 1
			}
		}
	}
	return all
}

// TestPagesCallWhatThereIs: no page tells anybody to call a subcommand that hora has not.
func TestPagesCallWhatThereIs(t *testing.T) {
	root := (&program{ctx: context.Background(), getenv: os.Getenv, stdio: stdio{nil, io.Discard, io.Discard}}).root()
	known := map[string]bool{"help": true, "completion": true}
	for _, c := range root.Commands() {
		known[c.Name()] = true
	}
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*/*.md", "python/*.md", "python/*/*.md", "bench/results/*.md"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	calls := 0
	for _, page := range pages {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for name, line := range callsOfHora(string(b)) {
			if calls++; !known[name] {
				t.Errorf("%s:%d calls hora %s, which there is not", strings.TrimPrefix(page, "../../"), line, name)
			}
		}
	}
	if calls < 100 {
		t.Errorf("%d calls were found: the search is broken", calls)
	}
}
