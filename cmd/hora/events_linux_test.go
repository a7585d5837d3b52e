package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/event"
)

// The lines of --events are what the launcher's own lines are made from, and come back as typed events.
func TestEventsAsLines(t *testing.T) {
	dir := t.TempDir()
	r := command(t, dir, "hora", "run", "-np", "2", "--restarts", "1", "--verbose", "--events", "events.jsonl", "sh", "-c",
		`[ $HORA_RANK = 0 ] || { printf 'ValueError: \033\302\2331m\n' >&2; exit 3; }; sleep 1`)
	if r.code == 0 {
		t.Fatalf("%+v", r)
	}
	b, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(string(b), "\x1b\u009b") {
		t.Errorf("what acts on a terminal is in it: %q", b)
	}
	var kinds []string
	var last time.Time
	for line := range strings.Lines(string(b)) {
		var head struct{ At time.Time }
		e, err := event.Unmarshal([]byte(line))
		if err == nil {
			err = json.Unmarshal([]byte(line), &head)
		}
		if err != nil || head.At.Before(last) || time.Since(head.At) > time.Hour {
			t.Fatalf("%v: %s", err, line)
		}
		last = head.At
		kinds = append(kinds, event.NameOf(e))
		switch e := e.(type) {
		case *event.Started:
			if e.Pid <= 0 || e.Host == "" {
				t.Errorf("%+v", e)
			}
		case *event.Restarted:
			if e.Rank != 1 || e.Left != 0 || !strings.Contains(e.Cause, "ValueError") {
				t.Errorf("%+v", e)
			}
		default:
			continue
		}
		if text := "hora: " + event.Visible(e.String()) + "\n"; !strings.Contains(r.err, text) {
			t.Errorf("nobody was told %q:\n%s", text, r.err)
		}
	}
	for kind, n := range map[string]int{"started": 3, "restarted": 1} {
		if got := len(slices.DeleteFunc(slices.Clone(kinds), func(k string) bool { return k != kind })); got != n {
			t.Errorf("%d times %s, want %d:\n%s", got, kind, n, b)
		}
	}
}

// A file of events that cannot be written is an error before anything starts; a pipe, whose reader could hold the job
// up, is one too.
func TestEventsThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"no/such": "hora: write the job's events: open no/such: no such file or directory: name a file in a folder that you may write to\n",
		"pipe":    "hora: write the job's events: pipe is no regular file: name a file in a folder that you may write to\n",
		".":       "hora: write the job's events: open .: is a directory: name a file in a folder that you may write to\n",
	} {
		if r := command(t, dir, "hora", "run", "--events", file, "echo", "started"); r.code != 73 || r.err != want || r.out != "" {
			t.Errorf("%s: %+v, want %q", file, r, want)
		}
	}
}

// A disk that is full ends no job, but a job whose events are not all there does not end as if they were.
func TestEventsThatAreCutOff(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	e := &eventFile{now: time.Now, f: f, name: "events"}
	e.Event(&event.Left{Rank: 1})
	e.Event(&event.Left{Rank: 2})
	err = e.close()
	if err == nil || !strings.Contains(err.Error(), "no space left on device") || !strings.Contains(err.Error(), "events") {
		t.Errorf("%v", err)
	}
}
