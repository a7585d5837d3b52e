package engine

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"hora/collective"
	"hora/event"
	"hora/transport"
)

// Group is one rank's side of a set of ranks that do operations together. All methods
// may be called from any goroutine; the order of an ordered group is the order in which
// Run and Submit are entered.
//
// Who holds the turn drives the mesh and the Comm, alone; it is taken with mu held or
// by Run when nothing is queued, and never waited for with mu held. mu guards the queue,
// the tickets and the names; it is never held over I/O.
type Group struct {
	mesh  transport.Mesh
	comm  *collective.Comm
	cfg   Config
	clock event.Epoch
	// near: all ranks share one board, so who waits for others to come to an operation
	// can stop waiting and leave it to the worker. On message links he cannot.
	near bool

	turn   atomic.Uint32         // 1 while somebody has it
	queued atomic.Int64          // operations in the queue, the one being run included
	cause  atomic.Pointer[error] // why the group has failed
	// what it waited in when it failed for that: ranks end for a stall at the same time, and who asks last still hears
	// where the others were
	stalled atomic.Pointer[stuckAt]
	doom    atomic.Pointer[error] // why it will in a moment
	gone    atomic.Pointer[farewell]

	parting parting

	// Owned by whoever has the turn. The first two lie on one line: each call changes both.
	seq    uint64 // of operations; others read it, see at
	direct uint64 // calls that took the short way; others read it
	record event.Operation
	sizes  []int64         // counts of all ranks, for Request.Alloc
	counts collective.Call // that exchanges them
	known  known

	mu         sync.Mutex
	work       sync.Cond // the worker's: something to do
	done       sync.Cond // the waiters': something is done
	head, tail *op       // queue of an ordered group
	given      uint64    // calls that did not take the short way
	handed     *op       // begun by a caller whose budget ran out; the turn goes with it
	free       *op
	cells      *cells
	sleepers   []*sleeper
	patient    sleeper
	started    bool // the worker runs
	closing    bool

	names *names // of a named group
	pairs pairs
	view  view

	shortest atomic.Int64  // of the limits that requests brought, in nanoseconds
	hurried  chan struct{} // tells the watch of a shorter one

	asking  sync.Mutex // guards inquiry
	inquiry *inquiry

	wg   sync.WaitGroup
	stop chan struct{}
}

// op is a queued operation.
type op struct {
	Request
	next  *op
	cell  *cell // nil when nobody will wait
	stamp transport.Stamp
	begun bool // its Arrive was called under stamp

	submitted, started, arrived int64 // event times; 0 when nobody listens

	named
}

// New makes a group over m, which it owns from then on, also when it returns an error.
func New(m transport.Mesh, cfg Config) (*Group, error) {
	cfg.fill()
	comm, err := collective.New(m, cfg.Collective)
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("make group %s: %w", cfg.Name, err)
	}
	c, err := newCells()
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("make group %s: map tickets: %w", cfg.Name, err)
	}
	g := &Group{
		mesh: m, comm: comm, cfg: cfg, clock: cfg.Clock, cells: c, stop: make(chan struct{}),
		hurried: make(chan struct{}, 1),
	}
	g.seq = comm.First() - 1 // tuning has used some numbers
	g.view.end(g.seq)
	g.work.L, g.done.L = &g.mu, &g.mu
	b := m.Board()
	g.near = m.Size() == 1 || b != nil && b.Seats() == m.Size()
	if cfg.Named {
		g.names = newNames(g)
	}
	g.pairs.init(g)
	g.parting.init()
	mem := c.mem
	runtime.AddCleanup(g, func([]byte) { unix.Munmap(mem) }, mem)
	m.OnTell(g.hear)
	if n, ok := m.(transport.FailureNotifier); ok {
		n.OnFail(g.failed)
	}
	g.wg.Add(1)
	go g.watch()
	return g, nil
}

// Rank returns this rank's place in the group.
func (g *Group) Rank() int { return g.mesh.Rank() }

// Size returns the number of ranks of the group.
func (g *Group) Size() int { return g.mesh.Size() }

// Counters returns the bytes and messages moved by link.
func (g *Group) Counters() transport.Counters { return g.mesh.Counters() }

// Mesh returns what the group runs over. It belongs to the group: callers may only ask what
// the mesh answers from any goroutine.
func (g *Group) Mesh() transport.Mesh { return g.mesh }

// Err returns why the group has failed, nil while it works.
func (g *Group) Err() error {
	if p := g.cause.Load(); p != nil {
		return *p
	}
	return nil
}

// Fail ends every pending and later operation with err.
func (g *Group) Fail(err error) {
	if err == nil {
		err = errors.New("the group was ended on this rank")
	}
	g.lost(err)
	g.mesh.Fail(err)
}

// Doom says what the group will be ended with in a moment, here and on other ranks: whatever ends
// it meanwhile, as that one of those has left already, is told as that.
func (g *Group) Doom(err error) { g.doom.Store(&err) }

// FailTogether fails the group by several ranks at once with one error: what they wait for ends with
// that, not with the word that another of them gave up.
func (g *Group) FailTogether(err error) {
	g.lost(err)
	time.AfterFunc(failTogether, func() { g.mesh.Fail(err) })
}

// failTogether is how long ranks that fail together have to hear of it.
const failTogether = 100 * time.Millisecond

