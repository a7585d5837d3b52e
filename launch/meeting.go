package launch

import (
	"sync"
	"sync/atomic"
	"time"

	"hora/elastic/rendezvous"
	"hora/event"
)

// meeting is the workers' meeting as the launcher knows it: the coordinator, and what has been heard of it.
type meeting struct {
	server coordinator
	absent map[int]bool // by rank: what the coordinator has been told of it
	// by rank: a process that it has been told of, and that has not taken part yet
	coming map[int]onItsWay
	lived  chan struct{}     // of an adopted job: closed when the coordinator has told again what it had
	past   map[int][]severed // by rank: whom it has told of as severed before that
	// Written by the coordinator's goroutine:
	epoch    atomic.Uint64                   // the last that opened
	size     atomic.Int64                    // of that epoch
	complete atomic.Bool                     // every worker has done its work
	waits    atomic.Pointer[rendezvous.Wait] // for whom an epoch waits
	took     sync.Map                        // rank -> its present process has been a member
	// rank -> why it left before the work was done, until its process has ended
	drained sync.Map
}

// onItsWay is a process that is being started beside an epoch.
type onItsWay struct {
	process string
	since   time.Time // when it was ordered
}

// isNew says whether what the coordinator tells is heard for the first time.
func (m *meeting) isNew() bool {
	select {
	case <-m.lived:
		return true
	default:
		return m.lived == nil
	}
}

func (m *meeting) tellNew(tell func(event.Event), e event.Event) {
	if m.isNew() {
		tell(e)
	}
}

// anew forgets what a rank's last process has said: another is started.
func (m *meeting) anew(rank int) {
	m.drained.Delete(rank)
	m.took.Delete(rank)
}
