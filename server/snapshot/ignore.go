package snapshot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// rule is one line of an ignore file, as git means it.
type rule struct {
	match   *regexp.Regexp
	keep    bool // it began with "!"
	folders bool // it ended in "/"
}

// parse reads an ignore file that lies in a folder of the snapshot.
func parse(folder, text string) []rule {
	var rules []rule
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(line, "\r")
		if !strings.HasSuffix(line, `\ `) {
			line = strings.TrimRight(line, " \t")
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		r := rule{}
		if line, r.keep = strings.CutPrefix(line, "!"); line == "" {
			continue
		}
		line, r.folders = strings.CutSuffix(line, "/")
		anchored := strings.Contains(line, "/")
		line = strings.TrimPrefix(line, "/")
		pattern := "^"
		if folder != "." {
			pattern += regexp.QuoteMeta(folder) + "/"
		}
		if !anchored {
			pattern += "(?:.*/)?"
		}
		var err error
		if r.match, err = regexp.Compile(pattern + translate(line) + "$"); err == nil {
			rules = append(rules, r)
		}
	}
	return rules
}

// translate makes a regular expression of a pattern.
func translate(p string) string {
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		switch {
		case strings.HasPrefix(p[i:], "**/") && (i == 0 || p[i-1] == '/'):
			b.WriteString("(?:.*/)?")
			i += 2
		case strings.HasPrefix(p[i:], "**") && i > 0 && p[i-1] == '/' && i+2 == len(p):
			b.WriteString(".+")
			i++
		case p[i] == '*':
			b.WriteString("[^/]*")
		case p[i] == '?':
			b.WriteString("[^/]")
		case p[i] == '[' && strings.Contains(p[i+1:], "]"):
			end := i + 1 + strings.Index(p[i+1:], "]")
			class := p[i+1 : end]
			if strings.HasPrefix(class, "!") {
				class = "^" + class[1:]
			}
			b.WriteString("[" + strings.ReplaceAll(class, `\`, `\\`) + "]")
			i = end
		case p[i] == '\\' && i+1 < len(p):
			i++
			b.WriteString(regexp.QuoteMeta(p[i : i+1]))
		default:
			b.WriteString(regexp.QuoteMeta(p[i : i+1]))
		}
	}
	return b.String()
}

// ignored says whether the last rule that matches a path, or a folder above it, leaves it out.
func ignored(rules []rule, name string, folder bool) bool {
	out := false
	for _, r := range rules {
		if r.folders && !folder {
			continue
		}
		if r.match.MatchString(name) {
			out = !r.keep
		}
	}
	return out
}

// staysBehind ignores everything below it.
const staysBehind = "# hora's own: it stays behind where a folder above this one is submitted\n*\n"

// StayBehind makes a folder with secrets stay behind when somebody submits one above it, a home for example. Rules that
// are there already stay; the last ones count.
func StayBehind(dir string) error {
	name := filepath.Join(dir, ".horaignore")
	b, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if strings.HasSuffix(string(b), staysBehind) {
		return nil
	}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		b = append(b, '\n')
	}
	return os.WriteFile(name, append(b, staysBehind...), 0o644)
}
