package engine

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"hora/collective"
	"hora/event"
	"hora/tensor"
	"hora/transport"
)

// Run does r and returns when it is done. When nothing is queued before it, it runs on
// the caller's thread. If budget is not negative and the other ranks have not come
// after that long, the operation goes on without the caller, who gets a ticket and
// done = false; the budget also bounds the time spent behind queued operations. Over
// message links an operation with a budget runs on the worker from the start.
//
// done is also true when err says that r was refused or failed.
func (g *Group) Run(r *Request, budget time.Duration) (t Ticket, done bool, err error) {
	mayDrive := !r.pair() && (budget < 0 || g.near)
	if g.names == nil && mayDrive && r.Alloc == nil {
		if g.queued.Load() == 0 && g.turn.CompareAndSwap(0, 1) {
			if g.queued.Load() == 0 {
				return g.inline(r, budget)
			}
			g.passTurn()
		}
	}
	var one [1]Ticket
	helps := g.names != nil && mayDrive
	if helps && r.Alloc == nil && g.queued.Load() == 0 {
		switch n := g.names; {
		case n.calm.Load():
			if g.turn.CompareAndSwap(0, 1) {
				t, done, ok, err := n.smooth(r, budget)
				if !ok || done {
					n.yield()
				}
				if ok {
					return t, done, err
				}
			}
		case g.near && r.Timeout == 0 && g.turn.CompareAndSwap(0, 1):
			t, ok, err := n.single(r, budget)
			if ok && t == 0 {
				return 0, true, err
			}
			one[0] = t
		}
	}
	if one[0] == 0 {
		if err := g.submit(unsafe.Slice(r, 1), one[:], !helps); err != nil {
			return 0, true, err
		}
	}
	if helps {
		g.help(one[0], budget)
	}
	done, err = g.Wait(one[0], budget)
	if done {
		return 0, true, err
	}
	return one[0], false, nil
}

// inline runs r on the caller's thread, which has the turn, and gives the turn up.
func (g *Group) inline(r *Request, budget time.Duration) (Ticket, bool, error) {
	asked, err := g.admit(r)
	if err != nil {
		g.passTurn()
		return 0, true, err
	}
	if g.cause.Load() != nil {
		g.passTurn()
		return 0, true, g.failure(r)
	}
	listen := g.cfg.Events.On()
	var started, arrived int64
	if listen {
		started = g.clock.Now()
	}
	g.count()
	s := g.begin(r, asked)
	if budget >= 0 || listen {
		var here bool
		if here, err = g.comm.Arrive(s, &r.Call, budget); err == nil && !here {
			return g.handOver(r, s, started)
		}
		if listen {
			arrived = g.clock.Now()
		}
	}
	if err == nil {
		err = g.comm.Run(s, &r.Call, g.deadline(r))
	}
	if err != nil || listen {
		err = g.settle(r, s, err)
	}
	g.view.end(s.Seq)
	if listen {
		o := op{Request: *r, submitted: started, started: started, arrived: arrived}
		g.reportInline(&o, s.Seq, err)
	}
	g.passTurn()
	return 0, true, err
}

// reportInline reports an operation that was never queued.
func (g *Group) reportInline(o *op, seq uint64, err error) { g.report(o, seq, 1, err) }

// open numbers r and notes it as the present operation. The turn is held.
func (g *Group) open(r *Request) transport.Stamp { return g.begin(r, fingerprintOf(r)) }

// begin opens a request whose fingerprint is known.
func (g *Group) begin(r *Request, p fingerprint) transport.Stamp {
	g.number()
	g.view.begin(g.seq, r.Kind, r.Name)
	return transport.Stamp{Seq: g.seq, Print: uint64(p)}
}

// admit checks r, unless it was lately, and is its fingerprint. The turn is held.
func (g *Group) admit(r *Request) (fingerprint, error) {
	if k := g.known.of(r); k != nil {
		return k.print, nil
	}
	return g.examine(r)
}

// examine checks r and remembers it. The turn is held.
func (g *Group) examine(r *Request) (fingerprint, error) {
	if err := g.check(r); err != nil {
		return 0, err
	}
	p := fingerprintOf(r)
	g.known.note(r, p)
	return p, nil
}

// handOver leaves a begun operation, and the turn, to the worker.
func (g *Group) handOver(r *Request, s transport.Stamp, started int64) (Ticket, bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing {
		g.turn.Store(0)
		return 0, true, g.failure(r)
	}
	o := g.newOp(r)
	o.stamp, o.begun, o.submitted, o.started = s, true, started, started
	o.cell = g.cells.take(1)
	if o.cell == nil {
		// Nobody can wait for it, so nobody may think that it is still his: the
		// group cannot go on.
		err := &InvalidError{fmt.Sprintf("run %s: %d operations are in flight already; wait for some", r.Kind, maxCells-1)}
		go g.Fail(err)
		return 0, true, err
	}
	g.queued.Add(1)
	g.handed = o
	o.cell.await(o, unitKey([]Request{o.Request}))
	if g.names != nil {
		g.names.inflight[o.Name] = &unit{
			key: o.cell.key, count: 1, kind: o.Kind, name: o.Name, since: time.Now(),
			running: true,
		}
	}
	g.wake()
	return o.cell.ticket(), false, nil
}

// passTurn gives the turn up and wakes the worker if it has something to do.
func (g *Group) passTurn() {
	g.turn.Store(0)
	if g.queued.Load() != 0 {
		g.mu.Lock()
		g.wake()
		g.mu.Unlock()
	}
}

