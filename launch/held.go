package launch

import (
	"time"

	"hora/elastic/rendezvous"
	"hora/event"
)

// hold is what holds a process on this machine on purpose.
type hold struct {
	host, why string
	since     time.Time
	told      bool
}

// holds are the holds of a job's ranks.
type holds struct {
	held map[int]*hold // by rank: what holds its process
	say  func(event.Event)
}

// heldFor is how long a process is held before somebody is told: a look at it by gdb or strace takes less.
const heldFor = 2 * time.Second

// halted passes on what holds a process. On another host nobody is there who would let it go on: whatever stops it there
// counts as a stop.
func (h *holds) halted(l *link, rank int, halt rendezvous.Halt, server coordinator) {
	if halt.Excused() && !l.host.Attended {
		halt = rendezvous.Stopped
	}
	server.Halted(rank, halt)
	if !halt.Excused() {
		h.release(rank)
	} else if is := h.held[rank]; is == nil || is.why != halt.String() {
		h.release(rank)
		h.held[rank] = &hold{host: l.called, why: halt.String(), since: time.Now()}
	}
}

// release ends that.
func (h *holds) release(rank int) {
	if is := h.held[rank]; is != nil && is.told {
		h.say(&event.Held{Rank: rank, Host: is.host})
	}
	delete(h.held, rank)
}

// tellHeld tells of processes that have been held for a while.
func (h *holds) tellHeld() {
	for rank, is := range h.held {
		if !is.told && time.Since(is.since) >= heldFor {
			is.told = true
			h.say(&event.Held{Rank: rank, Host: is.host, Why: is.why})
		}
	}
}
