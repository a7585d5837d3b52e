package engine

import (
	"sync/atomic"
	"time"

	"hora/event"
	"hora/internal/wire"
)

// readiness is how rank 0's listeners learn when each rank had a name for the first
// time. Rank 0 asks the others once; from then on each tells what it meets first, and
// what it has met lately. When nobody listens on rank 0 any more, it calls that off at
// the next word. Names that are known cost nothing.
type readiness struct {
	asked atomic.Bool // rank 0: the others were asked

	watched atomic.Bool // rank 0 has asked; changed with Group.mu held

	// Guarded by Group.mu.
	met []meeting // while it has not: the newest names met
}

// meeting is a name and when this rank had it first.
type meeting struct {
	name string
	at   time.Time
}

const (
	maxMet = 512
	// readyBytes is the length that a message of ready names does not grow beyond, but
	// for its last name.
	readyBytes = 8 << 10
)

// meet looks through what a round has released for names that are new. The turn is held.
func (n *names) meet() {
	g := n.g
	if g.Size() == 1 {
		return
	}
	if g.Rank() == 0 {
		if g.cfg.Events.On() && n.firsts.asked.CompareAndSwap(false, true) {
			n.askReady()
		}
		return
	}
	var fresh []meeting
	for _, u := range n.chosen {
		if i := n.table.find(u.key); u.phantom || i >= 0 && n.table.entries[i].runs > 0 {
			continue
		}
		for o := u.first; o != nil; o = o.next {
			fresh = append(fresh, meeting{o.Name, u.since})
		}
	}
	if fresh == nil {
		return
	}
	r := &n.firsts
	g.mu.Lock()
	watched := r.watched.Load()
	if !watched {
		r.met = append(r.met, fresh...)
		if old := len(r.met) - maxMet; old > 0 {
			r.met = append(r.met[:0], r.met[old:]...)
		}
	}
	g.mu.Unlock()
	if watched {
		n.tellMet(fresh)
	}
}

// meetCounted does the same for a planned step with a counted name, which is new each
// time. The turn is held.
func (n *names) meetCounted(name string) {
	g := n.g
	switch {
	case g.Size() == 1:
	case g.Rank() != 0:
		if n.firsts.watched.Load() {
			n.tellMet([]meeting{{name, time.Now()}})
		}
	case g.cfg.Events.On() && n.firsts.asked.CompareAndSwap(false, true):
		n.askReady()
	}
}

// askReady has the other ranks tell what they meet.
func (n *names) askReady() {
	msg := watchMessage(true)
	for r := 1; r < n.g.Size(); r++ {
		n.g.tell(r, msg)
	}
}

func watchMessage(on bool) []byte { return wire.AppendBool(wire.AppendU8(nil, tellWatch), on) }

// watched hears whether rank 0 wants to know.
func (n *names) watched(on bool) {
	r := &n.firsts
	n.g.mu.Lock()
	r.watched.Store(on)
	var met []meeting
	if on {
		met, r.met = r.met, nil
	}
	n.g.mu.Unlock()
	n.tellMet(met)
}

// tellMet sends list to rank 0.
func (n *names) tellMet(list []meeting) {
	var msg []byte
	for _, m := range list {
		if msg == nil {
			msg = wire.AppendU8(nil, tellReady)
		}
		msg = wire.AppendI64(msg, m.at.UnixNano())
		msg = wire.AppendString(msg, m.name[:min(len(m.name), maxDescribedName)])
		if len(msg) > readyBytes {
			n.g.tell(0, msg)
			msg = nil
		}
	}
	if msg != nil {
		n.g.tell(0, msg)
	}
}

// hearReady takes what another rank has met.
func (n *names) hearReady(from int, d *wire.Decoder) {
	g := n.g
	if !g.cfg.Events.On() {
		n.firsts.asked.Store(false)
		g.tell(from, watchMessage(false))
		return
	}
	for d.Left() > 0 {
		at, name := d.I64(), d.String(maxDescribedName)
		if d.Err() != nil {
			return
		}
		g.cfg.Events.Emit(&event.Ready{Group: g.cfg.Name, Name: name, Rank: g.worldRank(from), At: time.Unix(0, at)})
	}
}