// perform runs a queued operation to its end. The turn is held.
func (g *Group) perform(o *op) error {
	if p := g.cause.Load(); p != nil {
		if o.begun {
			g.comm.Abandon(*p)
		}
		return g.failure(&o.Request)
	}
	if o.Alloc != nil {
		return g.performSized(o)
	}
	if !o.begun {
		o.stamp = g.open(&o.Request)
		if o.submitted != 0 {
			o.started = g.clock.Now()
		}
	}
	err := g.drive(o)
	g.view.end(o.stamp.Seq)
	g.report(o, o.stamp.Seq, 1, err)
	return err
}

// drive runs o under its stamp.
func (g *Group) drive(o *op) error {
	var err error
	if o.submitted != 0 {
		_, err = g.comm.Arrive(o.stamp, &o.Call, -1)
		o.arrived = g.clock.Now()
	}
	if err == nil {
		err = g.comm.Run(o.stamp, &o.Call, g.deadline(&o.Request))
	}
	return g.settle(&o.Request, o.stamp, err)
}

// performSized runs an operation whose result's size nobody knows yet: counts first,
// then the data into memory that the caller allocates.
func (g *Group) performSized(o *op) error {
	s, err := g.agreeSizes(o)
	if err = g.settle(&o.Request, s, err); err != nil {
		g.view.end(s.Seq)
		g.report(o, s.Seq, 1, err)
		return err
	}
	return g.performAgreed(o)
}

// agreeSizes has all ranks tell each other how much they send in o, into g.sizes. It
// changes nothing else and gives the error as the links do: who has come to something
// else makes it a mismatch before anything is done.
func (g *Group) agreeSizes(o *op) (transport.Stamp, error) {
	n := g.Size()
	if cap(g.sizes) < 2*n {
		g.sizes = make([]int64, 2*n)
	}
	mine, theirs := g.sizes[:n], g.sizes[n:2*n]
	call := &g.counts
	*call = collective.Call{Kind: collective.Allgather, Type: tensor.Int64, Recv: tensor.Of(theirs), Agree: true}
	width := 1
	if o.Kind == collective.Alltoall {
		call.Kind = collective.Alltoall
		for i := range mine {
			mine[i] = int64(o.Send.Count / n)
			if o.SendCounts != nil {
				mine[i] = int64(o.SendCounts[i])
			}
		}
		width = n
	} else {
		mine[0] = int64(o.Send.Count)
	}
	call.Send = tensor.Of(mine[:width])
	if o.submitted != 0 {
		o.started = g.clock.Now()
	}
	s := g.open(&o.Request)
	return s, g.comm.Run(s, call, g.deadline(&o.Request))
}

// performAgreed does what follows agreeSizes: all ranks are in o together.
func (g *Group) performAgreed(o *op) error {
	if o.submitted != 0 {
		o.arrived = g.clock.Now()
	}
	g.view.end(g.seq)
	n := g.Size()
	if err := g.allocate(o, g.sizes[n:2*n]); err != nil {
		g.Fail(err)
		return g.failure(&o.Request)
	}
	o.stamp = g.open(&o.Request)
	err := g.comm.Run(o.stamp, &o.Call, g.deadline(&o.Request))
	err = g.settle(&o.Request, o.stamp, err)
	g.view.end(o.stamp.Seq)
	g.report(o, o.stamp.Seq, 1, err)
	return err
}

// allocate makes o's result for the counts that every rank sends here.
func (g *Group) allocate(o *op, counts []int64) error {
	total := 0
	o.RecvCounts = make([]int, len(counts))
	for i, c := range counts {
		if c < 0 || c > 1<<40 {
			return fmt.Errorf("%s %s: rank %d announced %d elements", o.Kind, o.Name, g.worldRank(i), c)
		}
		o.RecvCounts[i] = int(c)
		total += int(c)
	}
	if o.Kind == collective.Alltoall && o.SendCounts == nil {
		o.SendCounts = make([]int, len(counts))
		for i := range o.SendCounts {
			o.SendCounts[i] = o.Send.Count / len(counts)
		}
	}
	o.Recv = tensor.View{Count: total, Type: o.Type}
	if total > 0 {
		o.Recv.Ptr = o.Alloc(total * o.Type.Size())
		if o.Recv.Ptr == nil {
			return fmt.Errorf("%s %s: no memory for the %d elements of all ranks", o.Kind, o.Name, total)
		}
	}
	if o.cell != nil {
		g.mu.Lock()
		r := &o.cell.result
		r.ptr, r.count = o.Recv.Ptr, total
		r.counts = append(r.counts[:0], o.RecvCounts...)
		g.mu.Unlock()
	}
	return nil
}

// settle turns an error of the links into one for the caller: a mismatch is explained
// on all ranks and harms nothing else; anything else ends the group.
func (g *Group) settle(r *Request, s transport.Stamp, err error) error {
	if err == nil {
		return nil
	}
	var wrong *transport.MismatchError
	if errors.As(err, &wrong) {
		mismatch, apart, err := g.explain(r)
		if err == nil {
			if apart {
				g.dropCall(r, mismatch)
			}
			g.cfg.Events.Emit(&event.Mismatch{Group: g.cfg.Name, Name: r.Name, Err: mismatch})
			return mismatch
		}
		g.lost(err)
		return g.failure(r)
	}
	g.lost(g.reasoned(err))
	g.mesh.Fail(err)
	return g.failure(r)
}
