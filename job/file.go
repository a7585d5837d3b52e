package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Parse reads a job from YAML or JSON; file is its name in errors. It leaves out what [Spec.Check] looks at, since
// flags may be added to what a file says.
func Parse(file string, data []byte) (*Spec, error) {
	s := &Spec{}
	return s, s.read(file, data, nil, nil)
}

// Read reads a job over s, field by field, and returns the keys of what the file has.
func (s *Spec) Read(file string, data []byte) ([]string, error) {
	var keys []string
	err := s.read(file, data, nil, func(key string) { keys = append(keys, key) })
	return keys, err
}

// ReadBeside reads a job as Read does from a file in which somebody else's fields stand beside the job's: those that
// theirs says yes to, which it has read then.
func (s *Spec) ReadBeside(file string, data []byte, theirs func(key string, value *yaml.Node) (bool, error)) error {
	return s.read(file, data, theirs, nil)
}

// UnmarshalJSON reads a job as Parse does. It is no file's, so that errors name no line.
func (s *Spec) UnmarshalJSON(data []byte) error {
	*s = Spec{}
	return s.read("", data, nil, nil)
}

// place is where in a file something stands, before what is said of it; "" where there is no file.
func place(file string, line int) string {
	if file == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d: ", file, line)
}

func (s *Spec) read(
	file string, data []byte, theirs func(string, *yaml.Node) (bool, error), given func(string),
) error {
	root, err := document(file, data, "command: [python, train.py]")
	if err != nil || root == nil {
		return err
	}
	if root.Kind != yaml.MappingNode {
		if file == "" {
			return errors.New("a job is an object such as {\"command\": [\"python\", \"train.py\"], \"np\": 2}")
		}
		return fmt.Errorf("%s:%d: a job is lines such as \"np: 2\"", file, root.Line)
	}
	table := keyed
	seen := map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], through(root.Content[i+1])
		at := place(file, key.Line)
		if before := seen[key.Value]; before > 0 && file == "" {
			return fmt.Errorf("%s is there twice: leave one of them out", key.Value)
		} else if before > 0 {
			return fmt.Errorf("%s%s stands in line %d already: leave one of them out", at, key.Value, before)
		}
		seen[key.Value] = key.Line
		if theirs != nil {
			if read, err := theirs(key.Value, value); err != nil {
				return fmt.Errorf("%s%w", at, err)
			} else if read {
				continue
			}
		}
		n := slices.IndexFunc(table, func(f Field) bool { return f.Key == key.Value })
		if n < 0 {
			return fmt.Errorf("%sthere is no field %q%s", at, key.Value, meant(key.Value, table))
		}
		if err := s.readField(&table[n], value); err != nil {
			return fmt.Errorf("%s%s: %w", at, key.Value, err)
		}
		if given != nil {
			given(key.Value)
		}
	}
	return nil
}

// meant is the question after an unknown key: its nearest, by its own name or by that of a flag.
func meant(key string, table []Field) string {
	var names []string
	for _, f := range table {
		names = append(names, f.Key)
		for flag := range strings.FieldsSeq(f.Flags) {
			if strings.TrimLeft(flag, "-") == strings.ReplaceAll(key, "_", "-") {
				return fmt.Sprintf(": did you mean %s?", f.Key)
			}
		}
	}
	if near := Nearest(strings.ReplaceAll(key, "-", "_"), names); near != "" {
		return fmt.Sprintf(": did you mean %s?", near)
	}
	return ": docs/job-file.md has them all, and so has hora run --schema"
}

func (s *Spec) readField(f *Field, v *yaml.Node) error {
	switch {
	case v.Tag == "!!null":
		return fmt.Errorf("it has no value: write one, or leave the line out")
	case f.Key == "command":
		words, err := readCommand(v)
		s.Command = words
		return err
	case f.Key == "env":
		return s.readEnv(v)
	case f.Key == "network_interfaces" && v.Kind == yaml.SequenceNode:
		words, err := scalars(v)
		if err != nil {
			return err
		}
		return f.set(s, strings.Join(words, ","))
	case f.Values() > 1:
		words, err := scalars(v)
		if err != nil {
			return err
		}
		return f.set(s, strings.Join(words, " "))
	case v.Kind != yaml.ScalarNode:
		return fmt.Errorf("it takes one value: write it as %q", f.Key+": "+example(f))
	}
	return f.set(s, v.Value)
}

// example is a value that a field may have, for an error about one that it cannot.
func example(f *Field) string {
	switch {
	case f.Arg == "":
		return "true"
	case f.Default != "":
		return f.Default
	case f.Arg == "N":
		return "2"
	}
	return f.Arg
}

func readCommand(v *yaml.Node) ([]string, error) {
	if v.Kind == yaml.SequenceNode {
		return scalars(v)
	}
	if v.Kind != yaml.ScalarNode {
		return nil, fmt.Errorf("it is a list of words: write [python, train.py]")
	}
	return words(v.Value)
}

