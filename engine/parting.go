package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"hora/collective"
	"hora/internal/wire"
	"hora/transport"
)

// Ranks that leave compare how many calls they have made. A call that one of them missed, or
// made once more, goes unseen where all calls look alike: each later one then meets its
// neighbour, and what is left over in the end is waited for by nobody. Who leaves tells its
// number with its good-bye. Who hears that and stays answers with its own, unless its
// good-bye is on its way already: so of any two ranks the one that leaves last knows both
// numbers, and a rank whose neighbour is in a call too many knows it before it leaves.

// parting is what this rank has heard of others' calls, and whether it has taken leave.
type parting struct {
	mu    sync.Mutex // guards the rest
	gone  bool
	quiet bool // a group of this job has failed: the numbers say nothing
	told  bool // a call has ended with the group's failure: whoever made it knows
	// the last call was a barrier that ended the group by its time limit: who did not come shared nothing wrongly
	vain  bool
	heard map[int]word
	wake  chan struct{} // one slot: something was heard, or the group has failed
}

// word is a rank's number of calls, and whether it has left, or the group has ended there: it
// makes no more.
type word struct {
	calls uint64
	left  bool
}

func (p *parting) init() { p.heard, p.wake = map[int]word{}, make(chan struct{}, 1) }

// unknown is the number of calls of who does not compare.
const unknown = ^uint64(0)

// Quietly has this rank's good-bye carry no number of calls: another group has failed, and
// ranks may rightly be anywhere.
func (g *Group) Quietly() {
	g.parting.mu.Lock()
	g.parting.quiet = true
	g.parting.mu.Unlock()
}

// numbers returns how many calls this rank tells.
func (g *Group) numbers() uint64 {
	g.parting.mu.Lock()
	defer g.parting.mu.Unlock()
	switch {
	case g.parting.quiet:
		return unknown
	case g.parting.vain:
		return g.calls() - 1
	}
	return g.calls()
}

// waited looks whether what is about to end the group is the end of a barrier whose time was up, here or on a rank that
// was in it too. That counts no longer as a call: its caller hears that others did not come, and for those it is no
// difference. All calls before it were met, and of any other last one that is not sure: where a rank missed one in the
// middle of equal ones, it is the last that waits.
func (g *Group) waited(err error) {
	var late *transport.DeadlineError
	var lost *transport.PeerLostError
	if g.names != nil || g.cause.Load() != nil || !errors.As(err, &late) && !(errors.As(err, &lost) && lost.GaveUp()) {
		return
	}
	if busy, now, _ := g.view.read(); busy && now.kind == collective.Barrier {
		g.parting.mu.Lock()
		g.parting.vain = true
		g.parting.mu.Unlock()
	}
}

// begin notes that this rank takes leave, the first time.
func (p *parting) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.gone
	p.gone = true
	return first
}

func (p *parting) hear(from int, w word) {
	p.mu.Lock()
	if !p.heard[from].left {
		p.heard[from] = w
	}
	p.mu.Unlock()
	p.news()
}

func (p *parting) news() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// of returns what was heard of a rank.
func (p *parting) of(rank int) (word, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, ok := p.heard[rank]
	return w, ok
}

// stay answers a good-bye. In large groups the two neighbours of who left do: where any two
// ranks differ, some neighbours do.
func (g *Group) stay(rank int) {
	if !g.compares(rank) {
		return
	}
	g.parting.mu.Lock()
	gone := g.parting.gone
	g.parting.mu.Unlock()
	if gone {
		return
	}
	g.tell(rank, g.still())
}

// still returns the answer of who has not left: its number of calls, and whether the group has ended
// here, so that there will be no more.
func (g *Group) still() []byte {
	cause, calls := g.cause.Load(), g.numbers()
	if cause != nil && !comparable(*cause) {
		calls = unknown // this group was aborted here, or has failed by itself
	}
	return wire.AppendBool(wire.AppendU64(wire.AppendU8(nil, tellStill), calls), cause != nil)
}

// comparable reports an end of the group that ranks with different calls bring about: one has
// left, or given up waiting, while others were in a call. Then the numbers tell why. Of any
// other end they tell nothing, since ranks may rightly be anywhere.
func comparable(err error) bool {
	var lost *transport.PeerLostError
	var late *transport.DeadlineError
	return errors.As(err, &late) || errors.As(err, &lost) && (lost.Left() || lost.GaveUp())
}

