package engine

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"hora/collective"
	"hora/event"
	"hora/tensor"
	"hora/transport"
)

// Words of a round before the bits of known units.
const (
	wordPrint      = iota // fingerprintOf of the oldest unit
	wordComplement        // its complement: both survive the AND only where all are equal
	wordFlags
	headWords
)

// Flags survive when every rank sets them.
const (
	flagNoneJoined = 1 << iota
	flagAllJoined
	flagKnown   // the rank that introduces has nothing unknown
	flagCounted // or only its oldest unit, whose name is a counted one and does not come again
)

const (
	roundPrint     = 0x726f756e64 // of a round's stamp
	introducePrint = 0x696e74726f
	leadPrint      = 0x6c656164
	lastPrint      = 0x6c617374
	phantomPrint   = 0x7068616e
	// introduced is the most units one introduction brings.
	introduced = 63
)

// step does one thing on behalf of whoever has the turn: a planned step, or a round and
// what it releases. With a budget ≥ 0 it may leave a round that others have not come to
// in that time, and the turn, to the worker; it reports true then.
func (n *names) step(budget time.Duration) (passed bool) {
	g := n.g
	var err error
	if !n.open {
		g.mu.Lock()
		n.roundSeen = max(n.roundSeen, g.seq)
		run, wait := n.handedStep, false
		if !run {
			run, wait = n.foreseen()
		}
		// Whose result's size nobody knows can not be left halfway.
		pass := run && budget >= 0 && n.chosen[0].first.Alloc != nil
		if n.handedStep = pass; pass {
			n.pass()
		}
		g.mu.Unlock()
		switch {
		case pass:
			return true
		case run:
			if n.release(true, budget) {
				// The others may be long in coming: the worker has the time.
				g.mu.Lock()
				n.handedStep = true
				n.pass()
				g.mu.Unlock()
				return true
			}
			n.after()
			return false
		case wait:
			return false
		}
		if n.begin() {
			var here bool
			if here, err = g.comm.Arrive(n.stamp, &n.round, bellDelay); err == nil && !here {
				n.ring(g.seq, g.Rank())
			}
		}
	}
	return n.goOn(err, budget)
}

// goOn waits for the others in the open round, unless it has ended with err, and does what it
// releases. With a budget ≥ 0 it may leave that, and the turn, to the worker.
func (n *names) goOn(err error, budget time.Duration) (passed bool) {
	g := n.g
	if budget >= 0 && err == nil {
		var here bool
		if here, err = g.comm.Arrive(n.stamp, &n.round, budget); err == nil && !here {
			g.mu.Lock()
			n.pass()
			g.mu.Unlock()
			return true
		}
	}
	n.end(err)
	n.after()
	return false
}

// pass gives the turn, and with it all that its holder owns, to the worker. mu is held.
func (n *names) pass() {
	n.passed = true
	n.g.wake()
}

// after looks what is left to do.
func (n *names) after() {
	n.g.mu.Lock()
	n.look()
	n.g.mu.Unlock()
}

// look does what after does, with mu held.
func (n *names) look() {
	n.roundSeen = n.g.seq
	if n.plan.active && n.firstPending != nil {
		n.news = true
	}
	n.settleDown()
}

// begin opens a round with what this rank has. tells says that the bell is still to be
// rung if others do not come soon: where waiting for them may end, no timer is needed.
func (n *names) begin() (tells bool) {
	g := n.g
	g.number() // no place of its own in the view: "last finished" names tensors
	g.mu.Lock()
	n.another, n.idle, n.open = false, false, true
	n.calm.Store(false)
	n.news = false
	broken := n.plan.active
	n.plan.drop()
	n.contribute()
	urgent := broken
	g.mu.Unlock()
	n.compose()
	switch {
	case urgent:
		n.ring(g.seq, g.Rank())
	case g.Size() > 1 && !g.near:
		n.armBell(g.seq)
	}
	return g.near && !urgent
}

// compose makes the call of the round that the words are for.
func (n *names) compose() {
	c := &n.round
	c.Kind, c.Op, c.Type, c.Agree = collective.Allreduce, tensor.And, tensor.Uint64, true
	c.Send = tensor.Of(n.words)
	c.Recv = c.Send
	n.stamp = transport.Stamp{Seq: n.g.seq, Print: roundPrint + uint64(len(n.words))}
}

