package mem

import (
	"slices"
	"time"

	"hora/transport"
)

// Explain puts this rank's description into the table that all ranks share and waits
// for the others'.
func (m *Mesh) Explain(mine []byte) ([][]byte, error) {
	m.mu.Lock()
	ask := m.ask
	m.mu.Unlock()
	c := m.c
	c.mu.Lock()
	a := c.explain[ask]
	if a == nil {
		a = &answers{from: m.rank, texts: make([][]byte, len(c.nodes)), given: make([]bool, len(c.nodes))}
		c.explain[ask] = a
	}
	a.texts[m.rank] = slices.Clone(mine[:min(len(mine), transport.MaxDescription)])
	a.given[m.rank] = true
	c.mu.Unlock()
	c.wakeAll()

	end := time.Now().Add(c.cfg.PeerTimeout)
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		if m.broken != nil {
			return nil, m.broken
		}
		if c.answered(ask, a) || !time.Now().Before(end) {
			break
		}
		due := message{due: end}
		m.sleep(&due)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([][]byte, len(a.texts))
	copy(out, a.texts)
	return out, nil
}

// answered reports whether nobody else can be expected to describe the operation:
// each rank has, or is gone, or has gone on to a later one, or is not of the pair.
func (c *Cluster) answered(ask question, a *answers) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	pair := ask.seq&transport.PairSeq != 0
	for r, m := range c.nodes {
		switch {
		case a.given[r], c.left[r], c.lost != nil && c.lost.Rank == r:
		case pair && r != ask.lo && r != ask.hi:
		default:
			if pair {
				return false
			}
			if _, _, passed := m.came(ask.seq); !passed {
				return false
			}
		}
	}
	return true
}

// cutOff lets the others find out after the peer timeout that rank is silent.
func (c *Cluster) cutOff(rank int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent[rank] {
		return
	}
	c.silent[rank] = true
	c.alarms = append(c.alarms, time.AfterFunc(c.cfg.PeerTimeout, func() {
		c.lose(rank, "silent for "+c.cfg.PeerTimeout.String())
		c.wakeAll()
	}))
}

// silenced reports whether a rank's messages no longer arrive.
func (c *Cluster) silenced(rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.silent[rank]
}

// act is what the script makes of one message.
type act struct {
	do Action
	by time.Duration
}

const nothing = Action(255)

// next finds the fault for a rank's sent-th message, its sentTo-th to that peer. A cut
// link carries nothing that another fault could happen to.
func (s Script) next(from, to, sent, sentTo int) act {
	found := act{do: nothing}
	for _, f := range s {
		if f.From != from {
			continue
		}
		switch f.Do {
		case Kill, Leave:
			if sent >= f.At {
				return act{do: f.Do}
			}
		case Cut:
			if to == f.To && sentTo >= f.At {
				found = act{do: Cut}
			}
		case Drop, Garble:
			if to == f.To && sentTo == f.At && found.do != Cut {
				found = act{do: f.Do}
			}
		case Delay:
			if to == f.To && sentTo >= f.At && (found.do == nothing || found.do == Delay) {
				found = act{Delay, f.For}
			}
		}
	}
	return found
}
