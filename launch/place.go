package launch

import (
	"fmt"
	"strings"
)

// Seat is where one rank runs.
type Seat struct {
	Rank, LocalRank, LocalSize int
	CrossRank, CrossSize       int
	Host                       int // index into the hosts
	Slot                       int // on that host
}

// placeRanks fills hosts in order with np ranks: a host is full before the next gets one.
func placeRanks(hosts []Host, np int) ([]Seat, error) {
	total := 0
	for _, h := range hosts {
		total += h.Slots
	}
	if np > total {
		names := make([]string, len(hosts))
		for i, h := range hosts {
			names[i] = fmt.Sprintf("%s:%d", h.Name, h.Slots)
		}
		return nil, fault(ExitUsage, "-np %d needs %d slots, and %s has %d: add hosts or slots, or lower -np", np, np, strings.Join(names, ","), total)
	}
	seats := make([]Seat, 0, np)
	cross := map[int]int{}
	for h := range hosts {
		n := min(hosts[h].Slots, np-len(seats))
		for l := range n {
			seats = append(seats, Seat{
				Rank: len(seats), LocalRank: l, LocalSize: n, CrossRank: cross[l], Host: h,
				Slot: l,
			})
			cross[l]++
		}
	}
	for i := range seats {
		seats[i].CrossSize = cross[seats[i].LocalRank]
	}
	return seats, nil
}

// neighbours makes hosts that are called alike one: several agents that came from one machine are no hosts of their
// own.
func (c *crew) neighbours() {
	called := func(s Seat) string { return c.spec.Reach.Called(c.hosts[s.Host].Name) }
	size, cross, alike := map[string]int{}, map[int]int{}, false
	for i := range c.seats {
		s := &c.seats[i]
		name := called(*s)
		alike = alike || s.LocalRank != size[name]
		s.LocalRank = size[name]
		size[name]++
	}
	if !alike {
		return
	}
	for i := range c.seats {
		s := &c.seats[i]
		s.LocalSize, s.CrossRank = size[called(*s)], cross[s.LocalRank]
		cross[s.LocalRank]++
	}
	for i := range c.seats {
		c.seats[i].CrossSize = cross[c.seats[i].LocalRank]
	}
}
