package engine

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"hora/collective"
	"hora/transport"
)

// Named operations come in any order. What one Submit brought is a unit; it is released
// as a whole. A unit is known by the hash of its names, and once the ranks have met it,
// by its number in a table that is the same on all ranks.
//
// A round is one small AND over what each rank has: the fingerprint of its oldest unit
// and that fingerprint's complement, flags, and one bit per known unit. If all
// fingerprints are equal the AND shows it, and that unit runs, known or not; every unit
// whose bit survived runs too. When units are unknown, rank 0 (the lowest rank that has
// not joined) broadcasts the names of its own, once.
//
// A rank enters a round when it has news: a unit or a join that no round has seen. It
// also enters when it hears the bell of a round that others have begun and it has
// something pending. So every round has a submission that caused it, and when nothing
// is new anywhere, nothing runs. A round that has waited a moment rings the bell.
type names struct {
	g *Group

	// Guarded by Group.mu.
	inflight     map[string]*unit
	byKey        map[uint64]*unit // pending and not running
	firstPending *unit            // of pending units, linked by next
	newest       *unit
	freeU        *unit
	news         bool
	rang         uint64 // greatest round number that a bell announced
	joined       bool
	joinedAt     uint64      // the round number of my join
	lastOne      int         // who joined last, once all have
	allIn        bool        // all have joined since I did
	passed       bool        // the turn was handed to the worker, in the middle of a round or before a planned step
	handedStep   bool        // of which chosen has the units
	begun        bool        // and whose first operation, under stamp first, was begun by who left it
	idle         bool        // the plan's patience has ended
	patient      bool        // its timer runs
	patientAt    uint64      // since this operation
	roundSeen    uint64      // greatest number that this rank has taken part in
	roundOver    uint64      // and that has ended: what was offered in a later one can not be taken back
	calm         atomic.Bool // nothing but the plan need be looked at; see fast.go
	another      bool        // another round follows at once, on all ranks
	lone         string      // the name of what runs without a unit; see single.go
	spare        *cell       // for its unit, should it need one

	// Owned by whoever has the turn.
	table    table
	plan     plan
	words    []uint64
	round    collective.Call
	stamp    transport.Stamp
	open     bool    // the round was begun and not finished
	joinSeen bool    // the last round had joined ranks
	chosen   []*unit // what the present step runs
	picked   []*unit // what the present round released
	batches  []batch
	members  []*op
	packing  arena
	zeros    arena
	bell     *time.Timer
	patience *time.Timer
	ignored  arena // results that a joined rank has no use for
	scratch  [1]int64
	aux      collective.Call
	first    transport.Stamp // of the present batch
	intro    []uint64
	loose    []*op
	gaps     bool // dropList has ended some of members
	keys     []uint64
	offered  *unit         // whose fingerprint is in the present round
	away     bool          // this rank is joined in the present round
	ringing  atomic.Uint64 // the round that the bell is to ring for
	// Event times of the present step and batch; 0 when nobody listens.
	agreed, packed, reduced int64

	firsts readiness
}

// unit is what one Submit brought.
type unit struct {
	next, prev *unit
	first      *op // its operations, linked by op.next; the turn's holder's while it runs
	count      int
	kind       collective.Kind // of its first operation, and its name: for messages
	name       string
	key        uint64 // of its names
	print      uint64 // of its fingerprints
	// of a single operation with a counted name; see serial.go. Chosen by that on all ranks or on none
	stem    string
	since   time.Time
	limit   time.Duration // the shortest of its requests' own; 0 is none
	running bool
	phantom bool   // made up for a joined rank
	round   uint64 // the last round that it was offered in
}

// named is what an op carries in a named group.
type named struct {
	print   fingerprint
	phantom bool // zeros of a joined rank
	place   int  // in its step, before packing
	entry   int  // its unit's place in the table, -1 for none
	alone   bool // it is not packed though it could be; see alone.go
}

const (
	// bellDelay is how long a round waits before it tells ranks that may not know.
	bellDelay = 200 * time.Microsecond
	// planPatience is how long the next planned unit may be missing while others wait.
	planPatience = time.Millisecond
)

