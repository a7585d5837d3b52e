package engine

import (
	"fmt"
	"runtime"

	"hora/transport"
)

// Submit queues rs and returns at once. tickets has one element per request or a single
// one for all of them, or is empty when nobody will wait. In a named group the requests
// of one Submit are released together or not at all; ranks whose lists begin with one name and
// are of different lengths get a *MismatchError.
//
// An *InvalidError refuses all of rs.
func (g *Group) Submit(rs []Request, tickets []Ticket) error {
	if len(tickets) > 1 && len(tickets) != len(rs) {
		return &InvalidError{fmt.Sprintf("submit: %d tickets for %d requests; give one each, or one for all", len(tickets), len(rs))}
	}
	return g.submit(rs, tickets, true)
}

// submit queues rs and, if wake, has the worker look at once; a caller that waits
// anyway may do the work itself.
func (g *Group) submit(rs []Request, tickets []Ticket, wake bool) error {
	pairs := false
	for i := range rs {
		if err := g.check(&rs[i]); err != nil {
			return err
		}
		pairs = pairs || rs[i].pair()
	}
	if len(rs) == 0 {
		clear(tickets)
		return nil
	}
	if len(rs) > 1 {
		if err := g.checkApart(rs); err != nil {
			return err
		}
	}
	err := g.enqueue(rs, tickets, wake)
	if pairs {
		g.pairs.flush()
	}
	return err
}

func (g *Group) enqueue(rs []Request, tickets []Ticket, wake bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause.Load() != nil {
		return g.failure(&rs[0])
	}
	if g.names != nil {
		if err := g.names.admit(rs); err != nil {
			return err
		}
	}
	if g.cells.left() < len(rs) { // before anything is taken that would have to be given back
		return g.tooMany()
	}
	var shared *cell
	if len(tickets) == 1 && len(rs) > 1 {
		shared = g.cells.take(len(rs))
		tickets[0] = shared.ticket()
	}
	var bundle *unit
	called, listed, at := false, together(rs), int32(0)
	for i := range rs {
		o := g.newOp(&rs[i])
		if listed > 1 && !o.pair() {
			o.of, o.at = int32(listed), at
			at++
		}
		switch {
		case shared != nil:
			o.cell = shared
		case len(tickets) > 0:
			o.cell = g.cells.take(1)
			tickets[i] = o.cell.ticket()
		}
		if o.pair() {
			g.pairs.post(o)
			continue
		}
		called = true
		g.queued.Add(1)
		if g.names != nil {
			if bundle == nil {
				bundle = g.names.bundle(rs)
			}
			g.names.add(o, bundle)
			o.cell.await(o, bundle.key)
			continue
		}
		o.cell.await(o, 0)
		if g.tail == nil {
			g.head, g.tail = o, o
		} else {
			g.tail.next, g.tail = o, o
		}
	}
	if called {
		transport.Note(&g.given, g.given+1)
	}
	if wake && (g.names == nil || g.names.stirs()) {
		g.wake()
	}
	return nil
}

func (g *Group) tooMany() error {
	return &InvalidError{fmt.Sprintf("submit: %d operations are in flight in group %s; wait for some before submitting more", maxCells-1, g.cfg.Name)}
}

// wake lets the worker look, and starts it the first time. mu is held.
func (g *Group) wake() {
	if !g.started && !g.closing {
		g.started = true
		g.wg.Add(1)
		go g.worker()
		return
	}
	g.work.Signal()
}

// worker runs what is queued, in order, on an OS thread of its own.
func (g *Group) worker() {
	defer g.wg.Done()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		o, round := g.next()
		switch {
		case g.names != nil && (round || o != nil):
			g.mu.Unlock()
			if round {
				g.names.step(-1)
			} else {
				g.names.resume(o)
			}
			g.turn.Store(0)
			g.mu.Lock()
			continue
		case o == nil:
			return
		}
		g.mu.Unlock()
		err := g.perform(o)
		g.turn.Store(0)
		g.mu.Lock()
		g.queued.Add(-1)
		g.complete(o, err)
	}
}

// next waits for an operation, or in a named group for a round to do, and takes the
// turn for it; neither means that the group is closing. mu is held.
func (g *Group) next() (o *op, round bool) {
	for {
		if o := g.handed; o != nil {
			g.handed = nil
			return o, false
		}
		if g.names != nil && g.names.passed {
			g.names.passed = false // the turn came with it
			return nil, true
		}
		if g.closing {
			return nil, false
		}
		switch {
		case g.names != nil:
			if g.names.ready() && g.turn.CompareAndSwap(0, 1) {
				return nil, true
			}
		case g.head != nil && g.turn.CompareAndSwap(0, 1):
			o := g.head
			g.head = o.next
			if g.head == nil {
				g.tail = nil
			}
			o.next = nil
			return o, false
		}
		g.work.Wait()
	}
}

// Cancel takes back what t stands for if none of it has begun; it then completes with
// ErrCancelled. Ranks that have begun it wait until it is submitted again. A named operation
// has begun once a round has told the others of it, until that round ends without it.
func (g *Group) Cancel(t Ticket) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.cells.find(t)
	if e == nil || e.left == 0 {
		return false
	}
	var mine []*op
	for o := g.head; o != nil; o = o.next {
		if o.cell == e {
			mine = append(mine, o)
		}
	}
	if g.names != nil {
		mine = g.names.idleOps(e, mine)
		if !g.names.whole(mine) {
			return false
		}
	}
	if !wholeCalls(mine) {
		return false
	}
	mine = g.pairs.idleOps(e, mine)
	if len(mine) != int(e.left) {
		return false
	}
	g.taken(mine)
	for _, o := range mine {
		g.unlink(o)
		g.complete(o, fmt.Errorf("%s %s: %w", o.Kind, o.Name, ErrCancelled))
	}
	return true
}

// unlink takes o out of whatever holds it. mu is held.
func (g *Group) unlink(o *op) {
	if o.pair() {
		g.pairs.remove(o)
		return
	}
	g.queued.Add(-1)
	if g.names != nil {
		g.names.remove(o)
		return
	}
	var before *op
	for p := g.head; p != nil; before, p = p, p.next {
		if p != o {
			continue
		}
		if before == nil {
			g.head = o.next
		} else {
			before.next = o.next
		}
		if g.tail == o {
			g.tail = before
		}
		return
	}
}
