package engine

import (
	"errors"
	"time"

	"hora/collective"
	"hora/transport"
)

// Under a standing plan whose next step is one operation, a caller that brings just that
// runs it at once, as in an ordered group: no unit, no ticket, no lock. calm says that
// nothing but the plan need be looked at; whoever brings something else takes it away.

// smooth runs r if it is the next planned step and nothing else is there; ok is false
// where it has not. The turn is held, and stays so unless ok and not done.
func (n *names) smooth(r *Request, budget time.Duration) (t Ticket, done, ok bool, err error) {
	g := n.g
	p := &n.plan
	if g.queued.Load() != 0 || !n.calm.Load() || !p.active || g.cause.Load() != nil {
		return 0, false, false, nil
	}
	step := &p.cycle[p.at.Load()]
	asked, ok := n.planned(step, r)
	if !ok {
		return 0, false, false, nil
	}
	call := &r.Call
	if !g.near {
		n.aux = r.Call
		n.aux.Agree = true
		call = &n.aux
	}
	listen := g.cfg.Events.On()
	var started, arrived int64
	if listen {
		started = g.clock.Now()
		n.agreed, n.packed, n.reduced = started, 0, 0
		n.announce(1, true)
	}
	if step.stem != "" {
		n.meetCounted(r.Name)
	}
	g.count()
	s := g.begin(r, asked)
	if budget >= 0 || listen {
		var here bool
		if here, err = g.comm.Arrive(s, call, budget); err == nil && !here {
			t, done, err = g.handOver(r, s, started)
			return t, done, true, err
		}
		if listen {
			arrived = g.clock.Now()
		}
	}
	if err == nil {
		err = g.comm.Run(s, call, g.deadline(r))
	}
	withdrawn := false
	if err != nil {
		withdrawn, err = n.disagreed(r, step, err)
	}
	if withdrawn {
		g.uncount()
	} else {
		g.view.end(s.Seq)
		n.stepped(step)
		if listen {
			o := op{Request: *r, submitted: started, started: started, arrived: arrived}
			g.reportInline(&o, s.Seq, err)
		}
	}
	return 0, true, !withdrawn, err
}

// planned reports whether r is the one operation of the next planned step, with its
// fingerprint. A request that is known and was found to be this step's before has the same
// name still: it is compared once, not twice.
func (n *names) planned(step *plannedStep, r *Request) (fingerprint, bool) {
	mark := n.plan.mark()
	k := n.g.known.of(r)
	if k != nil && k.step == mark {
		return k.print, n.table.entries[step.entry].key == step.keys[0]
	}
	if !n.fits(step, r) {
		return 0, false
	}
	if k != nil {
		if step.stem == "" {
			k.step = mark
		}
		return k.print, true
	}
	p, err := n.g.examine(r)
	return p, err == nil
}

// stepped notes that the planned step is done.
func (n *names) stepped(step *plannedStep) {
	if step.stem == "" {
		n.table.ran(step.entry, step.hash)
	}
	n.plan.advance()
}

// yield gives the turn up and lets the worker see to what came meanwhile.
func (n *names) yield() {
	g := n.g
	g.turn.Store(0)
	if g.queued.Load() != 0 || !n.calm.Load() {
		g.mu.Lock()
		if n.ready() {
			g.wake()
		}
		g.mu.Unlock()
	}
}

// disagreed deals with an error of a planned step that is one operation. withdrawn: the
// plan is broken and nothing was done. Else the result is the operation's error, as it is on ranks
// that have come to the step with a unit: see differ.
func (n *names) disagreed(r *Request, step *plannedStep, err error) (withdrawn bool, result error) {
	g := n.g
	var wrong *transport.MismatchError
	if !errors.As(err, &wrong) {
		return false, g.settle(r, transport.Stamp{}, err)
	}
	mine := describe(r, stageCall)
	all, err := g.descriptions(&mine)
	if err != nil {
		g.lost(err)
		g.mesh.Fail(err)
		return false, g.failure(r)
	}
	g.view.end(g.seq)
	withdrawn = step.stem != "" && differently(all)
	for i := range all {
		withdrawn = withdrawn || all[i].stage == stageRound || all[i].stage == stagePack // there it goes on singly
	}
	if !withdrawn {
		return false, g.mismatch(all)
	}
	g.mu.Lock()
	n.plan.drop()
	n.another = true
	n.calm.Store(false)
	g.mu.Unlock()
	return true, nil
}

// resume does the rest of smooth for an operation that its caller left to the worker, who
// has the turn.
func (n *names) resume(o *op) {
	g := n.g
	n.aux = o.Call
	n.aux.Agree = true
	err := g.comm.Run(o.stamp, &n.aux, g.deadline(&o.Request))
	if o.submitted != 0 {
		o.arrived = g.clock.Now()
	}
	step := &n.plan.cycle[n.plan.at.Load()]
	withdrawn := false
	if err != nil {
		withdrawn, err = n.disagreed(&o.Request, step, err)
	}
	if !withdrawn {
		g.view.end(o.stamp.Seq)
		n.stepped(step)
		g.report(o, o.stamp.Seq, 1, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !withdrawn:
		n.finish(o, err)
	case g.cause.Load() != nil:
		n.finish(o, g.failure(&o.Request))
	default:
		o.begun = false
		n.add(o, n.bundle([]Request{o.Request}))
	}
}

// settleDown looks whether the next caller may take the short way. mu and the turn are
// held.
func (n *names) settleDown() {
	g := n.g
	calm := n.plan.active && !n.joined && !n.another && n.rang <= g.seq && g.cause.Load() == nil
	if n.calm.Load() != calm {
		n.calm.Store(calm)
	}
}

// locate finds the table's numbers of the steps that are one operation.
func (p *plan) locate(t *table) {
	for i := range p.cycle {
		s := &p.cycle[i]
		if s.entry = t.find(s.keys[0]); s.entry < 0 || len(s.keys) != 1 {
			s.name, s.entry = "", 0
		}
	}
}

// onlyName returns the name of a step that is one operation of its own.
func (n *names) onlyName() string {
	if len(n.members) != 1 || len(n.chosen) != 1 || n.members[0].phantom || n.members[0].Alloc != nil ||
		n.members[0].Kind == collective.SendTo || n.members[0].Kind == collective.RecvFrom {
		return ""
	}
	return n.members[0].Name
}
