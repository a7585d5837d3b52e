package engine

import (
	"errors"
	"fmt"
	"sync/atomic"

	"hora/transport"
)

// A call is what a caller asked for at once: one operation, or a list of them. Ranks of an
// ordered group make the same calls in the same order, so the number of calls tells where
// each is, and two ranks that leave with different numbers have not done the same work. Sends
// and receives have no place in the order and are not counted.

// calls returns how many this rank has made in the group. It may be asked from any goroutine,
// without mu.
func (g *Group) calls() uint64 {
	return atomic.LoadUint64(&g.direct) + atomic.LoadUint64(&g.given)
}

// count notes a call that takes the short way. The turn is held.
func (g *Group) count() { transport.Note(&g.direct, g.direct+1) }

// uncount takes the last count back: the call goes the long way, which counts it again.
func (g *Group) uncount() { transport.Note(&g.direct, g.direct-1) }

// Owe counts n calls that this rank was asked for elsewhere and that come to nothing.
func (g *Group) Owe(n int) { atomic.AddUint64(&g.given, uint64(n)) }

// together returns the length of the call that rs are.
func together(rs []Request) (n int) {
	for i := range rs {
		if !rs[i].pair() {
			n++
		}
	}
	return n
}

// behind adds to the loss of a rank that left how many calls it had made.
func (g *Group) behind(err error) error {
	var lost *transport.PeerLostError
	if !errors.As(err, &lost) || !lost.Left() {
		return err
	}
	for r := range g.Size() {
		w, ok := g.parting.of(r)
		if g.worldRank(r) != lost.Rank || !ok || !w.left || w.calls == unknown {
			continue
		}
		more := *lost
		more.After = fmt.Sprintf(" after %s in %s, of which this rank has made %d", callCount(w.calls), g.called(), g.calls())
		if g.names != nil {
			more.Cure = UnevenCure
		}
		return &more
	}
	return err
}

// UnevenCure is what helps where some ranks have more batches than others.
const UnevenCure = "; where ranks have different numbers of batches, call hora.join() after the loop, or give all as many with hora.keras.shard or DistributedSampler(drop_last=True)"

// dropCall ends what is left of a call whose length differs between ranks: r has failed with
// wrong on all of them, and what follows r in the call is nobody else's. So all ranks go on
// with their next call. The turn is held.
func (g *Group) dropCall(r *Request, wrong error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for left := r.of - 1 - r.at; left > 0 && g.head != nil && g.head.of == r.of; left-- {
		o := g.head
		if g.head = o.next; g.head == nil {
			g.tail = nil
		}
		g.queued.Add(-1)
		g.complete(o, wrong)
	}
}

// wholeCalls reports that list, of queued operations, holds all parts of every call that it
// touches.
func wholeCalls(list []*op) bool {
	for i := 0; i < len(list); {
		n := int(list[i].of)
		if n == 0 {
			i++
			continue
		}
		if list[i].at != 0 || i+n > len(list) || int(list[i+n-1].at) != n-1 {
			return false
		}
		i += n
	}
	return true
}

// taken notes that the calls in list were cancelled. mu is held.
func (g *Group) taken(list []*op) {
	units := map[*unit]bool{}
	for _, o := range list {
		switch {
		case o.pair():
		case g.names != nil:
			if u := g.names.inflight[o.Name]; !units[u] {
				units[u] = true
				atomic.AddUint64(&g.given, ^uint64(0))
			}
		case o.at == 0:
			atomic.AddUint64(&g.given, ^uint64(0))
		}
	}
}
