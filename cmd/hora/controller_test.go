package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"hora/job"
)

// A script's --mpi is told of in one sentence, without --verbose, and the job runs.
func TestMPIIsSaidToBeUnused(t *testing.T) {
	for _, argv := range [][]string{
		{"hora", "run", "-np", "2", "--mpi", "true"},
		{"horovodrun", "-np", "2", "--mpi", "true"},
	} {
		r := command(t, t.TempDir(), argv[0], argv[1:]...)
		if r.code != 0 || r.err != "hora: warning: "+mpiUnused+"\n" {
			t.Errorf("%v: %+v", argv, r)
		}
	}
	for _, other := range []string{"--gloo", "--mpi=false"} {
		if r := horaCommand(t, "run", other, "true"); r.code != 0 || strings.Contains(r.err, "MPI") {
			t.Errorf("%s: %+v", other, r)
		}
	}
}

// docs/horovod.md has a row for each flag of horovodrun, with what the flag table says of it, and no other.
func TestHorovodrunsFlagsAreListed(t *testing.T) {
	page, err := os.ReadFile("../../docs/horovod.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed, want []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `-") {
			listed = append(listed, strings.TrimSpace(line))
		}
	}
	theirs := strings.Fields(horovodFlags)
	for _, r := range job.Fields() {
		if !slices.ContainsFunc(strings.Fields(r.Flags), func(s string) bool { return slices.Contains(theirs, s) }) {
			continue
		}
		state, note := "works", r.Help
		if r.Name() == "num-proc" {
			note = "number of processes; required" // as its own help says
		}
		if r.Void != "" {
			state, note = "no effect", r.Void
		}
		want = append(want, fmt.Sprintf("| `%s` | %s | %s |", r.Flags, state, note))
	}
	if !slices.Equal(listed, want) {
		t.Errorf("the table of docs/horovod.md should be:\n%s", strings.Join(want, "\n"))
	}
}
