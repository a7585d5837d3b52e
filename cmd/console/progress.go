package console

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// UsualWidth is how wide a terminal is that was told no size, such as a serial line.
const UsualWidth = 80

// Width is how many columns a terminal has, and 0 for what is none.
func Width(w any) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if size.Col == 0 {
		return UsualWidth
	}
	return int(size.Col)
}

// Progress tells a person who waits how far something is, from two seconds on: one line that is written anew on a
// terminal, and a line every several seconds elsewhere. Counting is safe from any goroutine.
type Progress struct {
	what     string
	done, of atomic.Int64
	end      chan struct{}
	told     chan struct{}
}

// How soon something is told of, and how often.
const (
	firstAfter  = 2 * time.Second
	onTerminal  = 250 * time.Millisecond
	notTerminal = 5 * time.Second
)

// NewProgress begins: what is the sentence's beginning, such as "hora: sending files". Done ends it.
func NewProgress(w io.Writer, what string) *Progress {
	p := &Progress{what: what, end: make(chan struct{}), told: make(chan struct{})}
	live, every := Width(w) > 0, notTerminal
	if live {
		every = onTerminal
	}
	go func() {
		defer close(p.told)
		tick := time.NewTicker(every)
		defer tick.Stop()
		p.tell(w, live, time.After(firstAfter), tick.C)
	}()
	return p
}

func (p *Progress) tell(w io.Writer, live bool, first, tick <-chan time.Time) {
	select {
	case <-first:
	case <-p.end:
		return
	}
	for {
		if live {
			fmt.Fprintf(w, "\r\x1b[K%s", p)
		} else {
			fmt.Fprintln(w, p)
		}
		select {
		case <-tick:
		case <-p.end:
			if live {
				fmt.Fprint(w, "\r\x1b[K")
			}
			return
		}
	}
}

func (p *Progress) String() string {
	done, of := p.done.Load(), p.of.Load()
	switch {
	case of > 0:
		return fmt.Sprintf("%s: %d of %d", p.what, done, of)
	case done > 0:
		return fmt.Sprintf("%s: %d so far", p.what, done)
	}
	return p.what
}

// Of says how many there are in all.
func (p *Progress) Of(n int) { p.of.Store(int64(n)) }

// Count says that one more is done.
func (p *Progress) Count() { p.done.Add(1) }

// Done ends it, and takes the line off a terminal.
func (p *Progress) Done() {
	close(p.end)
	<-p.told
}
