package job

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ReadHorovod goes through a configuration file of horovodrun's and calls set with each setting it has, as its flag
// takes it.
func ReadHorovod(file string, data []byte, table []Field, set func(f *Field, text string) error) error {
	root, err := document(file, data, "verbose: true")
	if err != nil || root == nil {
		return err
	}
	r := horovodFile{file, table, set}
	return r.section("", root)
}

type horovodFile struct {
	file  string
	table []Field
	set   func(*Field, string) error
}

// place finds the setting with a place in a section, and whether it means the opposite.
func (r *horovodFile) place(section, key string) (f *Field, turned bool) {
	for i := range r.table {
		for p := range strings.FieldsSeq(r.table[i].Horovod) {
			if p == section+"."+key {
				return &r.table[i], false
			}
			if p == "!"+section+"."+key {
				return &r.table[i], true
			}
		}
	}
	return nil, false
}

func (r *horovodFile) hasSection(name string) bool {
	for i := range r.table {
		for p := range strings.FieldsSeq(r.table[i].Horovod) {
			if strings.HasPrefix(strings.TrimPrefix(p, "!"), name+".") {
				return true
			}
		}
	}
	return false
}

func (r *horovodFile) section(section string, node *yaml.Node) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: expected \"name: value\" lines", r.file, node.Line)
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := strings.ReplaceAll(key.Value, "_", "-")
		if section == "" && value.Kind == yaml.MappingNode {
			if !r.hasSection(name) {
				return fmt.Errorf("%s:%d: there is no section %q", r.file, key.Line, key.Value)
			}
			if err := r.section(name, value); err != nil {
				return err
			}
			continue
		}
		var f *Field
		turned := false
		switch {
		case section != "":
			f, turned = r.place(section, name)
		case name == "controller" && value.Kind == yaml.ScalarNode:
			f = Find(r.table, "--"+value.Value)
			value = &yaml.Node{Kind: yaml.ScalarNode, Value: "true", Line: value.Line}
		default:
			f = Find(r.table, "--"+name)
		}
		if err := r.value(f, turned, value); err != nil {
			return fmt.Errorf("%s:%d: %s: %w", r.file, key.Line, key.Value, err)
		}
	}
	return nil
}

func (r *horovodFile) value(f *Field, turned bool, value *yaml.Node) error {
	if f == nil {
		return fmt.Errorf("there is no such setting")
	}
	texts := []string{value.Value}
	if value.Kind == yaml.SequenceNode {
		texts = texts[:0]
		for _, n := range value.Content {
			texts = append(texts, n.Value)
		}
		if f.Values() > 1 {
			texts = []string{strings.Join(texts, " ")}
		}
	}
	for _, text := range texts {
		if value.Tag == "!!null" {
			continue
		}
		if f.Values() == 0 {
			b, err := strconv.ParseBool(strings.ToLower(text))
			if err != nil {
				return fmt.Errorf("%q is neither true nor false", text)
			}
			text = strconv.FormatBool(b != turned)
		}
		if err := r.set(f, text); err != nil {
			return err
		}
	}
	return nil
}
