package launch

import (
	"sync"
	"sync/atomic"
	"time"

	"hora/elastic/rendezvous"
)

// meeting is the workers' meeting as the launcher knows it: the coordinator, and what has been heard of it.
type meeting struct {
	server coordinator
	absent map[int]bool      // by rank: what the coordinator has been told of it
	coming map[int]time.Time // by rank: when a process was ordered that it has been told of, and that has not taken part yet
	// Written by the coordinator's goroutine:
	epoch    atomic.Uint64                   // the last that opened
	size     atomic.Int64                    // of that epoch
	complete atomic.Bool                     // every worker has done its work
	waits    atomic.Pointer[rendezvous.Wait] // for whom an epoch waits
	took     sync.Map                        // rank -> its present process has been a member
	drained  sync.Map                        // rank -> why it left before the work was done, until its process has ended
}

// anew forgets what a rank's last process has said: another is started.
func (m *meeting) anew(rank int) {
	m.drained.Delete(rank)
	m.took.Delete(rank)
}
