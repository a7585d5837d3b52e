// Package timeline writes what the operations of this process did, as a file that
// chrome://tracing, Perfetto and scripts for Horovod's timeline read.
//
// A [Writer] is an event.Listener. What it hears it copies into memory that was
// allocated at its start, and returns; when the disk falls behind so far that this
// memory is full, operations are left out and counted, never delayed. The package
// knows no ranks but those in the events: its caller has rank 0 write, and nobody else.
//
// Goroutines: one per Writer, from Start to Stop, which joins it. It alone touches the
// file, a few times a second; between two of its writes the file is complete JSON.
package timeline

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"hora/event"
)

// Config says where and what to write. Only Path is needed.
type Config struct {
	Path  string
	Clock event.Epoch // of the operations' times; the zero Epoch is now
	// MarkCycles marks each agreement of named operations, which is what became of
	// Horovod's cycles.
	MarkCycles bool

	Buffer int           // operations that can wait for the disk; 0 means 16,384
	Every  time.Duration // between two writes; 0 means 100 ms
	// Patience is how long a tensor's first operation waits for the other ranks' word on
	// when they were ready; after it they are marked when this rank knew that they were.
	// 0 means 500 ms.
	Patience time.Duration
	Log      *slog.Logger // a full disk, operations left out; nil means slog.Default()
}

func (c *Config) fill() {
	if c.Clock.Start().IsZero() {
		c.Clock = event.NewEpoch()
	}
	if c.Buffer <= 0 {
		c.Buffer = 16 << 10
	}
	if c.Every <= 0 {
		c.Every = 100 * time.Millisecond
	}
	if c.Patience <= 0 {
		c.Patience = 500 * time.Millisecond
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
}

// file is what a Writer needs of an os.File.
type file interface {
	io.WriterAt
	io.Closer
	Truncate(size int64) error
}

// record is one operation, with what turns its times into the file's.
type record struct {
	event.Operation
	base int64 // nanoseconds from the file's start to the epoch of its clock
}

// heard is what a Writer has heard since it was last asked.
type heard struct {
	ops    []record
	ready  []event.Ready
	cycles []int64 // times of agreements, in nanoseconds from the file's start
	parts  [][2]string
	missed uint64 // operations that found no room
}

func (h *heard) reset() {
	h.ops, h.ready, h.cycles, h.parts, h.missed = h.ops[:0], h.ready[:0], h.cycles[:0], h.parts[:0], 0
}

// Writer writes one file.
type Writer struct {
	cfg    Config
	start  time.Time
	remove func()
	wake   chan struct{} // half of the memory is used
	stop   chan struct{}
	done   chan struct{}
	once   sync.Once

	mu     sync.Mutex // guards what follows; never held over I/O
	in     *heard
	base   int64
	marks  bool
	closed bool

	page page // the goroutine's
	out  *heard
}

// Start creates the file, or empties it, and writes what sink reports from now on.
func Start(cfg Config, sink *event.Sink) (*Writer, error) {
	f, err := os.OpenFile(cfg.Path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start timeline: %w; give a path that rank 0 can write", err)
	}
	return start(cfg, sink, f)
}

func start(cfg Config, sink *event.Sink, f file) (*Writer, error) {
	cfg.fill()
	w := &Writer{
		cfg: cfg, start: time.Now(), wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		in: newHeard(cfg.Buffer), out: newHeard(cfg.Buffer), marks: cfg.MarkCycles,
	}
	w.base = cfg.Clock.Start().Sub(w.start).Nanoseconds()
	w.page.init(f, w.start, &w.cfg)
	if err := w.page.flush(); err != nil {
		f.Close()
		return nil, fmt.Errorf("start timeline: %w; give the path of a regular file on a disk with room", err)
	}
	w.remove = sink.Add(w)
	go w.run()
	return w, nil
}

func newHeard(n int) *heard {
	return &heard{ops: make([]record, 0, n)}
}

// Path is the file's.
func (w *Writer) Path() string { return w.cfg.Path }

// Clock says that operations from now on tell their times by another clock: that of the
// next epoch of an elastic job.
func (w *Writer) Clock(c event.Epoch) {
	w.mu.Lock()
	w.base = c.Start().Sub(w.start).Nanoseconds()
	w.mu.Unlock()
}

// MarkCycles has agreements marked from now on, or no longer.
func (w *Writer) MarkCycles(on bool) {
	w.mu.Lock()
	w.marks = on
	w.mu.Unlock()
}

// Operation keeps a copy of o, if there is room.
func (w *Writer) Operation(o *event.Operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	in := w.in
	switch n := len(in.ops); {
	case w.closed:
	case n == cap(in.ops):
		in.missed++
	default:
		in.ops = in.ops[:n+1]
		r := &in.ops[n]
		r.Operation, r.base = *o, w.base
		if n == cap(in.ops)/2 {
			w.hurry()
		}
	}
}

// Parts tells what goes under the name of one operation, for its first appearance in the
// file: the parameters whose gradients are reduced as one.
func (w *Writer) Parts(name, parts string) {
	w.mu.Lock()
	if !w.closed && len(w.in.parts) < mostRare {
		w.in.parts = append(w.in.parts, [2]string{name, parts})
	}
	w.mu.Unlock()
}

// mostRare bounds what is kept of events that are not operations.
const mostRare = 64 << 10

// Event keeps ranks' first readiness, and agreements if asked to.
func (w *Writer) Event(e event.Event) {
	switch e := e.(type) {
	case *event.Ready:
		w.mu.Lock()
		if !w.closed && len(w.in.ready) < mostRare {
			w.in.ready = append(w.in.ready, *e)
		}
		w.mu.Unlock()
	case *event.Agreed:
		now := time.Since(w.start).Nanoseconds()
		w.mu.Lock()
		if w.marks && !w.closed && len(w.in.cycles) < mostRare {
			w.in.cycles = append(w.in.cycles, now)
		}
		w.mu.Unlock()
	}
}

// hurry has the goroutine look before its time.
func (w *Writer) hurry() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Stop writes what was heard before it, closes the file and returns within timeout. When
// the disk does not take the rest in that time, the file is completed later, or stays as
// it is. Stop may be called again.
func (w *Writer) Stop(timeout time.Duration) error {
	w.once.Do(func() {
		w.remove()
		w.mu.Lock()
		w.closed = true
		w.mu.Unlock()
		close(w.stop)
	})
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-w.done:
		return w.page.fault
	case <-t.C:
		return &LateError{w.cfg.Path, timeout}
	}
}

// LateError says that the disk did not take the end of a timeline in time.
type LateError struct {
	Path  string
	After time.Duration
}

func (e *LateError) Error() string {
	return fmt.Sprintf("stop timeline: the disk has not taken all of %s within %v; the file holds what was written before, and is completed when the disk is", e.Path, e.After)
}

// run writes until Stop.
func (w *Writer) run() {
	defer close(w.done)
	tick := time.NewTicker(w.cfg.Every)
	defer tick.Stop()
	for last := false; !last; {
		select {
		case <-w.stop:
			last = true
		case <-w.wake:
		case <-tick.C:
		}
		w.mu.Lock()
		w.in, w.out = w.out, w.in
		w.mu.Unlock()
		w.page.add(w.out)
		w.out.reset()
		if last {
			w.page.finish(time.Since(w.start))
		}
		w.page.settle(time.Now(), last)
		w.page.keep(w.page.flush())
	}
	w.page.keep(w.page.file.Close())
}
