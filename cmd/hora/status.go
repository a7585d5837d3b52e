package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hora/cmd/console"
	"hora/event"
	"hora/launch"
	"hora/observe"
)

const (
	leastWidth = 16 // a narrower one has no room for the line
)

// statusAfter is how long a job runs before its status line appears: short ones never show it.
const statusAfter = time.Second

// status is a line at the bottom of a terminal that says how a job stands. Workers' lines go above it: out and err are
// writers that take it away, write, and put it back.
type status struct {
	mu       sync.Mutex // guards what follows and the terminal
	w        io.Writer
	width    func() int
	began    time.Time
	now      func() time.Time
	ranks    int
	started  map[int]bool // processes that run
	up       map[int]bool // those of them that have joined the present epoch
	restarts int
	losses   int
	rates    observe.Rates
	halts    map[int]string // by rank: what holds its process
	shown    bool
	held     bool // the last byte written was within a line
	over     bool
	stop     chan struct{}
	done     chan struct{}
}

func newStatus(w io.Writer, ranks int, width func() int, now func() time.Time) *status {
	return &status{
		w: w, ranks: ranks, width: width, now: now, began: now(), started: map[int]bool{}, up: map[int]bool{},
		halts: map[int]string{}, stop: make(chan struct{}), done: make(chan struct{}),
	}
}

// showStatus puts a line under the job's output when standard error is a terminal. The function takes it away.
func (p *program) showStatus(place *launch.Place, np int) func() {
	if terminalWidth(p.err) == 0 || place.Prompts { // somebody may be typing there
		return func() {}
	}
	s := newStatus(p.err, np, func() int { return terminalWidth(p.err) }, time.Now)
	remove := place.Events.Add(s)
	if terminalWidth(p.out) > 0 { // a file or a pipe does not disturb the line
		place.Stdout = s.above(p.out)
	}
	place.Stderr = s.above(p.err)
	place.Progress = true
	go s.run()
	return func() {
		remove()
		s.close()
	}
}

// terminalWidth is the columns of a terminal, 0 when w is none.
func terminalWidth(w any) int { return console.Width(w) }

// foreground says whether who reads from this terminal takes nothing from another job of its shell.
func foreground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp() // an error: no shell controls jobs with it
}

// run redraws the line each second until close.
func (s *status) run() {
	defer close(s.done)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			s.mu.Lock()
			s.draw()
			s.mu.Unlock()
		}
	}
}

// close takes the line away for good.
func (s *status) close() {
	close(s.stop)
	<-s.done
	s.mu.Lock()
	s.clear()
	s.over = true
	s.mu.Unlock()
}

func (s *status) Operation(*event.Operation) {}

func (s *status) Event(e event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := e.(type) {
	case *event.Started:
		s.started[e.Rank] = true
		s.ranks = max(s.ranks, len(s.started))
	case *event.Admitted:
		s.started[e.Rank], s.up[e.Rank] = true, true
	case *event.Opened: // ranks have other numbers, and another pace
		clear(s.up)
		s.rates.Clear()
	case *event.Exited:
		delete(s.started, e.Rank)
		delete(s.up, e.Rank)
		s.rates.Forget(e.Rank)
		delete(s.halts, e.Rank)
	case *event.Held:
		if s.halts[e.Rank] = e.Why; e.Why == "" {
			delete(s.halts, e.Rank)
		}
	case *event.Progress:
		s.rates.Add(e, s.now())
	case *event.Restarted:
		s.restarts++
	case *event.Shrunk:
		s.losses++
		s.ranks--
	}
}

func (s *status) text() string {
	took := s.now().Sub(s.began).Round(time.Second)
	text := fmt.Sprintf("hora: %d of %d ranks up, %v", len(s.up), s.ranks, took)
	if n := len(s.started); len(s.up) < n {
		text = fmt.Sprintf("hora: %d of %d ranks started, %d joined, %v", n, s.ranks, len(s.up), took)
	}
	if s.restarts > 0 {
		text += fmt.Sprintf(", restarts: %d", s.restarts)
	}
	if s.losses > 0 {
		text += fmt.Sprintf(", lost: %d", s.losses)
	}
	for _, rank := range slices.Sorted(maps.Keys(s.halts)) {
		text += fmt.Sprintf(", waiting for rank %d: %s", rank, s.halts[rank])
	}
	if p, known := s.rates.Pace(s.now()); known {
		text += paceText(p)
	}
	return text
}

func (s *status) draw() {
	if s.over || s.held || s.now().Sub(s.began) < statusAfter {
		return
	}
	text := s.text()
	n := s.width()
	if n < leastWidth {
		s.clear()
		return
	}
	if len(text) >= n {
		text = text[:n-1] // a line that wraps could not be taken away
	}
	fmt.Fprintf(s.w, "\r\x1b[K%s", text)
	s.shown = true
}

func (s *status) clear() {
	if s.shown {
		io.WriteString(s.w, "\r\x1b[K")
		s.shown = false
	}
}

// above is a writer whose text goes above the line.
func (s *status) above(w io.Writer) io.Writer { return aboveStatus{s, w} }

type aboveStatus struct {
	s *status
	w io.Writer
}

func (a aboveStatus) Write(p []byte) (int, error) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	again := a.s.shown
	a.s.clear()
	n, err := a.w.Write(p)
	a.s.held = len(p) > 0 && !bytes.HasSuffix(p, []byte("\n"))
	if again {
		a.s.draw()
	}
	return n, err
}
