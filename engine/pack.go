package engine

import (
	"errors"
	"slices"
	"time"
	"unsafe"

	"hora/collective"
	"hora/internal/kernel"
	"hora/tensor"
	"hora/transport"
)

// arena is memory that grows to the largest demand and is then reused.
type arena struct{ mem []byte }

func (a *arena) take(n int) unsafe.Pointer {
	const line = 64
	if len(a.mem) < n+line {
		a.mem = make([]byte, n+line+n/4)
	}
	p := unsafe.Pointer(unsafe.SliceData(a.mem))
	return unsafe.Add(p, -uintptr(p)&(line-1))
}

// batch is what travels as one operation: members[from:to] of the step.
type batch struct{ from, to int }

// sharesPack reports that b may be packed with a: one type, operator and factors, on
// one kind of device.
func sharesPack(a, b *op) bool {
	return packs(a) && packs(b) && a.Type == b.Type && a.Op == b.Op && factor(a.Pre) == factor(b.Pre) &&
		factor(a.Post) == factor(b.Post) && min(a.Device, 1) == min(b.Device, 1)
}

func packs(o *op) bool {
	return o.Kind == collective.Allreduce && o.Op != tensor.Adasum
}

// Ranks that share memory gain from packing what is small: an operation of its own costs
// some microseconds, copying 32 KiB there and back as much. A pack stays in the cache.
const (
	nearMost = 32 << 10
	nearPack = 256 << 10
)

// arrange orders the operations of the chosen units into batches: each takes what it can
// of those that follow. All ranks that agree on what is asked arrange alike.
func (n *names) arrange() {
	limit, most := n.g.cfg.FusionBytes, n.g.cfg.FusionBytes
	if n.g.near {
		limit, most = min(limit, nearPack), nearMost
	}
	var all []*op = n.loose[:0]
	for _, u := range n.chosen {
		entry, alone := n.goesAlone(u)
		for o := u.first; o != nil; o = o.next {
			o.place, o.entry, o.alone = len(all), entry, alone && o.sizedAlone()
			all = append(all, o)
		}
	}
	if len(all) == 1 {
		all[0].alone = false
	}
	n.loose = all
	n.members, n.batches, n.gaps = n.members[:0], n.batches[:0], false
	for i, o := range all {
		if o == nil {
			continue
		}
		from, bytes := len(n.members), o.Send.Len()
		n.members = append(n.members, o)
		for j := i + 1; j < len(all) && packs(o) && !o.alone && o.Send.Len() <= most && limit > 0; j++ {
			p := all[j]
			if p == nil || p.alone || !sharesPack(o, p) || p.Send.Len() > most || bytes+p.Send.Len() > limit {
				continue
			}
			n.members = append(n.members, p)
			bytes += p.Send.Len()
			all[j] = nil
		}
		n.batches = append(n.batches, batch{from, len(n.members)})
	}
	for _, u := range n.chosen {
		u.first = nil
	}
	for _, o := range n.members {
		o.next = nil
	}
}

// release runs the chosen units. planned says that no round preceded. With a budget ≥ 0
// it leaves a planned step, and all of n, when the other ranks have not come to it in
// that time; it reports true then and is called again, by the worker, to go on.
func (n *names) release(planned bool, budget time.Duration) (left bool) {
	g := n.g
	step, stem := n.stepHash(), n.counted()
	n.keys = n.keys[:0]
	for _, u := range n.chosen {
		n.keys = append(n.keys, u.key)
	}
	if !n.begun {
		n.prepare(planned, stem)
	}
	name := ""
	if !planned {
		name = n.onlyName()
	}
	verdict := stepDone
	for k := 0; k < len(n.batches) && verdict == stepDone; k++ {
		b := n.batches[k]
		members := n.undropped(b.from, b.to)
		if len(members) == 0 {
			continue
		}
		verdict = n.runBatch(members, budget)
		budget = -1 // all are in the step
		switch verdict {
		case stepLeft:
			return true
		case stepSingly:
			// What differs may have packed the rest differently: go by the order that
			// all ranks share.
			n.singly(n.undropped(b.from, len(n.members)))
		case stepWithdrawn:
			n.putBack(n.undropped(b.from, len(n.members)))
		case stepFailed:
			n.failRest(n.undropped(b.from, len(n.members)))
		}
	}
	g.mu.Lock()
	for _, u := range n.chosen {
		if !u.phantom && u.first == nil {
			n.recycle(u)
		}
	}
	n.chosen = n.chosen[:0]
	switch {
	case verdict == stepWithdrawn:
		n.plan.drop()
		n.another = true
	case planned && verdict == stepDone:
		n.plan.advance()
	case planned || verdict != stepDone || n.joinSeen:
		// The plan has taken the news of units that later steps of it were to run.
		n.news = n.news || n.plan.active && n.firstPending != nil
		n.plan.drop()
		n.plan.forget()
	default:
		n.plan.record(step, n.keys, name, stem)
	}
	g.mu.Unlock()
	if verdict != stepWithdrawn && stem == "" {
		for _, key := range n.keys {
			n.table.ran(n.table.learn(key), step)
		}
	}
	if !planned && n.plan.active {
		n.plan.locate(&n.table)
	}
	return false
}