// armBell rings for round seq unless it ends soon.
func (n *names) armBell(seq uint64) {
	n.ringing.Store(seq)
	if n.bell == nil {
		n.bell = time.AfterFunc(bellDelay, func() {
			if seq := n.ringing.Load(); seq != 0 {
				n.ring(seq, n.g.Rank())
			}
		})
		return
	}
	n.bell.Reset(bellDelay)
}

// bare makes room for the words of a round that offers nothing.
func (n *names) bare() {
	count := headWords + n.table.words()
	if cap(n.words) < count {
		n.words = make([]uint64, count, 2*count)
	}
	n.words = n.words[:count]
	clear(n.words)
	n.offered, n.away = nil, false
}

// contribute fills the words of a round. mu is held.
func (n *names) contribute() {
	n.bare()
	w := n.words
	n.away = n.gone()
	if n.away {
		for i := range w {
			w[i] = ^uint64(0)
		}
		w[wordFlags] = flagAllJoined | flagKnown | flagCounted
		if n.joinedAt == 0 {
			n.joinedAt = n.g.seq
		}
		return
	}
	w[wordFlags] = flagNoneJoined
	if u := n.firstPending; u != nil {
		n.offered = u
		w[wordPrint], w[wordComplement] = u.print, ^u.print
	}
	known := uint64(flagKnown | flagCounted)
	for u := n.firstPending; u != nil; u = u.next {
		u.round = n.g.seq
		switch i := n.table.find(u.key); {
		case i >= 0:
			w[headWords+i/64] |= 1 << (i % 64)
		case u == n.firstPending && u.stem != "":
			known &^= flagKnown
		default:
			known = 0
		}
	}
	if n.g.Rank() != 0 && !n.joinSeen {
		known = flagKnown | flagCounted
	}
	w[wordFlags] |= known
}

// unknown reports that the lead must introduce units: a counted name that was everybody's
// oldest has run by now.
func (n *names) unknown() bool {
	w := n.words
	if w[wordFlags]&flagKnown != 0 {
		return false
	}
	return w[wordFlags]&flagCounted == 0 || w[wordPrint] != ^w[wordComplement]
}

// end finishes the open round, or takes the error that has ended it, and runs what it
// released.
func (n *names) end(err error) {
	if err == nil {
		err = n.g.comm.Run(n.stamp, &n.round, time.Time{})
	}
	n.ended(err)
}

// ended ends a round that has run.
func (n *names) ended(err error) {
	g := n.g
	n.open = false
	if err == nil {
		g.view.end(g.seq)
	}
	if n.bell != nil {
		n.ringing.Store(0)
		n.bell.Stop()
	}
	if err != nil {
		var wrong *transport.MismatchError
		if !errors.As(err, &wrong) {
			n.broken(err)
			return
		}
		// Others are still in a plan: all return to agreement.
		if _, err := g.descriptions(&description{stage: stageRound}); err != nil {
			n.broken(err)
			return
		}
		g.view.end(g.seq)
		n.againSoon()
		return
	}
	flags := n.words[wordFlags]
	n.joinSeen = flags&flagNoneJoined == 0
	if flags&flagAllJoined != 0 {
		n.endJoin()
		return
	}
	lead := 0
	if n.joinSeen {
		if lead, err = n.findLead(); err != nil {
			n.broken(err)
			return
		}
	}
	n.choose()
	if n.unknown() {
		if err := n.introduce(lead); err != nil {
			n.broken(err)
			return
		}
	}
	if n.joinSeen {
		if err := n.shareChosen(lead); err != nil {
			n.broken(err)
			return
		}
	}
	n.releaseSteps()
}

// againSoon has all ranks begin another round at once.
func (n *names) againSoon() {
	n.g.mu.Lock()
	n.another, n.roundOver = true, n.g.seq
	n.g.mu.Unlock()
}

// broken ends the group for an error of the links in the agreement itself.
func (n *names) broken(err error) {
	g := n.g
	g.lost(g.reasoned(err))
	g.mesh.Fail(err)
	for _, u := range n.chosen {
		n.abandon(u)
	}
	n.chosen = n.chosen[:0]
}