// lost notes why the group has failed and wakes everybody who waits for it. It does not
// touch the mesh: who is blocked in it learns from the mesh itself.
func (g *Group) lost(err error) {
	err = g.translate(err)
	if doom := g.doom.Load(); doom != nil {
		err = *doom
	}
	g.waited(err)
	if !g.cause.CompareAndSwap(nil, &err) {
		return
	}
	var lost *transport.PeerLostError
	if errors.As(err, &lost) {
		g.cfg.Events.Emit(&event.PeerLost{Rank: lost.Rank, Host: lost.Host, Reason: lost.Reason})
	}
	g.pairs.fail()
	g.mu.Lock()
	g.drain()
	g.mu.Unlock()
	g.work.Broadcast()
	g.done.Broadcast()
	g.confess()
	g.parting.news()
}

// failed hears from the links that the group is over. It runs on their goroutine, so
// asking for a better reason is left to another.
func (g *Group) failed(err error) {
	var lost *transport.PeerLostError
	if g.cfg.Reason == nil || !errors.As(err, &lost) || lost.Left() {
		g.lost(err)
		return
	}
	g.mu.Lock()
	closing := g.closing
	if !closing {
		g.wg.Add(1)
	}
	g.mu.Unlock()
	if closing {
		g.lost(err)
		return
	}
	go func() {
		defer g.wg.Done()
		g.lost(g.reasoned(err))
	}()
}

// reasoned has whoever knows better say why a rank was lost.
func (g *Group) reasoned(err error) error {
	var lost *transport.PeerLostError
	if g.cfg.Reason == nil || g.cause.Load() != nil || !errors.As(err, &lost) || lost.Left() {
		return err
	}
	why := g.cfg.Reason(g.worldRank(lost.Rank))
	if why == "" {
		return err
	}
	better := *lost
	better.Reason = why
	return &better
}

// translate turns ranks of the group into ranks of the world.
func (g *Group) translate(err error) error {
	var lost *transport.PeerLostError
	var late *transport.DeadlineError
	switch {
	case g.cfg.Ranks == nil:
	case errors.As(err, &lost) && lost.Rank >= 0 && lost.Rank < len(g.cfg.Ranks):
		moved := *lost
		moved.Rank = g.cfg.Ranks[lost.Rank]
		return &moved
	case errors.As(err, &late) && late.Rank >= 0 && late.Rank < len(g.cfg.Ranks):
		moved := *late
		moved.Rank = g.cfg.Ranks[late.Rank]
		return &moved
	}
	return err
}

// worldRank returns the rank of the world that messages name for rank r of the group.
func (g *Group) worldRank(r int) int {
	if g.cfg.Ranks == nil || r < 0 || r >= len(g.cfg.Ranks) {
		return r
	}
	return g.cfg.Ranks[r]
}

// drain completes everything that has not begun with the group's error. mu is held.
func (g *Group) drain() {
	for o := g.head; o != nil; o = g.head {
		g.head = o.next
		g.queued.Add(-1)
		g.complete(o, g.failure(&o.Request))
	}
	g.tail = nil
	if g.names != nil {
		g.names.drain()
	}
}

// failure returns the error that r gets from a group that has failed.
func (g *Group) failure(r *Request) error {
	g.parting.handed()
	return &OperationError{Name: r.Name, Kind: r.Kind.String(), Err: g.behind(*g.cause.Load())}
}

// Close waits for nothing but, within a bound, for sends that have ended to be on their way: what
// is pending fails with ErrClosed. It joins the group's goroutines and closes the mesh. It is
// idempotent.
func (g *Group) Close() error {
	g.mu.Lock()
	first := !g.closing
	g.closing = true
	g.mu.Unlock()
	if first {
		close(g.stop)
	}
	healthy := g.cause.Load() == nil
	if first && healthy {
		g.pairs.deliverAll(deliverTime)
	}
	g.lost(ErrClosed)
	if first && healthy {
		g.leave()
	}
	err := g.mesh.Close()
	g.work.Broadcast()
	g.wg.Wait()
	return err
}

// complete hands o's result to whoever waits for it and keeps o for the next. mu is
// held. The caller has counted it out of queued.
func (g *Group) complete(o *op, err error) {
	if o.cell != nil && g.cells.finish(o.cell, err) {
		g.done.Broadcast()
	}
	*o = op{next: g.free}
	g.free = o
}

// newOp makes an op of r, or takes a used one. mu is held.
func (g *Group) newOp(r *Request) *op {
	o := g.free
	if o == nil {
		o = new(op)
	} else {
		g.free = o.next
	}
	*o = op{Request: *r}
	if g.cfg.Events.On() {
		o.submitted = g.clock.Now()
	}
	return o
}

// report tells listeners about an operation that has ended. The turn is held.
func (g *Group) report(o *op, seq uint64, fused int, err error) {
	if o.submitted == 0 || !g.cfg.Events.On() {
		return
	}
	r := &g.record
	*r = event.Operation{
		Group: g.cfg.Name, Ranks: g.cfg.Ranks, Size: g.Size(), Seq: seq, Name: o.Name, Kind: o.Kind.String(),
		Op: o.operator(), Type: o.Type.String(), Bytes: o.bytes(), Fused: fused,
		Submitted: o.submitted, Started: o.started, Arrived: o.arrived, Done: g.clock.Now(), Err: err,
	}
	switch {
	case o.Shape != nil:
		r.Dims = len(o.Shape)
		copy(r.Shape[:], o.Shape)
	case o.Kind != collective.Barrier:
		r.Dims, r.Shape[0] = 1, max(o.Send.Count, o.Recv.Count)
	}
	if n := g.names; n != nil {
		r.Agreed, r.Packing, r.Reduced = n.agreed, n.packed, n.reduced
	}
	g.cfg.Events.Operation(r)
}

// deadline returns the time at which r has taken too long, the zero time for never.
func (g *Group) deadline(r *Request) time.Time {
	if d := r.timeout(&g.cfg); d > 0 {
		return time.Now().Add(d)
	}
	return time.Time{}
}
