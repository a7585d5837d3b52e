package launch

import (
	"time"

	"hora/event"
)

// crew is who works on a job, and where: ranks, their seats, and the links to their hosts' agents.
type crew struct {
	spec     *settings
	reach    Reach
	hosts    []Host
	seats    []Seat
	links    []*link
	alive    []bool            // by rank
	begun    map[int]time.Time // by rank: when its present process was asked for
	condemn  map[int]string    // by rank: why its process, which is lost to the job, is being ended
	rts      []route           // by host
	port     int               // of the coordinator
	door     string            // at which it listens; "" is at all addresses
	callSize int64             // of the call; -1 where there is none
	ledger   *ledger           // of a job that can be adopted; nil for others
	resuming chan struct{}     // of an adopted one: closed when its agents are heard; nil for others
}

func (c *crew) event(e event.Event) {
	if c.ledger == nil || !c.ledger.lives.Load() { // else it was told then
		c.spec.Events.Emit(e)
	}
}
