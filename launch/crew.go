package launch

import (
	"strconv"
	"sync"
	"time"

	"hora/elastic/rendezvous"
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
	names    sync.Map          // by rank: what its present process is called, if it is not its first
	ledger   *ledger           // of a job that can be adopted; nil for others
	resuming chan struct{}     // of an adopted one: closed when its agents are heard; nil for others
}

func (c *crew) event(e event.Event) {
	if c.ledger == nil || !c.ledger.lives.Load() { // else it was told then
		c.spec.Events.Emit(e)
	}
}

// process returns what the present process of a rank is called, or the one that is about to be started: the how manieth
// it is. Who adopts the job calls it the same.
func (c *crew) process(rank int) string {
	if name, is := c.names.Load(rank); is {
		return name.(string)
	}
	return "1"
}

// another begins to speak of the next process of a rank.
func (c *crew) another(rank int) {
	n, _ := strconv.Atoi(c.process(rank)) // it is ours
	c.names.Store(rank, strconv.Itoa(n+1))
}

// present says whether a process is the present one of its rank, and none before it of which a word comes late, or once
// more from a coordinator that lives through its journal. One that has no name is taken for it.
func (c *crew) present(p rendezvous.Process) bool { return p.Name == "" || p.Name == c.process(p.Rank) }
