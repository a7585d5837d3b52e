package main

import (
	"io"
	"os/exec"
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
