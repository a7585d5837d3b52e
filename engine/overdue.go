package engine

import (
	"time"

	"hora/collective"
	"hora/event"
)

// What nobody may be inside of, a link can not time: a name that the other ranks never bring, a
// send that nobody receives. The watch does, at the pace of the shortest limit that it was given.

// hurry has the watch look often enough for a limit of one request's own.
func (g *Group) hurry(limit time.Duration) {
	for {
		known := g.shortest.Load()
		if known != 0 && known <= int64(limit) {
			return
		}
		if g.shortest.CompareAndSwap(known, int64(limit)) {
			break
		}
	}
	select {
	case g.hurried <- struct{}{}:
	default: // it has not looked yet and will find this limit too
	}
}

// Soonest returns the shortest limit of rs' own, 0 where none has one.
func Soonest(rs []Request) time.Duration {
	var limit time.Duration
	for i := range rs {
		if t := rs[i].Timeout; t > 0 && (limit == 0 || t < limit) {
			limit = t
		}
	}
	return limit
}

// overdue returns a unit that has waited for longer than its own limit.
func (n *names) overdue(now time.Time) (at stuckAt, limit time.Duration) {
	g := n.g
	if g.shortest.Load() == 0 {
		return stuckAt{}, 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, u := range n.inflight {
		if u.limit > 0 && now.Sub(u.since) >= u.limit {
			return stuckAt{kind: u.kind, name: u.name, since: u.since}, u.limit
		}
	}
	return stuckAt{}, 0
}

// stuckPair is a send or receive that waits for its other side.
type stuckPair struct {
	send  bool
	peer  int // AnyRank: a receive from whoever sends
	tag   int
	since time.Time
}

// oldest returns the send or receive that has waited longest. m.op is nil once it has ended.
func (p *pairs) oldest() (s stuckPair, ok bool) {
	g := p.g
	g.mu.Lock()
	defer g.mu.Unlock()
	look := func(m *message, send bool, peer int) {
		if m.op != nil && (!ok || m.since.Before(s.since)) {
			s, ok = stuckPair{send, peer, m.tag, m.since}, true
		}
	}
	for _, m := range p.sending {
		look(m, true, m.to)
	}
	for _, m := range p.flowing {
		look(m, false, m.from)
	}
	for _, m := range p.wanted {
		look(m, false, m.from)
	}
	return s, ok
}

// words says what waits, in this rank's eyes.
func (s stuckPair) words(g *Group) string {
	verb, side := collective.RecvFrom.String(), " from "
	if s.send {
		verb, side = collective.SendTo.String(), " to "
	}
	if s.peer == AnyRank {
		return verb + side + "any rank"
	}
	return verb + side + rankList([]int{g.worldRank(s.peer)})
}

// lookPairs takes one tick's look at sends and receives.
func (g *Group) lookPairs(w *watching, now time.Time) {
	s, ok := g.pairs.oldest()
	if !ok {
		return
	}
	waited := now.Sub(s.since)
	final := g.cfg.StallEnd > 0 && waited >= g.cfg.StallEnd
	warn := g.cfg.StallWarn > 0 && waited >= g.cfg.StallWarn && now.Sub(w.pairReported) >= g.cfg.StallWarn
	if !final && !warn {
		return
	}
	w.pairReported = now
	stall := event.Stall{Group: g.cfg.Name, Kind: s.words(g), Waited: waited, Final: final}
	if s.peer >= 0 && s.peer != g.Rank() {
		w.nonce++
		a, heard := g.ask(question{nonce: w.nonce, seq: ^uint64(0)})[s.peer]
		stall.Missing = []event.Absent{{
			Rank: g.worldRank(s.peer), Host: g.mesh.HostName(s.peer), Silent: !heard, Last: a.last, Pending: a.pending,
		}}
	}
	if t, ok := g.pairs.oldest(); !ok || t != s {
		return // it went on while we asked
	}
	g.cfg.Events.Emit(&stall)
	g.cfg.Log.Warn(stall.String())
	if final {
		g.Fail(&StallError{stall})
	}
}