// singly runs members one by one in the order that all ranks share, whatever was packed with what.
func (n *names) singly(members []*op) {
	slices.SortFunc(members, func(a, b *op) int { return a.place - b.place })
	n.unlearn(members)
	for i := range members {
		if members[i] == nil {
			continue
		}
		if v := n.runBatch(members[i:i+1], -1); v != stepDone {
			n.failRest(slices.DeleteFunc(members[i:], dropped))
			break
		}
	}
}

// prepare tells listeners of the chosen units and arranges them.
func (n *names) prepare(planned bool, stem string) {
	n.announce(len(n.chosen), planned)
	n.agreed = 0
	if n.g.cfg.Events.On() {
		n.agreed = n.g.clock.Now()
	}
	switch {
	case !planned:
		n.meet()
	case stem != "":
		n.meetCounted(n.chosen[0].name)
	}
	n.arrange()
}

// stepHash returns the identity of what runs together.
func (n *names) stepHash() uint64 {
	p := fingerprint(printSeed)
	if stem := n.counted(); stem != "" {
		return uint64(p.text(stem))
	}
	for _, u := range n.chosen {
		p = p.mix(u.key)
	}
	return uint64(p)
}

// What became of a batch.
type verdict uint8

const (
	stepDone      verdict = iota // every member is completed, rightly or with a mismatch of its own
	stepSingly                   // the ranks' packs differ: run the members one by one
	stepWithdrawn                // the plan is broken: nothing was done
	stepFailed                   // the group has failed
	stepLeft                     // the others have not come in the time that there was
)

// runBatch runs members as one operation and completes them. With a budget ≥ 0 it may
// leave it to the worker, which goes on where it stopped.
func (n *names) runBatch(members []*op, budget time.Duration) verdict {
	g := n.g
	if p := g.cause.Load(); p != nil {
		if n.begun {
			n.begun = false
			g.comm.Abandon(*p)
		}
		return stepFailed
	}
	first := members[0]
	listen := first.submitted != 0
	if first.Alloc != nil {
		return n.runSized(members)
	}
	call := &n.aux
	if !n.begun {
		n.assemble(members, call)
	}
	n.begun = false
	s := n.first
	var err error
	if listen || budget >= 0 {
		var here bool
		if here, err = g.comm.Arrive(s, call, budget); err == nil && !here {
			n.begun = true
			return stepLeft
		}
	}
	if listen {
		now := g.clock.Now()
		for _, o := range members {
			o.arrived = now
		}
	}
	if err == nil {
		err = g.comm.Run(s, call, g.deadline(&first.Request))
	}
	if err != nil {
		if v, done := n.differ(members, err); !done {
			return v
		}
		return stepDone
	}
	if len(members) > 1 {
		if n.packed != 0 {
			n.reduced = g.clock.Now()
		}
		n.unpack(members, call)
	}
	n.laid(members)
	g.view.end(s.Seq)
	for _, o := range members {
		g.report(o, s.Seq, len(members), nil)
	}
	n.completeAll(members, nil)
	return stepDone
}

// assemble makes one call of members and gives it a number.
func (n *names) assemble(members []*op, call *collective.Call) {
	g := n.g
	first := members[0]
	listen := first.submitted != 0
	n.packed, n.reduced = 0, 0
	*call = first.Call
	stamp := first.print
	if len(members) > 1 {
		if listen {
			n.packed = g.clock.Now()
		}
		if !n.pack(members, call) {
			n.packed = 0
		}
		stamp = printSeed
		for _, o := range members {
			stamp = stamp.mix(uint64(o.print))
		}
	}
	g.number()
	g.view.begin(g.seq, first.Kind, first.Name)
	g.view.packed(len(members) - 1)
	n.first = transport.Stamp{Seq: g.seq, Print: uint64(stamp)}
	call.Agree = call.Agree || len(members) > 1 || n.plan.active
	if listen {
		now := g.clock.Now()
		for _, o := range members {
			o.started = now
		}
	}
}

// runSized does what runBatch does, for an operation whose result's size nobody knows yet. Ranks
// that have come to something else show it in the exchange of the counts.
func (n *names) runSized(members []*op) verdict {
	g := n.g
	n.packed, n.reduced = 0, 0
	if _, err := g.agreeSizes(members[0]); err != nil {
		if v, done := n.differ(members, err); !done {
			return v
		}
		return stepDone
	}
	n.completeAll(members, g.performAgreed(members[0]))
	return stepDone
}

