package engine

import (
	"sync/atomic"
	"time"
)

// Help does pending work of a named group on the thread of a caller that is about to
// sleep until t is done: on a busy core that is cheaper than to have the worker do it. It
// returns when t is done, when somebody else is at work, or when the others have not come
// after about budget; whether t is done is for the caller to look at.
func (g *Group) Help(t Ticket, budget time.Duration) {
	if g.names != nil && g.near && t != 0 {
		g.help(t, budget)
	}
}

// help drives a named group on the thread of a caller that waits for t anyway, until t
// is done, others must come first, or the budget is used up. The worker does the rest.
func (g *Group) help(t Ticket, budget time.Duration) {
	n := g.names
	word := g.cells.state(uint32(t) % maxCells)
	pending := uint32(t >> 32)
	var end time.Time
	if budget >= 0 {
		end = time.Now().Add(budget)
	}
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
		if budget >= 0 {
			if budget = time.Until(end); budget < 0 {
				break
			}
		}
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
	if !n.patient {
		n.bePatient(planPatience)
	}
}

// bePatient arms it for d. mu is held.
func (n *names) bePatient(d time.Duration) {
	n.patient, n.patientAt = true, n.g.at()
	if n.patience == nil {
		n.patience = time.AfterFunc(d, n.outOfPatience)
		return
	}
	n.patience.Reset(d)
}

// outOfPatience has the plan broken, unless something was done since, or is being done
// for others who are late: then what is missing has not been missing for that long.
func (n *names) outOfPatience() {
	g := n.g
	g.mu.Lock()
	defer g.mu.Unlock()
	n.patient = false
	switch {
	case !n.plan.active || n.firstPending == nil:
	case g.turn.Load() != 0:
		n.bePatient(16 * planPatience)
	case n.patientAt != g.at():
		n.bePatient(planPatience)
	default:
		n.idle = true
		if n.ready() {
			g.wake()
		}
	}
}
