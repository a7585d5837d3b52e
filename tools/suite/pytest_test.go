package main

import (
	"io"
	"os/exec"
	"strings"
	"testing"
)

// TestWhatALanePrintsIsSeen: a program's output goes through Write, which tells how far a lane has come.
func TestWhatALanePrintsIsSeen(t *testing.T) {
	o := &output{name: "python"}
	if _, is := any(o).(io.ReaderFrom); is {
		t.Error("what reads by itself passes Write by")
	}
	cmd := exec.Command("sh", "-c", "echo '.... [ 43%]'")
	cmd.Stdout = o
	if err := cmd.Run(); err != nil || o.kept.String() != ".... [ 43%]\n" {
		t.Errorf("%q, %v", o.kept.String(), err)
	}
}

// TestLastWords: a pytest that died is known by what it said first of its death, however much came before and after.
func TestLastWords(t *testing.T) {
	much := strings.Repeat("....\n", 1000)
	o := &output{name: "spark"}
	o.kept.WriteString(much + "Fatal Python error: Aborted\n\nThread 0x1:\n  File \"test_rows.py\", line 7 in test_rows\n" + much)
	said := o.lastWords()
	if !strings.HasPrefix(said, "Fatal Python error: Aborted\n") || !strings.Contains(said, "in test_rows") || len(said) > 500 {
		t.Errorf("%q", said)
	}
	o = &output{name: "spark"}
	o.kept.WriteString(much + "killed\n")
	if said := o.lastWords(); !strings.HasSuffix(said, "\nkilled") || len(said) > 500 {
		t.Errorf("%q", said)
	}
}