func (s *Spec) readEnv(v *yaml.Node) error {
	if v.Kind != yaml.MappingNode {
		return fmt.Errorf("it is lines NAME: VALUE, further in than its own")
	}
	for i := 0; i+1 < len(v.Content); i += 2 {
		name, value := v.Content[i], through(v.Content[i+1])
		switch {
		case value.Kind != yaml.ScalarNode:
			return fmt.Errorf("line %d: %s takes one value", name.Line, name.Value)
		case name.Value == "" || strings.ContainsAny(name.Value, "=\x00"):
			return fmt.Errorf("line %d: %q is no variable's name", name.Line, name.Value)
		case value.Tag == "!!null":
			s.setEnv(name.Value, "")
		default:
			s.setEnv(name.Value, value.Value)
		}
	}
	return nil
}

// scalars returns the texts of a list, or of one value.
func scalars(v *yaml.Node) ([]string, error) {
	if v.Kind == yaml.ScalarNode {
		return strings.Fields(v.Value), nil
	}
	var out []string
	for _, n := range v.Content {
		n = through(n)
		if v.Kind != yaml.SequenceNode || n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
			return nil, fmt.Errorf("line %d: it is a list of words", n.Line)
		}
		out = append(out, n.Value)
	}
	return out, nil
}

// through follows an alias to what it stands for.
func through(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// words splits a line as a shell does, and refuses what only a shell could do.
func words(line string) ([]string, error) {
	var out []string
	var word []rune
	var quote rune
	begun, escaped := false, false
	for _, r := range line {
		switch {
		case escaped:
			if quote == '"' && !strings.ContainsRune("\"\\$`", r) {
				word = append(word, '\\')
			}
			word, escaped = append(word, r), false
		case r == '\\' && quote != '\'':
			begun, escaped = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote == '\'' || quote == '"' && r != '$' && r != '`':
			word = append(word, r)
		case quote == 0 && (r == '\'' || r == '"'):
			quote, begun = r, true
		case strings.ContainsRune("$`", r) || quote == 0 && (strings.ContainsRune("|&;<>()*?[", r) || r == '~' && !begun):
			return nil, fmt.Errorf("%q has a %q, which only a shell understands: write [sh, -c, '…']", line, r)
		case r == ' ' || r == '\t' || r == '\n':
			if begun {
				out = append(out, string(word))
			}
			word, begun = nil, false
		default:
			word, begun = append(word, r), true
		}
	}
	if quote != 0 || escaped {
		return nil, fmt.Errorf("%q ends inside a quote: close it", line)
	}
	if begun {
		out = append(out, string(word))
	}
	return out, nil
}

var yamlWords = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// document reads one document of YAML or JSON; nil where there is nothing in it. like is a line as the file should have
// them.
func document(file string, data []byte, like string) (*yaml.Node, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if text := bytes.TrimSpace(data); len(text) > 0 && text[0] == '{' && json.Valid(text) {
		return fromJSON(data), nil
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		text := err.Error()
		if m := yamlWords.FindStringSubmatch(text); m != nil {
			text = strings.TrimPrefix(text, m[0])
			if m[1] != "" {
				file += ":" + m[1]
			}
		}
		if file != "" {
			file += ": "
		}
		return nil, fmt.Errorf("%sit is no YAML (%s): write lines such as \"%s\"", file, text, like)
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	return doc.Content[0], nil
}

// fromJSON makes the same tree of valid JSON as is made of YAML, with lines: YAML takes no tabs and no surrogate pairs.
func fromJSON(data []byte) *yaml.Node {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var value func() *yaml.Node
	value = func() *yaml.Node {
		t, err := d.Token()
		if err != nil && err != io.EOF {
			return &yaml.Node{}
		}
		n := &yaml.Node{Kind: yaml.ScalarNode, Line: 1 + bytes.Count(data[:d.InputOffset()], []byte("\n"))}
		switch t := t.(type) {
		case json.Delim:
			n.Kind = yaml.SequenceNode
			if t == '{' {
				n.Kind = yaml.MappingNode
			}
			for d.More() {
				n.Content = append(n.Content, value())
			}
			d.Token()
		case string:
			n.Value, n.Tag = t, "!!str"
		case json.Number:
			n.Value = t.String()
		case bool:
			n.Value = strconv.FormatBool(t)
		case nil:
			n.Tag = "!!null"
		}
		return n
	}
	return value()
}

// fields calls do with each field that is set, in order.
func (s *Spec) fields(do func(key string, value any)) {
	for _, f := range keyed {
		if p := plain(s.value(f.Key)); p != nil {
			do(f.Key, p)
		}
	}
}

// MarshalJSON writes the fields that are set, in the order of Spec.
func (s Spec) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	s.fields(func(key string, value any) {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		text, _ := json.Marshal(value) // of strings, numbers and lists of them
		fmt.Fprintf(&b, "%q:%s", key, text)
	})
	b.WriteByte('}')
	return b.Bytes(), nil
}

// YAML writes the fields that are set as a file that Parse reads.
func (s *Spec) YAML() []byte {
	doc := &yaml.Node{Kind: yaml.MappingNode}
	s.fields(func(key string, value any) {
		var k, v yaml.Node
		k.SetString(key)
		v.Encode(value)
		if key == "command" || key == "network_interfaces" || key == "blacklist_cooldown_range" {
			v.Style = yaml.FlowStyle
		}
		doc.Content = append(doc.Content, &k, &v)
	})
	out, err := yaml.Marshal(doc)
	if err != nil {
		panic(err) // a tree of scalars, lists and one map
	}
	return out
}
