package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"hora/job"
)

// TestAJobFileOfManyShapes: a field of the queue may take any number of lines, and errors name the file's own lines.
func TestAJobFileOfManyShapes(t *testing.T) {
	table := append(queueFields(), slices.DeleteFunc(job.Fields(), notForServers)...)
	name := filepath.Join(t.TempDir(), "job.yaml")
	for _, c := range []struct{ text, wrong string }{
		{"pip: [\n  x,\n  y,\n]\nnp: 2\npool: two\ncommand: [true]\n", ""},
		{"pip:\n  - x\n  # a remark\n  - >-\n    y\nnp: 2\n\"pool\": two\ncommand: [true]\n", ""},
		{"{pip: [x, y], np: 2,\n pool: two, command: [true]}\n", ""},
		{"pip: &packages [x, y]\nname: &n two\npool: *n\nnp: 2\ncommand: [true]\n", ""},
		{"pip: [\n  x,\n]\nnp: many\n", ":4: np:"},
		{"pip: [\n  x,\n]\npriority: -1\n", ":4: priority:"},
		{"pool: one\nnp: 2\npool: two\n", ":3: pool stands in line 1 already"},
	} {
		if err := os.WriteFile(name, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, _, err := readSubmission(table, []string{"--priority", "3", "--file", name, "--memory", "1KiB"})
		switch {
		case c.wrong != "":
			if err == nil || !strings.Contains(err.Error(), name+c.wrong) {
				t.Errorf("%q: %v, want %s", c.text, err, c.wrong)
			}
		case err != nil:
			t.Errorf("%q: %v", c.text, err)
		case s.Spec.NP != 2 || s.Pool != "two" || !reflect.DeepEqual(s.Environment.Pip, []string{"x", "y"}) ||
			*s.Priority != 3 || s.Memory != 1024 || !reflect.DeepEqual(s.Spec.Command, []string{"true"}):
			t.Errorf("%q is read as %+v", c.text, s.Document)
		}
	}
}

// TestTheHelpOfSubmit has no heading without lines below it.
func TestTheHelpOfSubmit(t *testing.T) {
	var out bytes.Buffer
	writeHelp(&out, append(queueFields(), slices.DeleteFunc(job.Fields(), notForServers)...), plainWidth)
	if text := strings.TrimRight(out.String(), " \n"); strings.HasSuffix(text, ":") || !strings.Contains(text, "--follow") {
		t.Errorf("it ends with %q", text[len(text)-200:])
	}
}
