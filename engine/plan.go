package engine

import (
	"slices"
	"strings"
	"sync/atomic"
)

// plan is what the group will do next when it repeats itself. It changes by the turn's
// holder alone, with Group.mu held: after two equal rounds of
// a cycle of steps, no agreement is exchanged and each step runs as soon as this rank
// has all of it. The history is the same on all ranks, so they all begin and end a plan
// at the same operation. A rank that has something else enters a round instead; its
// stamp differs from the planned one, so everybody withdraws with nothing done.
type plan struct {
	off    bool
	active bool
	at     atomic.Int32 // next step of the cycle
	cycle  []plannedStep

	steps   map[uint64]*plannedStep // by hash; kept when the history is forgotten, for their memory
	history []*plannedStep          // since the last break, the newest last
	era     int                     // counts histories
	period  int
	matched int // newest steps that equal those one period before
	breaks  int // plans that broke since the last one that held for a while
	held    int // steps done under the present plan
}

type plannedStep struct {
	hash  uint64
	keys  []uint64
	name  string // of a step that is one operation
	stem  string // of a step that is one operation with a counted name
	entry int    // its number in the table; set when the plan begins

	era, last int // the history that it was last in, and where
}

const (
	longestCycle = 512
	equalCycles  = 2
	fewestEqual  = 3
	// holds is how many steps a plan must hold for its breaking to be forgiven.
	holds = 1000
)

// record notes a step that a round released, and begins a plan if the steps repeat.
func (p *plan) record(hash uint64, keys []uint64, name, stem string) {
	if p.off {
		return
	}
	if len(p.history) >= 4*longestCycle {
		p.forget()
	}
	now := len(p.history)
	s := p.steps[hash]
	if s == nil {
		if p.steps == nil {
			p.steps = map[uint64]*plannedStep{}
		}
		s = &plannedStep{hash: hash, keys: slices.Clone(keys), stem: stem, era: -1}
		p.steps[hash] = s
	}
	if s.name != name {
		s.name = strings.Clone(name)
	}
	if s.era == p.era {
		switch d := now - s.last; {
		case d == p.period:
			p.matched++
		case d <= longestCycle:
			p.period, p.matched = d, 1
		default:
			p.period, p.matched = 0, 0
		}
	} else {
		p.period, p.matched = 0, 0
	}
	s.era, s.last = p.era, now
	p.history = append(p.history, s)
	need := max(equalCycles*p.period, fewestEqual) << min(p.breaks, 8)
	if p.period > 0 && p.matched >= need {
		p.cycle = p.cycle[:0]
		for _, s := range p.history[len(p.history)-p.period:] {
			p.cycle = append(p.cycle, *s)
		}
		p.active, p.held = true, 0
		p.at.Store(0)
	}
}

// mark returns the next planned step's, and no other's as long as the group lives.
func (p *plan) mark() uint64 { return uint64(p.era)<<32 | uint64(p.at.Load()) + 1 }

// advance goes on to the next planned step.
func (p *plan) advance() {
	if len(p.cycle) > 1 { // the exchange would take a tenth of what a plan of one step may cost
		next := p.at.Load() + 1
		if int(next) == len(p.cycle) {
			next = 0
		}
		p.at.Store(next)
	}
	if p.held++; p.held == holds {
		p.breaks = 0
	}
}

// drop ends a plan and what led to it.
func (p *plan) drop() {
	if !p.active {
		return
	}
	p.active = false
	if p.breaks < 16 {
		p.breaks++
	}
	p.forget()
}

func (p *plan) forget() {
	p.history = p.history[:0]
	p.era++
	if len(p.steps) > 2*longestCycle {
		clear(p.steps)
	}
	p.period, p.matched = 0, 0
}

// foreseen decides what to do next. run: the planned step is complete here and has been
// chosen. wait: it is not, and there is no reason yet to break the plan. Neither: begin
// a round. mu is held.
func (n *names) foreseen() (run, wait bool) {
	p := &n.plan
	if !p.active {
		return false, false
	}
	g := n.g
	n.news = false
	if n.joined || n.another || n.rang > n.roundSeen && n.rang > g.seq {
		return false, false
	}
	step := &p.cycle[p.at.Load()]
	if !n.complete(step) {
		if n.firstPending != nil && n.idle {
			return false, false
		}
		if n.firstPending != nil {
			n.armPatience()
		}
		return false, true
	}
	n.chosen = n.chosen[:0]
	if step.stem != "" {
		n.take(n.oldestOf(step.stem))
	} else {
		for _, key := range step.keys {
			u := n.byKey[key]
			n.take(u)
			u.stem = ""
		}
	}
	n.idle = false
	return true, false
}

// complete reports that this rank has all of a planned step. What comes last is looked
// for first: it is what is missing until the step is complete. mu is held.
func (n *names) complete(s *plannedStep) bool {
	if s.stem != "" {
		return n.oldestOf(s.stem) != nil
	}
	for i := len(s.keys) - 1; i >= 0; i-- {
		if n.byKey[s.keys[i]] == nil {
			return false
		}
	}
	return true
}

// stirs reports that the worker has something to look at now that a unit came. Under a
// plan that is so once the next step is complete; until then its patience watches. Who
// has the turn may be in a step, whose units are no longer pending. mu is held.
func (n *names) stirs() bool {
	p := &n.plan
	if n.g.turn.Load() != 0 || !p.active || n.joined || n.another || n.idle || n.rang > n.roundSeen ||
		n.complete(&p.cycle[p.at.Load()]) {
		return true
	}
	n.armPatience()
	return false
}