func newNames(g *Group) *names {
	n := &names{g: g, inflight: map[string]*unit{}, byKey: map[uint64]*unit{}}
	n.table.init(g.cfg.Names)
	n.plan.off = g.cfg.Names < 0
	return n
}

// admit refuses names that are in flight, and anything after Join. mu is held.
func (n *names) admit(rs []Request) error {
	for i := range rs {
		if rs[i].pair() {
			continue
		}
		if n.joined {
			return invalid(&rs[i], "this rank has joined; wait for Join to return before submitting more")
		}
		duplicate := n.inflight[rs[i].Name] != nil || rs[i].Name == n.lone
		for j := 0; j < i && !duplicate; j++ {
			duplicate = rs[j].Name == rs[i].Name
		}
		if duplicate {
			return &InvalidError{fmt.Sprintf("Duplicate tensor name %s: an operation of that name is in flight on this rank; wait for it or choose another name", rs[i].Name)}
		}
	}
	return nil
}

// bundle makes the unit that rs form. mu is held.
func (n *names) bundle(rs []Request) *unit {
	u := n.freeU
	if u == nil {
		u = new(unit)
	} else {
		n.freeU = u.next
	}
	*u = unit{key: unitKey(rs), since: time.Now(), limit: Soonest(rs), kind: rs[0].Kind, name: rs[0].Name}
	if u.limit > 0 {
		n.g.hurry(u.limit)
	}
	if len(rs) == 1 {
		u.stem = stemOf(rs[0].Counted, u.name)
	}
	return u
}

// add puts o into u; the last one makes u pending. mu is held.
func (n *names) add(o *op, u *unit) {
	o.print = fingerprintOf(&o.Request)
	if u.first == nil {
		u.first = o
		u.print = uint64(o.print)
		u.prev = n.newest
		if n.newest == nil {
			n.firstPending = u
		} else {
			n.newest.next = u
		}
		n.newest = u
		if n.byKey[u.key] == nil { // else it waits until that one is done: see lists.go
			n.byKey[u.key] = u
		}
		n.news = true
	} else {
		last := u.first
		for last.next != nil {
			last = last.next
		}
		last.next = o
		u.print = uint64(fingerprint(u.print).mix(uint64(o.print)))
	}
	u.count++
	n.inflight[o.Name] = u
}

// detach takes u off the pending list. mu is held.
func (n *names) detach(u *unit) {
	if u.prev == nil {
		n.firstPending = u.next
	} else {
		u.prev.next = u.next
	}
	if u.next == nil {
		n.newest = u.prev
	} else {
		u.next.prev = u.prev
	}
	next := u.next
	u.prev, u.next = nil, nil
	if n.byKey[u.key] == u {
		n.succeed(u, next)
	}
}

// drain fails all units that do not run. mu is held.
func (n *names) drain() {
	for u := n.firstPending; u != nil; {
		next := u.next
		if !u.running {
			n.detach(u)
			for o := u.first; o != nil; {
				after := o.next
				o.next = nil
				n.finish(o, n.g.failure(&o.Request))
				o = after
			}
		}
		u = next
	}
}

// finish completes one operation. mu is held.
func (n *names) finish(o *op, err error) {
	delete(n.inflight, o.Name)
	n.g.queued.Add(-1)
	n.g.complete(o, err)
}

// ready reports that there is something to do for whoever takes the turn. mu is held.
func (n *names) ready() bool {
	g := n.g
	switch {
	case g.cause.Load() != nil:
		return false
	case n.another:
		return true
	case n.gone():
		return true
	case n.rang > n.roundSeen && (n.firstPending != nil || n.plan.active):
		return true
	case n.plan.active:
		return n.firstPending != nil && (n.idle || n.news)
	}
	return n.news && n.firstPending != nil
}

// rung hears that a round has begun elsewhere, and passes the news on along a tree
// whose root is the rank that rang.
func (n *names) rung(seq uint64, origin int) {
	g := n.g
	g.mu.Lock()
	fresh := seq > n.rang
	if fresh {
		n.rang = seq
		n.calm.Store(false)
		if n.ready() {
			g.wake()
		}
	}
	g.mu.Unlock()
	if fresh {
		n.ring(seq, origin)
	}
}

