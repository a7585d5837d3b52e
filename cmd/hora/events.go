package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"hora/event"
	"hora/launch"
)

// eventFile writes what happens to a job as lines of JSON, for programs that follow it.
type eventFile struct {
	now func() time.Time

	mu   sync.Mutex // guards what follows, and the order of lines
	f    *os.File
	name string
	err  error // the first failed write: a line may be cut off there, so none follows
}

// openEvents begins the file of --events, before anything starts. Only a regular file takes lines whenever there are
// some: a pipe whose reader is busy would hold the job up.
func openEvents(path string) (*eventFile, error) {
	const next = "name a file in a folder that you may write to"
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() && !st.IsDir() {
		return nil, &launch.Error{Code: launch.ExitLogs, Text: fmt.Sprintf("write the job's events: %s is no regular file: %s", path, next)}
	}
	perm := os.FileMode(0o600)
	if st, err := os.Stat(filepath.Dir(path)); err == nil {
		perm |= st.Mode().Perm() & 0o666 // as open as its folder, as logs are
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return nil, &launch.Error{Code: launch.ExitLogs, Text: fmt.Sprintf("write the job's events: %v: %s", err, next)}
	}
	return &eventFile{now: time.Now, f: f, name: path}, nil
}

// Operation is for event.Listener: the launcher takes part in none.
func (e *eventFile) Operation(*event.Operation) {}

// Event writes a line.
func (e *eventFile) Event(v event.Event) {
	line, err := event.Marshal(v)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return
	}
	if err == nil {
		at := e.now().UTC().Format(`{"at":"2006-01-02T15:04:05.000000Z",`)
		_, err = e.f.Write(append(append([]byte(at), line[1:]...), '\n'))
	}
	e.err = err
}

// close ends the file and says whether all is in it.
func (e *eventFile) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.f.Close(); e.err == nil {
		e.err = err
	}
	if e.err != nil {
		return &launch.Error{Code: launch.ExitLogs, Text: fmt.Sprintf("write the job's events: %v: what %s tells ends before the job did: look for room on its disk", e.err, e.name)}
	}
	return nil
}
