package engine

import (
	"strings"
	"time"
	"unsafe"

	"hora/transport"
)

// A caller that brings one operation with a known name, with nothing else there on its rank,
// mostly meets ranks that do the same. It enters the round at once and, when the round shows
// that everybody's is this one, runs it: no unit, no ticket, no list, which together cost
// more than a small sum and its round. The other ranks see the same messages either way. What
// goes on otherwise, or waits for longer than a moment, becomes a unit and takes the long way
// from there.

// asked is what a name was last asked for, checked, with the fingerprint.
type asked struct {
	name                 string
	what                 uint64 // as known's; 0: nothing is here
	sendCount, recvCount int
	print                fingerprint
}

// single tries r as the only operation of this rank. ok is false where it has done nothing.
// Else r is done, or is what t stands for. The turn is held; it is given up, or left to the
// worker.
func (n *names) single(r *Request, budget time.Duration) (t Ticket, ok bool, err error) {
	g := n.g
	i, p := n.recall(r)
	if i < 0 || !n.occupy(r.Name) {
		n.yield()
		return 0, false, nil
	}
	g.number()
	n.bare()
	n.words[wordPrint], n.words[wordComplement] = uint64(p), ^uint64(p)
	n.words[wordFlags] = flagNoneJoined | flagKnown | flagCounted
	n.words[headWords+i/64] = 1 << (i % 64)
	n.compose()
	here, err := g.comm.Arrive(n.stamp, &n.round, bellDelay)
	ran := err == nil && here
	if ran {
		if err = g.comm.Run(n.stamp, &n.round, time.Time{}); err == nil && n.unanimous() {
			return 0, true, n.onlyOne(r, i, p)
		}
	}
	if t = n.unfold(r); t == 0 {
		n.open = false
		if !ran && err == nil {
			g.comm.Abandon(*g.cause.Load())
		}
		g.turn.Store(0)
		return 0, true, g.failure(r)
	}
	passed := false
	switch {
	case ran || err != nil:
		n.ended(err)
		n.after()
	default:
		n.ring(g.seq, g.Rank())
		passed = n.goOn(nil, budget)
	}
	if !passed {
		g.turn.Store(0)
	}
	return t, true, nil
}

// recall finds the number and the fingerprint of r's name, -1 where r must go the long way.
func (n *names) recall(r *Request) (int, fingerprint) {
	if r.Counted {
		return -1, 0
	}
	i := n.table.find(nameKey(r.Name, 1))
	if i < 0 || n.table.entries[i].runs == 0 {
		return -1, 0
	}
	a := &n.table.entries[i].asked
	what := r.plain()
	if what != 0 && a.what == what && a.sendCount == r.Send.Count && a.recvCount == r.Recv.Count && a.name == r.Name &&
		r.Send.Ptr != nil && r.Recv.Ptr != nil && r.clear() {
		return i, a.print
	}
	if r.pair() || n.g.check(r) != nil {
		return -1, 0
	}
	p := fingerprintOf(r)
	if what != 0 && r.Send.Ptr != nil && r.Recv.Ptr != nil {
		if a.name != r.Name {
			a.name = strings.Clone(r.Name)
		}
		a.what, a.sendCount, a.recvCount, a.print = what, r.Send.Count, r.Recv.Count, p
	}
	return i, p
}

// occupy begins a single operation if nothing else is to be done. The turn is held.
func (n *names) occupy(name string) bool {
	g := n.g
	if g.cfg.Events.On() {
		return false // they are told of units
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.queued.Load() != 0 || n.joined || n.another || n.plan.active || g.closing || g.cause.Load() != nil {
		return false
	}
	if n.spare == nil {
		if n.spare = g.cells.take(1); n.spare == nil {
			return false
		}
	}
	n.roundSeen = max(n.roundSeen, g.seq)
	n.news, n.idle = false, false
	n.open, n.lone = true, name
	return true
}

// unanimous reports that the round which has just run showed every rank with the same single
// operation, or with that one as its oldest, and nothing else to be done first.
func (n *names) unanimous() bool {
	w := n.words
	return w[wordFlags]&flagNoneJoined != 0 && w[wordPrint] == ^w[wordComplement] && !n.unknown()
}

// onlyOne runs r, unit i, which all ranks have come to, and notes the step as release does.
func (n *names) onlyOne(r *Request, i int, p fingerprint) error {
	g := n.g
	n.open, n.joinSeen = false, false
	g.view.end(g.seq)
	var err error
	if g.cause.Load() != nil {
		err = g.failure(r)
	} else {
		g.count()
		s := g.begin(r, p)
		if err = g.comm.Run(s, &r.Call, g.deadline(r)); err != nil {
			err = g.settle(r, s, err)
		}
		g.view.end(s.Seq)
	}
	key := n.table.entries[i].key
	step := uint64(fingerprint(printSeed).mix(key))
	n.keys = append(n.keys[:0], key)
	n.table.ran(i, step)
	g.mu.Lock()
	n.lone = ""
	n.plan.record(step, n.keys, r.Name, "")
	if n.plan.active {
		n.plan.locate(&n.table)
	}
	n.look()
	g.turn.Store(0)
	if n.ready() {
		g.wake()
	}
	g.mu.Unlock()
	return err
}

// unfold makes the unit of r, whose round is under way or has just run; 0 where the group has
// failed meanwhile.
func (n *names) unfold(r *Request) Ticket {
	g := n.g
	g.mu.Lock()
	defer g.mu.Unlock()
	n.lone = ""
	if g.cause.Load() != nil {
		return 0
	}
	o := g.newOp(r)
	o.cell, n.spare = n.spare, nil
	transport.Note(&g.given, g.given+1)
	g.queued.Add(1)
	news := n.news
	u := n.bundle(unsafe.Slice(r, 1))
	n.add(o, u)
	o.cell.await(o, u.key)
	n.offered, n.news, u.round = u, news, g.seq // this round has seen it
	return o.cell.ticket()
}