// confess tells the others this rank's number of calls as the group ends: who is leaving in
// peace has no other way to hear of a call that it did not make.
func (g *Group) confess() {
	if g.Size() == 1 {
		return
	}
	for r := range g.Size() {
		g.stay(r)
	}
}

// handed notes that a call ends with the group's failure.
func (p *parting) handed() {
	p.mu.Lock()
	p.told = true
	p.mu.Unlock()
}

// Farewell tells the others that this rank takes part in nothing more, and waits up to grace
// for them to leave as well. A *MismatchError says that ranks have made different numbers of
// calls. Where the group has ended because others left or gave up, and no call here has told
// so, that end is given where not all have told their numbers; where all are equal the ranks were
// only in the agreement's own business. A group that has failed otherwise,
// whose ranks may rightly be anywhere, gives none.
func (g *Group) Farewell(grace time.Duration) error {
	if g.Size() == 1 || g.Silent() {
		return nil
	}
	if g.cause.Load() == nil {
		g.pairs.deliverAll(min(grace, deliverTime))
	}
	g.leave()
	mine := g.numbers()
	if mine == unknown {
		return nil
	}
	g.listen(mine, grace)
	if g.Silent() {
		return nil
	}
	left, differ := g.others(mine)
	if differ {
		return g.unequal(mine)
	}
	if cause := g.cause.Load(); cause != nil && !left {
		return &MismatchError{Text: fmt.Sprintf("Mismatched calls: %s has ended, in which this rank has made %s: %v; make the same calls on every rank.",
			g.called(), callCount(mine), g.behind(*cause))}
	}
	return nil
}

// Silent reports that the group has ended, and that Farewell has nothing to say about it: a call
// here has told so, or the numbers of calls have no part in it.
func (g *Group) Silent() bool {
	cause := g.cause.Load()
	g.parting.mu.Lock()
	defer g.parting.mu.Unlock()
	return cause != nil && (g.parting.told || !comparable(*cause))
}

// listen waits until all have left, or have told their last numbers as the group ended.
func (g *Group) listen(mine uint64, grace time.Duration) {
	end := time.NewTimer(grace)
	defer end.Stop()
	for {
		if left, _ := g.others(mine); left || g.Silent() {
			return
		}
		select {
		case <-g.parting.wake:
		case <-g.stop:
			return
		case <-end.C:
			return
		}
	}
}

// compares reports whether this rank and another tell each other their numbers.
func (g *Group) compares(rank int) bool {
	n, me := g.Size(), g.Rank()
	return rank != me && (n <= askAll || rank == (me+1)%n || me == (rank+1)%n)
}

// others looks at what was heard: whether all have made their last call whom this rank waits
// for, and whether one of them has made another number of calls. Who has not and made fewer may
// be on its way.
func (g *Group) others(mine uint64) (left, differ bool) {
	left = true
	for r := range g.Size() {
		if !g.compares(r) {
			continue
		}
		w, ok := g.parting.of(r)
		left = left && ok && w.left
		differ = differ || ok && w.calls != unknown && (w.calls > mine || w.left && w.calls != mine)
	}
	return left, differ
}

// unequal returns the error of ranks that have made different numbers of calls.
func (g *Group) unequal(mine uint64) error {
	counts := []uint64{mine}
	ranks := map[uint64][]int{mine: {g.worldRank(g.Rank())}}
	for r := range g.Size() {
		if w, ok := g.parting.of(r); ok && w.calls != unknown && (w.left || w.calls > mine) {
			if ranks[w.calls] == nil {
				counts = append(counts, w.calls)
			}
			ranks[w.calls] = append(ranks[w.calls], g.worldRank(r))
		}
	}
	slices.SortFunc(counts, func(a, b uint64) int { return cmp.Compare(slices.Min(ranks[a]), slices.Min(ranks[b])) })
	var parts []string
	for _, c := range counts {
		parts = append(parts, fmt.Sprintf("%s made %s", rankList(ranks[c]), callCount(c)))
	}
	return &MismatchError{Text: "Mismatched numbers of calls: in " + g.called() + " " + strings.Join(parts, ", ") +
		", so from some call on what they shared did not belong together, and results may be wrong; make the same calls on every rank."}
}