// differ deals with an error of a batch. done says that members were completed.
func (n *names) differ(members []*op, err error) (v verdict, done bool) {
	g := n.g
	var wrong *transport.MismatchError
	if !errors.As(err, &wrong) {
		g.lost(g.reasoned(err))
		g.mesh.Fail(err)
		return stepFailed, false
	}
	stage := stageCall
	if len(members) > 1 {
		stage = stagePack
	}
	mine := describe(&members[0].Request, stage)
	all, err := g.descriptions(&mine)
	if err != nil {
		g.lost(err)
		g.mesh.Fail(err)
		return stepFailed, false
	}
	g.view.end(g.seq)
	packed := false
	if n.plan.active && n.counted() != "" && differently(all) {
		return stepWithdrawn, false
	}
	for i := range all {
		switch all[i].stage {
		case stageRound:
			return stepWithdrawn, false
		case stagePack:
			packed = true
		}
	}
	if packed {
		return stepSingly, false
	}
	mismatch := g.mismatch(all)
	g.report(members[0], g.seq, 1, mismatch)
	if lengthsDiffer(all) {
		n.dropList(members[0], mismatch)
	}
	n.completeAll(members, mismatch)
	return stepDone, true
}

// completeAll hands out one result.
func (n *names) completeAll(members []*op, err error) {
	g := n.g
	g.mu.Lock()
	for _, o := range members {
		if o.phantom {
			continue
		}
		n.finish(o, err)
	}
	g.mu.Unlock()
}

// failRest completes members with the group's error.
func (n *names) failRest(members []*op) {
	for _, o := range members {
		if o.Name == "" && o.Kind == 0 {
			continue // completed before
		}
		n.completeAll([]*op{o}, n.g.failure(&o.Request))
	}
}

// putBack makes members pending again, before everything else, unit by unit.
func (n *names) putBack(members []*op) {
	g := n.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause.Load() != nil {
		for _, o := range members {
			n.finish(o, g.failure(&o.Request))
		}
		return
	}
	for _, o := range members {
		u := n.inflight[o.Name]
		o.next = nil
		if u.first == nil {
			u.first = o
			continue
		}
		last := u.first
		for last.next != nil {
			last = last.next
		}
		last.next = o
	}
	for i := len(n.chosen) - 1; i >= 0; i-- {
		u := n.chosen[i]
		if u.first == nil {
			continue
		}
		u.running = false
		u.prev, u.next = nil, n.firstPending
		if n.firstPending == nil {
			n.newest = u
		} else {
			n.firstPending.prev = u
		}
		n.firstPending = u
		n.byKey[u.key] = u
	}
	n.news = true
}

// pack makes call one allreduce of all members and reports whether it copied. Members that lie one after another in
// one registered buffer are reduced where they are. (Elsewhere neighbours may be
// separate allocations that happen to touch.)
func (n *names) pack(members []*op, call *collective.Call) (copied bool) {
	total, adjacent := 0, true
	for i, o := range members {
		if i > 0 {
			p := members[i-1]
			adjacent = adjacent && follows(p.Send, o.Send) && follows(p.Recv, o.Recv)
		}
		total += o.Send.Count
	}
	t := members[0].Type
	call.Send, call.Recv = members[0].Send, members[0].Recv
	call.Send.Count, call.Recv.Count = total, total
	if adjacent && n.registered(call.Send) && n.registered(call.Recv) {
		return false
	}
	buf := n.packing.take(total * t.Size())
	at := 0
	for _, o := range members {
		if o.Send.Count > 0 {
			kernel.Copy(unsafe.Add(buf, at), o.Send.Ptr, o.Send.Len())
		}
		at += o.Send.Len()
	}
	call.Send = tensor.View{Ptr: buf, Count: total, Type: t}
	call.Recv = call.Send
	return true
}

// follows reports that b begins where a ends.
func follows(a, b tensor.View) bool { return uintptr(a.Ptr)+uintptr(a.Len()) == uintptr(b.Ptr) }

// registered reports that v lies in one buffer that the ranks of this host map.
func (n *names) registered(v tensor.View) bool {
	b := n.g.mesh.Board()
	if b == nil {
		return false
	}
	_, _, ok := b.Registered(v.Ptr, v.Len())
	return ok
}

// unpack copies the result to where the members want it.
func (n *names) unpack(members []*op, call *collective.Call) {
	if call.Recv.Ptr == members[0].Recv.Ptr {
		return
	}
	at := 0
	for _, o := range members {
		if o.Recv.Count > 0 {
			kernel.Copy(o.Recv.Ptr, unsafe.Add(call.Recv.Ptr, at), o.Recv.Len())
		}
		at += o.Recv.Len()
	}
}
