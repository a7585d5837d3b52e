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

// heldFor is how long a process is held before somebody is told: a look at it by gdb or strace takes less.
const heldFor = 2 * time.Second

// halted passes on what holds a process. On another host nobody is there who would let it go on: whatever stops it there
// counts as a stop.
func (j *job) halted(l *link, rank int, halt rendezvous.Halt) {
	if halt.Excused() && !l.host.Attended {
		halt = rendezvous.Stopped
	}
	j.server.Halted(rank, halt)
	if !halt.Excused() {
		j.release(rank)
	} else if h := j.held[rank]; h == nil || h.why != halt.String() {
		j.release(rank)
		j.held[rank] = &hold{host: l.called, why: halt.String(), since: time.Now()}
	}
}

// release ends that.
func (j *job) release(rank int) {
	if h := j.held[rank]; h != nil && h.told {
		j.event(&event.Held{Rank: rank, Host: h.host})
	}
	delete(j.held, rank)
}

// tellHeld tells of processes that have been held for a while.
func (j *job) tellHeld() {
	for rank, h := range j.held {
		if !h.told && time.Since(h.since) >= heldFor {
			h.told = true
			j.event(&event.Held{Rank: rank, Host: h.host, Why: h.why})
		}
	}
}
