package launch

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"hora/elastic/rendezvous"
)

// crew is who works on a job, and where: ranks, their seats and processes, and the hosts that these are on.
type crew struct {
	spec    *settings
	hosts   []Host
	seats   []Seat
	alive   []bool            // by rank
	begun   map[int]time.Time // by rank: when its present process was asked for
	condemn map[int]string    // by rank: why its process, which is lost to the job, is being ended
	names   sync.Map          // by rank: what its present process is called, if it is not its first
}

// deal deals the ranks to the hosts.
func (c *crew) deal() (err error) {
	if c.seats, err = placeRanks(c.spec.Hosts, c.spec.NP); err != nil {
		return err
	}
	c.alive = make([]bool, len(c.seats))
	c.neighbours()
	return nil
}

// peopled returns the hosts that have a rank at the job's beginning: they are filled in order.
func (c *crew) peopled() []Host {
	used := 0
	for _, s := range c.seats {
		used = max(used, s.Host+1)
	}
	return c.hosts[:used]
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

// works says whether any worker of a host's runs there, or is to.
func (c *crew) works(l *link) bool {
	return slices.ContainsFunc(c.seats, func(s Seat) bool {
		return s.Host == l.index && (c.alive[s.Rank] || !l.planned)
	})
}