// abandon fails what is left of a unit that was taken off the list.
func (n *names) abandon(u *unit) {
	g := n.g
	g.mu.Lock()
	defer g.mu.Unlock()
	for o := u.first; o != nil; {
		after := o.next
		o.next = nil
		n.finish(o, g.failure(&o.Request))
		o = after
	}
	n.recycle(u)
}

// choose takes what the round released off the pending list: the unit that was
// everybody's oldest, then known ones by number.
func (n *names) choose() {
	g := n.g
	g.mu.Lock()
	defer g.mu.Unlock()
	n.chosen, n.roundOver = n.chosen[:0], g.seq
	if n.away {
		return // told by the lead
	}
	w := n.words
	if u := n.offered; u != nil && w[wordPrint] == ^w[wordComplement] {
		n.take(u)
	}
	first := len(n.chosen)
	for k, set := range w[headWords:] {
		for i := k * 64; set != 0; i, set = i+1, set>>1 {
			if set&1 == 0 {
				continue
			}
			key := n.table.entries[i].key
			if first > 0 && n.chosen[0].key == key {
				continue // one of a key at a time
			}
			if u := n.byKey[key]; u != nil {
				n.take(u)
				u.stem = ""
			}
		}
	}
	slices.SortStableFunc(n.chosen[first:], n.byUse)
}

// settledRuns is after how many runs a unit's step no longer grows.
const settledRuns = 4

// byUse orders units that have settled as they ran last time, after the others.
func (n *names) byUse(a, b *unit) int { return cmp.Compare(n.settled(a).used, n.settled(b).used) }

// settled returns what the table knows of u once its step no longer grows. Until then units
// that happen to be pending together run together; later only those that did so last
// time: the sequence of steps converges, and becomes a plan.
func (n *names) settled(u *unit) entry {
	i := n.table.find(u.key)
	if i < 0 || n.table.entries[i].runs < settledRuns {
		return entry{}
	}
	return n.table.entries[i]
}

// releaseSteps runs what a round released, step by step.
func (n *names) releaseSteps() {
	all := n.chosen
	n.picked = append(n.picked[:0], all...)
	for from := 0; from < len(n.picked); {
		step := n.settled(n.picked[from]).step
		to := from + 1
		for to < len(n.picked) && n.settled(n.picked[to]).step == step {
			to++
		}
		n.chosen = append(n.chosen[:0], n.picked[from:to]...)
		n.release(false, -1)
		from = to
	}
}

// take moves u from pending to chosen. mu is held.
func (n *names) take(u *unit) {
	n.detach(u)
	u.running = true
	n.chosen = append(n.chosen, u)
}

// small runs one of the agreement's own operations.
func (n *names) small(call *collective.Call, stamp uint64) error {
	g := n.g
	g.number()
	call.Agree = true
	err := g.comm.Run(transport.Stamp{Seq: g.seq, Print: stamp}, call, time.Time{})
	if err == nil {
		g.view.end(g.seq)
	}
	return err
}

// introduce has the lead tell the units that it has and nobody knows yet.
func (n *names) introduce(lead int) error {
	g := n.g
	if n.intro == nil {
		n.intro = make([]uint64, introduced+1)
	}
	clear(n.intro)
	if g.Rank() == lead {
		k := 0
		tell := func(u *unit) {
			if k < introduced && n.table.find(u.key) < 0 {
				k++
				n.intro[k] = u.key
			}
		}
		for _, u := range n.chosen {
			tell(u)
		}
		g.mu.Lock()
		for u := n.firstPending; u != nil; u = u.next {
			tell(u)
		}
		g.mu.Unlock()
		n.intro[0] = uint64(k)
	}
	v := tensor.Of(n.intro)
	call := &n.aux
	*call = collective.Call{Kind: collective.Broadcast, Type: tensor.Uint64, Root: lead, Send: v, Recv: v}
	if err := n.small(call, introducePrint); err != nil {
		return err
	}
	count := min(int(n.intro[0]), introduced)
	for _, key := range n.intro[1 : 1+count] {
		n.table.learn(key)
	}
	if count > 0 {
		n.againSoon()
	}
	return nil
}

// announce reports a round that released something.
func (n *names) announce(units int, planned bool) {
	if g := n.g; g.cfg.Events.On() {
		g.cfg.Events.Emit(&event.Agreed{Group: g.cfg.Name, Names: units, Planned: planned})
	}
}
