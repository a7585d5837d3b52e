package hora

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"hora/timeline"
)

// stopRecording bounds how long leaving waits for a slow disk.
const stopRecording = 2 * time.Second

// recording is the timeline that Config.Timeline names. Rank 0 writes it, through all
// epochs of an elastic job. The goroutine that joins and leaves has it to itself.
type recording struct {
	writer *timeline.Writer
	log    *slog.Logger
	other  bool // another process was rank 0 in an earlier epoch
}

// timelineError is a timeline that cannot be begun, which no further attempt mends.
type timelineError struct{ error }

func (e *timelineError) Unwrap() error { return e.error }

// enter begins the file, goes on with it in the next epoch, or ends it where this process
// is rank 0 no longer.
func (r *recording) enter(w *World) error {
	c := &w.cfg
	switch {
	case c.Timeline == "":
		return nil
	case c.Rank != 0:
		r.leave()
		r.other = true
		return nil
	case r.writer != nil:
		r.writer.Clock(w.clock)
		return nil
	}
	path := c.Timeline
	if r.other { // what the lost rank 0 wrote is to stay
		path = fmt.Sprintf("%s.%d", path, w.number)
	}
	var err error
	r.log = c.Log
	r.writer, err = timeline.Start(timeline.Config{Path: path, Clock: w.clock, MarkCycles: c.TimelineMarks, Log: c.Log},
		c.Events)
	return err
}

// leave finishes the file. What the disk does not take in time is a warning: a program
// must end all the same.
func (r *recording) leave() {
	if r.writer == nil {
		return
	}
	var late *timeline.LateError
	if err := r.writer.Stop(stopRecording); errors.As(err, &late) {
		r.log.Warn(err.Error())
	}
	r.writer = nil
}
