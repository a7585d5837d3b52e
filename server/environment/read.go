package environment

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"hora/server/client"
)

// IsFile reports whether what follows --env is a file, and not a variable: a variable's name has neither dot nor slash.
func IsFile(text string) bool {
	return !strings.Contains(text, "=") && strings.ContainsAny(text, "./")
}

// Read reads a file that says what a job needs: requirements as pip has them, or, where its name ends in .yml or .yaml,
// an environment of conda. open answers the files that it names.
func Read(name, text string, open func(name string) (string, error)) (*client.Environment, error) {
	e := &client.Environment{}
	if strings.HasSuffix(name, ".yml") || strings.HasSuffix(name, ".yaml") {
		if err := readConda(e, name, text, open); err != nil {
			return nil, err
		}
	} else if err := readPip(e, name, text, open, 0); err != nil {
		return nil, err
	}
	if Empty(e) && e.Python == "" {
		return nil, fmt.Errorf("%s names no package", name)
	}
	return e, nil
}

// Add puts one environment's needs behind another's.
func Add(to *client.Environment, more *client.Environment) {
	to.Pip = append(to.Pip, more.Pip...)
	to.Constraints = append(to.Constraints, more.Constraints...)
	to.Nearest = append(to.Nearest, more.Nearest...)
	to.Conda = append(to.Conda, more.Conda...)
	to.Channels = append(to.Channels, more.Channels...)
	if more.Python != "" {
		to.Python = more.Python
	}
}

// Empty reports whether nothing is asked for.
func Empty(e *client.Environment) bool {
	return len(e.Pip)+len(e.Nearest)+len(e.Conda)+len(e.Lock) == 0 && e.Python == ""
}

// Check reads an environment's file into its fields, and refuses what no node can install.
func Check(e *client.Environment) error {
	if f := e.File; f != nil {
		more, err := Read(f.Name, f.Text, func(name string) (string, error) {
			return "", fmt.Errorf("it names the file %s, which did not come along: put its lines in its place", name)
		})
		if err != nil {
			return err
		}
		e.File = nil
		Add(e, more)
	}
	for _, lines := range []*[]string{&e.Pip, &e.Constraints, &e.Lock} {
		for _, line := range *lines {
			if err := checkLine(line); err != nil {
				return err
			}
		}
	}
	for _, want := range e.Nearest {
		if !wanted.MatchString(want) {
			return fmt.Errorf("%.80q is no package with a release: write it as torch==1.13, or name the package alone", want)
		}
	}
	for _, p := range slices.Concat(e.Conda, e.Channels) {
		if !condaWord.MatchString(p) {
			return fmt.Errorf("%.80q is no package or channel of conda: write packages as numpy=1.26", p)
		}
	}
	return nil
}

