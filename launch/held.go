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
	held   map[int]*hold // by rank: what holds its process
	frozen map[int]int   // by rank: for how many pings in a row its process has been stopped, by nobody who is excused
	say    func(event.Event)
}

// heldFor is how long a process is held before somebody is told: a look at it by gdb or strace takes less.
const heldFor = 2 * time.Second

// halted passes on what holds a process.
func (h *holds) halted(l *link, rank int, halt rendezvous.Halt, server coordinator) {
	server.Halted(rank, halt)
	if _, is := h.frozen[rank]; halt != rendezvous.Stopped {
		delete(h.frozen, rank)
	} else if !is {
		h.frozen[rank] = 0
	}
	if !halt.Excused() {
		h.release(rank)
	} else if is := h.held[rank]; is == nil || is.why != halt.String() {
		h.release(rank)
		h.held[rank] = &hold{host: l.called, why: halt.String(), since: time.Now()}
	}
}

// forget drops what is known of a process that has ended.
func (h *holds) forget(rank int) {
	delete(h.held, rank)
	delete(h.frozen, rank)
}

// release ends what holds a rank's process.
func (h *holds) release(rank int) {
	if is := h.held[rank]; is != nil && is.told {
		h.say(&event.Held{Rank: rank, Host: is.host})
	}
	delete(h.held, rank)
}

// overdue returns the ranks whose processes have been stopped for so long that the coordinator would have lost them if
// it still looked at them: who has left the others has only to end, may take its time for that, and would be waited for
// without end. Pings are counted and not time: a launcher that was stopped itself has not seen who went on meanwhile.
func (h *holds) overdue(silence time.Duration) (ranks []int) {
	limit := int((silence+overdueAfter)/time.Second) + 1
	for rank := range h.frozen {
		if h.frozen[rank]++; h.frozen[rank] >= limit {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// overdueAfter is what the coordinator has beyond the peer timeout to say that a member is lost.
const overdueAfter = 2 * time.Second

// tell tells of processes that have been held for a while.
func (h *holds) tell() {
	for rank, is := range h.held {
		if !is.told && time.Since(is.since) >= heldFor {
			is.told = true
			h.say(&event.Held{Rank: rank, Host: is.host, Why: is.why})
		}
	}
}
