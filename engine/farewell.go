package engine

import (
	"slices"
	"sync/atomic"
	"time"

	"hora/internal/wire"
	"hora/transport"
)

// A rank that closes a group tells the others up to which operation it took part. What
// comes later can not be done any more, and names that wait for it would wait for ever:
// no rank need be in a verb that could notice. So the others end the group over it, a
// moment later, and at once what is only between them and that rank.

// farewell is the first good-bye, in the group's order, that was heard.
type farewell struct {
	rank  int
	last  uint64 // the last operation that it took part in
	calls uint64 // how many calls it has made
}

// farewellGrace is how long operations that the rank took part in may still go on here.
const farewellGrace = 300 * time.Millisecond

// leave tells the others that this rank takes part in nothing more.
func (g *Group) leave() {
	if g.parting.begin() {
		g.spread(farewell{g.Rank(), g.view.ended(), g.numbers()})
	}
}

// spread tells everybody of a farewell: directly in a small group, in a large one along
// the tree whose root is the rank that left.
func (g *Group) spread(f farewell) {
	msg := wire.AppendU8(nil, tellLeft)
	msg = wire.AppendU64(msg, f.last)
	msg = wire.AppendI64(msg, int64(f.rank))
	msg = wire.AppendU64(msg, f.calls)
	n := g.Size()
	if n <= askAll {
		for r := range n {
			if f.rank == g.Rank() && r != f.rank {
				g.tell(r, msg)
			}
		}
		return
	}
	g.plant(msg, f.rank)
}

// left hears a farewell. It runs on a goroutine of the link and does not block.
func (g *Group) left(f farewell) {
	if f.rank == g.Rank() {
		return
	}
	g.parting.hear(f.rank, word{f.calls, true})
	g.stay(f.rank)
	if g.cause.Load() != nil {
		return
	}
	for {
		known := g.gone.Load()
		if known != nil && known.last <= f.last {
			break
		}
		if g.gone.CompareAndSwap(known, &f) {
			g.missed()
			break
		}
	}
	g.pairs.left(f.rank)
	if g.Size() > askAll {
		g.spread(f)
	}
}

// missed has the group looked at once the grace is over.
func (g *Group) missed() { time.AfterFunc(farewellGrace, g.miss) }

// miss ends the group if something waits for a rank that has left.
func (g *Group) miss() {
	f := g.gone.Load()
	if g.cause.Load() != nil {
		return
	}
	driving := g.turn.Load() != 0
	beyond := driving && g.at() > f.last
	waiting := false
	if g.names != nil {
		g.mu.Lock()
		waiting = len(g.names.inflight) > 0 || g.names.joined
		g.mu.Unlock()
	}
	switch {
	case beyond || waiting && !driving:
		err := g.departed(f.rank)
		g.lost(err)
		g.mesh.Fail(err)
	case driving:
		g.missed() // it may take part in what comes next, or be waited for then
	}
}

// Behind reports that operations have not ended here in which a rank took part that has left. heard is false while
// nobody's good-bye has come.
func (g *Group) Behind() (heard, behind bool) {
	f := g.gone.Load()
	if f == nil || g.cause.Load() != nil {
		return g.cause.Load() != nil, false
	}
	return true, g.view.ended() < f.last
}

// departed returns the error of what needs a rank that has left.
func (g *Group) departed(rank int) error {
	return &transport.PeerLostError{Rank: rank, Host: g.mesh.HostName(rank), Reason: transport.ReasonLeft}
}

// at returns the number of the present or last operation, for others than the turn's owner.
func (g *Group) at() uint64 { return atomic.LoadUint64(&g.seq) }

// number counts an operation. The turn is held.
func (g *Group) number() {
	transport.Note(&g.seq, g.seq+1)
	if f := g.gone.Load(); f != nil && g.seq > f.last {
		g.stay(f.rank) // it may yet hear of a call too many
		g.missed()
	}
}

// left ends what is between this rank and one that left.
func (p *pairs) left(rank int) {
	g := p.g
	g.mu.Lock()
	if p.gone == nil {
		p.gone = map[int]bool{}
	}
	p.gone[rank] = true
	for id, m := range p.sending {
		if m.to == rank {
			delete(p.sending, id)
			p.depart(m, rank)
		}
	}
	for f, m := range p.flowing {
		if f.from == rank {
			delete(p.flowing, f)
			p.depart(m, rank)
		}
	}
	for i := 0; i < len(p.wanted); i++ {
		m := p.wanted[i]
		if m.from == rank || m.from == AnyRank && p.alone() {
			p.wanted = append(p.wanted[:i], p.wanted[i+1:]...)
			i--
			p.depart(m, rank)
		}
	}
	arrived := p.arrived[:0]
	for _, a := range p.arrived {
		if a.from != rank || a.small != nil || a.bytes == 0 {
			arrived = append(arrived, a) // it is all here
		}
	}
	clear(p.arrived[len(arrived):])
	p.arrived = arrived
	g.mu.Unlock()
}

// alone reports that every other rank has left. Group.mu is held.
func (p *pairs) alone() bool { return len(p.gone) == p.g.Size()-1 }

// depart fails m, which needs a rank that left. Group.mu is held.
func (p *pairs) depart(m *message, rank int) {
	o, err := m.op, p.g.translate(p.g.departed(rank))
	if doom := p.g.doom.Load(); doom != nil {
		err = *doom
	}
	p.close(m, &OperationError{Name: o.Name, Kind: o.Kind.String(), Err: err})
}

// refuseGone fails a receive that nothing has come for from a rank that has left.
// Group.mu is held.
func (p *pairs) refuseGone(m *message) {
	i := slices.Index(p.wanted, m)
	if i < 0 || !p.gone[m.from] && !(m.from == AnyRank && p.alone()) {
		return
	}
	rank := m.from
	if rank == AnyRank {
		for rank = range p.gone {
			break
		}
	}
	p.wanted = slices.Delete(p.wanted, i, i+1)
	p.depart(m, rank)
}
