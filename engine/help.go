package engine

import (
	"sync/atomic"
	"time"
)

// help drives a named group on the thread of a caller that waits for t anyway, until t
// is done, others must come first, or the budget is used up. The worker does the rest.
func (g *Group) help(t Ticket, budget time.Duration) {
	n := g.names
	word := g.cells.state(uint32(t) % maxCells)
	pending := uint32(t >> 32)
	for atomic.LoadUint32(word) == pending {
		if !g.turn.CompareAndSwap(0, 1) {
			break // whoever has it looks again before he sleeps
		}
		g.mu.Lock()
		ready := n.ready()
		g.mu.Unlock()
		if !ready {
			g.turn.Store(0)
			break
		}
		if n.step(budget) {
			return // the worker has the turn
		}
		g.turn.Store(0)
	}
	g.mu.Lock()
	if n.ready() || atomic.LoadUint32(word) == pending {
		g.wake()
	}
	g.mu.Unlock()
}

// awaited notes that somebody waits for e. mu is held.
func (g *Group) awaited(*cell) {
	if g.names != nil && g.names.ready() {
		g.wake()
	}
}

// armPatience wakes the worker when the planned step has been missing for a moment. mu
// is held.
func (n *names) armPatience() {
	if n.patient {
		return
	}
	n.patient = true
	if n.patience == nil {
		n.patience = time.AfterFunc(planPatience, func() {
			n.g.mu.Lock()
			n.patient, n.idle = false, true
			if n.ready() {
				n.g.wake()
			}
			n.g.mu.Unlock()
		})
		return
	}
	n.patience.Reset(planPatience)
}