var (
	wanted    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(==[0-9][0-9A-Za-z.+*-]*)?$`)
	condaWord = regexp.MustCompile(`^[A-Za-z0-9_:/][^\x00-\x1f]*$`)
	// options are those of a requirements file that say where packages come from. The others would change this node.
	options = map[string]bool{ // whether a value follows
		"-i": true, "--index-url": true, "--extra-index-url": true, "-f": true, "--find-links": true, "--no-index": false, "--pre": false,
		"--prefer-binary": false, "--trusted-host": true, "--only-binary": true, "--no-binary": true, "--require-hashes": false,
	}
)

// checkLine refuses a line of requirements that would mean something else on a node.
func checkLine(line string) error {
	if strings.ContainsAny(line, "\n\r\x00") {
		return fmt.Errorf("%.80q is more than one line: give them one by one", line)
	}
	if line == "" {
		return errors.New("there is an empty requirement: name a package")
	}
	if strings.HasPrefix(line, "-") {
		name, value, joined := strings.Cut(line, "=")
		if n, v, ok := strings.Cut(line, " "); ok && len(n) < len(name) {
			name, value, joined = n, strings.TrimSpace(v), true
		}
		takes, known := options[name]
		switch {
		case name == "-e" || name == "--editable":
			return fmt.Errorf("%.200s: an environment is shared by jobs and has no folder of yours: list what your package needs; what goes along with the job is importable as it is", line)
		case !known:
			return fmt.Errorf("%.200s: %s is not taken for a job's environment: leave it out", line, name)
		case takes && (!joined || value == ""):
			return fmt.Errorf("%.200s: %s needs a value", line, name)
		}
		return nil
	}
	if strings.ContainsRune("./~", rune(line[0])) || strings.HasPrefix(line, "file:") {
		return fmt.Errorf("%.200s: an environment is shared by jobs and has no folder of yours: name a published package, or the address of a wheel", line)
	}
	return nil
}

// deepest is how deep requirements files may name each other.
const deepest = 20

// readPip reads a requirements file, with those that it names.
func readPip(e *client.Environment, name, text string, open func(string) (string, error), depth int) error {
	if depth > deepest {
		return fmt.Errorf("%s: requirements files name each other in a circle", name)
	}
	for n, line := range logical(text) {
		where := func(err error) error { return fmt.Errorf("%s:%d: %w", name, n, err) }
		if other, ok := included(line, "-r", "--requirement"); ok {
			other = path.Join(path.Dir(name), other)
			text, err := open(other)
			if err != nil {
				return where(err)
			}
			if err := readPip(e, other, text, open, depth+1); err != nil {
				return err
			}
			continue
		}
		if other, ok := included(line, "-c", "--constraint"); ok {
			other = path.Join(path.Dir(name), other)
			text, err := open(other)
			if err != nil {
				return where(err)
			}
			bounds := &client.Environment{}
			if err := readPip(bounds, other, text, open, depth+1); err != nil {
				return err
			}
			e.Constraints = append(e.Constraints, bounds.Pip...)
			continue
		}
		if err := checkLine(line); err != nil {
			return where(err)
		}
		e.Pip = append(e.Pip, line)
	}
	return nil
}

// included answers the file that a line names with one of two flags.
func included(line, short, long string) (string, bool) {
	for _, flag := range []string{long, short} {
		rest, ok := strings.CutPrefix(line, flag)
		if ok && rest != "" && (flag == short || strings.ContainsRune(" =\t", rune(rest[0]))) {
			return strings.TrimSpace(strings.TrimPrefix(rest, "=")), true
		}
	}
	return "", false
}

var comment = regexp.MustCompile(`(^|\s+)#.*$`)

// logical answers the lines of a requirements file that say something, with the number of the line where each begins.
func logical(text string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		line, begins, n := "", 0, 0
		for part := range strings.SplitSeq(text, "\n") {
			n++
			if line == "" {
				begins = n
			}
			part = strings.TrimRight(part, "\r")
			if rest, more := strings.CutSuffix(part, `\`); more && !strings.HasPrefix(strings.TrimSpace(part), "#") {
				line += rest
				continue
			}
			line = strings.TrimSpace(comment.ReplaceAllString(line+part, ""))
			if line != "" && !yield(begins, line) {
				return
			}
			line = ""
		}
		if line = strings.TrimSpace(comment.ReplaceAllString(line, "")); line != "" {
			yield(begins, line)
		}
	}
}

// readConda reads an environment of conda.
func readConda(e *client.Environment, name, text string, open func(string) (string, error)) error {
	var f struct {
		Name         any       `yaml:"name"`
		Channels     []string  `yaml:"channels"`
		Dependencies yaml.Node `yaml:"dependencies"`
		Variables    any       `yaml:"variables"`
	}
	if err := yaml.Unmarshal([]byte(text), &f); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if f.Variables != nil {
		return fmt.Errorf("%s: variables are not taken from it: give them with --env NAME=VALUE", name)
	}
	if f.Dependencies.Kind != 0 && f.Dependencies.Kind != yaml.SequenceNode {
		return fmt.Errorf("%s:%d: dependencies are a list", name, f.Dependencies.Line)
	}
	for _, d := range f.Dependencies.Content {
		switch d.Kind {
		case yaml.ScalarNode:
			if err := addConda(e, d.Value); err != nil {
				return fmt.Errorf("%s:%d: %w", name, d.Line, err)
			}
		case yaml.MappingNode:
			var of struct {
				Pip []string `yaml:"pip"`
			}
			if err := d.Decode(&of); err != nil || of.Pip == nil {
				return fmt.Errorf("%s:%d: beside packages a list named pip may stand here", name, d.Line)
			}
			for _, line := range of.Pip {
				if err := readPip(e, name, line, open, 1); err != nil {
					return err
				}
			}
		default:
			return fmt.Errorf("%s:%d: this is no package", name, d.Line)
		}
	}
	e.Channels = f.Channels
	return nil
}

// addConda takes one package of conda. Those that every interpreter has are no packages of conda's.
func addConda(e *client.Environment, text string) error {
	text = strings.TrimSpace(text)
	if !condaWord.MatchString(text) {
		return fmt.Errorf("%.80q is no package", text)
	}
	plain := strings.NewReplacer("==", "=", ">=", "=", "<=", "=", " ", "").Replace(text)
	switch name, release, _ := strings.Cut(plain, "="); name {
	case "python":
		e.Python, _, _ = strings.Cut(release, "=")
	case "pip", "setuptools", "wheel":
	default:
		e.Conda = append(e.Conda, text)
	}
	return nil
}