// ring tells this rank's part of the tree that round seq has begun.
func (n *names) ring(seq uint64, origin int) { n.g.plant(bellMessage(seq, origin), origin) }

// plant tells msg to this rank's children in the tree whose root is origin.
func (g *Group) plant(msg []byte, origin int) {
	size := g.Size()
	me := (g.Rank() - origin + size) % size
	for step := 1; step < size; step <<= 1 {
		if step > me && me+step < size {
			g.tell((me+step+origin)%size, msg)
		}
	}
}

// oldest returns the unit that has waited longest, for the watch.
func (n *names) oldest() stuckAt {
	g := n.g
	g.mu.Lock()
	defer g.mu.Unlock()
	var u *unit
	for _, v := range n.inflight {
		if u == nil || v.since.Before(u.since) {
			u = v
		}
	}
	if u == nil && g.turn.Load() != 0 {
		// Perhaps one that took the short way.
		if busy, p, _ := g.view.read(); busy {
			return stuckAt{seq: p.seq, kind: p.kind, name: p.name}
		}
	}
	if u == nil {
		return stuckAt{}
	}
	return stuckAt{kind: u.kind, name: u.name, since: u.since}
}

// answer says where this rank is with regard to the operation called name.
func (n *names) answer(a *answer, name string) {
	g := n.g
	g.mu.Lock()
	defer g.mu.Unlock()
	busy, present, _ := g.view.read()
	in := n.inflight[name] != nil || n.lone == name || busy && present.name == name
	var was string
	if at := g.stalled.Load(); at != nil {
		was = at.name
	}
	if in || n.joined || was == name && was != "" {
		a.here, a.waits = true, in
		return
	}
	a.nearest = nearest(name, func(yield func(string) bool) {
		for other := range n.inflight {
			if !yield(other) {
				return
			}
		}
		if was != "" {
			yield(was)
		}
	})
	var list []string
	for u := n.firstPending; u != nil && len(list) < 6; u = u.next {
		for o := u.first; o != nil && len(list) < 6; o = o.next {
			list = append(list, o.Name)
		}
	}
	if len(list) == 0 && was != "" {
		list = append(list, was)
	}
	if len(n.inflight) > len(list) && len(list) > 0 {
		list = append(list, "…")
	}
	if len(list) > 0 {
		a.pending = "[" + strings.Join(list, ", ") + "]"
	}
}

// idleOps lists the operations of cell e that have not begun, after those in list. What
// others may by now have seen in the open round has.
func (n *names) idleOps(e *cell, list []*op) []*op {
	for u := n.firstPending; u != nil; u = u.next {
		if u.running || u.round > n.roundOver {
			continue
		}
		for o := u.first; o != nil; o = o.next {
			if o.cell == e {
				list = append(list, o)
			}
		}
	}
	return list
}

// remove takes o, which has not begun, out of its unit, and the unit away with it: what
// is left of a unit can not be matched. Cancel removes all of a ticket's operations, so
// a unit loses either all or, with tickets for each, is refused by cancellable.
func (n *names) remove(o *op) {
	u := n.inflight[o.Name]
	delete(n.inflight, o.Name)
	if u == nil {
		return
	}
	var before *op
	for p := u.first; p != nil; before, p = p, p.next {
		if p == o {
			if before == nil {
				u.first = o.next
			} else {
				before.next = o.next
			}
			break
		}
	}
	o.next = nil
	if u.count--; u.count == 0 {
		n.detach(u)
		n.recycle(u)
	}
}

// whole reports that list holds all operations of every unit it touches. mu is held.
func (n *names) whole(list []*op) bool {
	have := map[*unit]int{}
	for _, o := range list {
		if u := n.inflight[o.Name]; u != nil {
			have[u]++
		}
	}
	for u, k := range have {
		if k != u.count {
			return false
		}
	}
	return true
}

func (n *names) recycle(u *unit) {
	*u = unit{next: n.freeU}
	n.freeU = u
}
