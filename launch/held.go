package launch

import (
	"fmt"
	"syscall"
	"time"

	"hora/elastic/rendezvous"
	"hora/event"
	"hora/internal/wire"
	"hora/launch/protocol"
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

// halted passes on what holds a process. On another host nobody is there who would let it go on: whatever stops it there
// counts as a stop.
func (h *holds) halted(l *link, rank int, halt rendezvous.Halt, server coordinator) {
	if halt.Excused() && !l.host.Attended {
		halt = rendezvous.Stopped
	}
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

// release ends that.
func (h *holds) release(rank int) {
	if is := h.held[rank]; is != nil && is.told {
		h.say(&event.Held{Rank: rank, Host: is.host})
	}
	delete(h.held, rank)
}

// endStopped ends processes that are stopped although the coordinator has let them go: who has left the others has only to
// end, may take its time for that, and would be waited for without end when it is stopped. It counts pings and not
// time, for a launcher that was stopped itself has not seen who went on meanwhile.
func (j *job) endStopped() {
	limit := int((j.spec.Silence+endStoppedAfter)/time.Second) + 1
	for rank, pings := range j.frozen {
		if _, member := j.took.Load(rank); !member || !j.alive[rank] || j.condemn[rank] != "" {
			continue
		}
		j.frozen[rank] = pings + 1
		if pings+1 < limit {
			continue
		}
		j.condemn[rank] = fmt.Sprintf("its process was stopped after its work with the others, and did not go on for %v (HORA_PEER_TIMEOUT, hora run --peer-timeout)", j.spec.Silence)
		j.links[j.seats[rank].Host].send(protocol.CmdSignal, wire.AppendI64(wire.AppendI64(nil, int64(rank)), int64(syscall.SIGKILL)))
	}
}

// endStoppedAfter is what the coordinator has beyond the peer timeout to say that a member is lost.
const endStoppedAfter = 2 * time.Second

// tellHeld tells of processes that have been held for a while.
func (h *holds) tellHeld() {
	for rank, is := range h.held {
		if !is.told && time.Since(is.since) >= heldFor {
			is.told = true
			h.say(&event.Held{Rank: rank, Host: is.host, Why: is.why})
		}
	}
}
