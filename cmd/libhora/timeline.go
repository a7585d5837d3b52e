//go:build cgo

package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"hora"
	"hora/event"
	"hora/timeline"
)

// stopTimeline bounds how long stopping waits for a slow disk.
const stopTimeline = 2 * time.Second

// recorder is the library's timeline. Rank 0 writes it, from hora_timeline or from init
// when the environment names a file, through all epochs of an elastic job.
type recorder struct {
	events event.Sink // of all worlds

	// guards what follows; held while a file is opened or closed, for which only those wait who do the same
	mu     sync.Mutex
	writer *timeline.Writer
	path   string // what the environment names; "" when nothing
	marks  bool
	parts  map[string]string // by the name of an operation: what it is made of
	other  bool              // another process was rank 0 in an earlier epoch of this job
}

// ask notes the file that settings or environment name.
func (r *recorder) ask(lookup func(string) string) {
	first := func(names ...string) string {
		for _, n := range names {
			if v := strings.TrimSpace(lookup(n)); v != "" {
				return v
			}
		}
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.path = first("HORA_TIMELINE", "HOROVOD_TIMELINE")
	if r.path == "DYNAMIC" {
		r.path = "" // the program starts it
	}
	r.marks, _ = strconv.ParseBool(first("HORA_TIMELINE_MARK_CYCLES", "HOROVOD_TIMELINE_MARK_CYCLES"))
}

// enter begins what the environment asked for, or goes on in the next epoch.
func (r *recorder) enter(w *hora.World) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case w.Rank() != 0:
		r.other = true
		return r.end()
	case r.writer != nil:
		r.writer.Clock(w.Clock())
	case r.path != "" && r.other: // what the lost rank 0 wrote is to stay
		return r.begin(w, fmt.Sprintf("%s.%d", r.path, w.Epoch()), r.marks)
	case r.path != "":
		return r.begin(w, r.path, r.marks)
	}
	return nil
}

// begin writes to path from now on. A file that is being written already goes on. mu is
// held.
func (r *recorder) begin(w *hora.World, path string, marks bool) error {
	if r.writer != nil && r.writer.Path() == path {
		r.writer.MarkCycles(marks)
		return nil
	}
	next, err := timeline.Start(timeline.Config{Path: path, Clock: w.Clock(), MarkCycles: marks}, &r.events)
	if err != nil {
		return err
	}
	r.end()
	r.writer = next
	for name, parts := range r.parts {
		next.Parts(name, parts)
	}
	return nil
}

// end finishes the file. What went wrong with the disk has been logged, and is no reason
// for a program to end. mu is held.
func (r *recorder) end() error {
	if r.writer == nil {
		return nil
	}
	w := r.writer
	r.writer = nil
	var late *timeline.LateError
	if err := w.Stop(stopTimeline); errors.As(err, &late) {
		return late
	}
	return nil
}

// leave finishes the file when the job is over.
func (r *recorder) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.other = false
	_ = r.end() // a disk that takes nothing must not keep a program from ending
}

// tell notes what an operation of that name is made of, for timelines now and later.
func (r *recorder) tell(name, parts string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parts == nil {
		r.parts = map[string]string{}
	}
	r.parts[name] = parts
	if r.writer != nil {
		r.writer.Parts(name, parts)
	}
}

// act starts or stops the timeline for the program. It works on every rank and does
// something on rank 0.
func (r *recorder) act(start bool, path string, marks bool) error {
	g, err := the.find(0)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := g.life.world
	switch {
	case !start:
		r.path = "" // a later epoch does not begin it again
		return r.end()
	case path == "":
		return argument("start timeline: the path is empty; give a path that rank 0 can write")
	case w.Rank() != 0:
		return nil
	}
	return r.begin(w, path, marks)
}
