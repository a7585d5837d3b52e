package hora

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"hora/engine"
	"hora/transport/shm"
)

// Group is a set of ranks that do operations together. The caller's order is the order
// unless it was made with Named; ByName and InOrder give the same ranks in either kind.
// Methods may be called from any goroutine.
type Group struct {
	engine  *engine.Group
	world   *World
	ranks   []int
	name    string
	id      uint64 // equal on all members
	named   bool
	timeout time.Duration
	link    *shm.Link // memory shared with the ranks of this host; nil when there is none

	count   atomic.Uint64 // operations without a name
	mu      sync.Mutex    // guards the rest
	half    *half         // the same ranks in the other kind; nil until somebody asks for it
	buffers []*shm.Buffer // closed with the group
	lasting []*shm.Buffer // closed by Free alone
}

// GroupOption changes a group that NewGroup makes.
type GroupOption func(*groupOptions)

type groupOptions struct {
	named   bool
	name    string
	timeout time.Duration
}

// Named makes a group whose operations come in any order and are matched by name.
func Named() GroupOption { return func(o *groupOptions) { o.named = true } }

// Called gives the group a name for messages.
func Called(name string) GroupOption { return func(o *groupOptions) { o.name = name } }

// Timeout ends the group's operations after d; 0 means Config.OpTimeout.
func Timeout(d time.Duration) GroupOption { return func(o *groupOptions) { o.timeout = d } }

// ErrNotMember is what NewGroup returns on a rank that is not in the list.
var ErrNotMember = errors.New("this rank is not in the group")

// NewGroup makes a group of the given ranks; nil means all. Its ranks are numbered in
// ascending order. Every member calls it, in the same order for groups of the same
// ranks, name and kind; others need not.
func (w *World) NewGroup(ctx context.Context, ranks []int, opts ...GroupOption) (*Group, error) {
	if ranks == nil {
		ranks = w.everyone()
	}
	ranks = slices.Clone(ranks)
	slices.Sort(ranks)
	for i, r := range ranks {
		if r < 0 || r >= w.cfg.Size {
			return nil, &InvalidError{Text: fmt.Sprintf("make group: rank %d is not in a world of %d", r, w.cfg.Size)}
		}
		if i > 0 && ranks[i-1] == r {
			return nil, &InvalidError{Text: fmt.Sprintf("make group: rank %d is listed twice", r)}
		}
	}
	if !slices.Contains(ranks, w.cfg.Rank) {
		return nil, fmt.Errorf("make group of ranks %v: rank %d: %w", ranks, w.cfg.Rank, ErrNotMember)
	}
	var o groupOptions
	for _, f := range opts {
		f(&o)
	}
	id := w.nextID(fmt.Sprint(ranks, o.named, o.name))
	if o.name == "" {
		o.name = fmt.Sprintf("of ranks %v", ranks)
		if len(ranks) == w.cfg.Size {
			o.name = "of all ranks"
		}
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.StartTimeout)
	defer cancel()
	return w.open(ctx, ranks, id, o)
}

// nextID numbers a group as every member does: by what tells it from others and how
// many such groups there were before. The world's own group has number 0.
func (w *World) nextID(key string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made[key]++
	return numberOf(fmt.Sprint(key, w.made[key]))
}

// numberOf returns a group's number by what its members know of it.
func numberOf(key string) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range []byte(key) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return max(h, 1)
}

// open joins the members of a group.
func (w *World) open(ctx context.Context, ranks []int, id uint64, o groupOptions) (*Group, error) {
	g := &Group{world: w, ranks: ranks, name: o.name, id: id, named: o.named, timeout: o.timeout}
	ctx, done := w.together(ctx, ranks)
	defer done()
	mesh, err := w.mesh(ctx, g, id)
	if err != nil {
		err = missed(ctx, err)
		return nil, &OperationError{Kind: "make group " + o.name, Err: err}
	}
	c := &w.cfg
	timeout := o.timeout
	if timeout == 0 {
		timeout = c.OpTimeout
	}
	cfg := engine.Config{
		Name: o.name, Ranks: ranks, Named: o.named, FusionBytes: c.FusionBytes, Names: c.Names,
		OpTimeout: timeout, StallWarn: c.StallWarn, StallEnd: c.StallEnd,
		Events: c.Events, Clock: w.clock, Log: c.Log,
	}
	if id == 0 && w.knots != nil {
		cfg.OnNote = w.knots.hear
	}
	if w.client != nil && !c.Serve {
		cfg.Reason = w.reason
	}
	cfg.Collective.Table, cfg.Collective.Tune = c.Algorithms, c.Tune
	if g.engine, err = engine.New(mesh, cfg); err != nil {
		return nil, err
	}
	w.mu.Lock()
	closed, ended := w.closed, w.ended
	w.groups[g] = struct{}{}
	w.mu.Unlock()
	switch {
	case closed:
		g.Close()
		return nil, ErrClosed
	case ended != nil:
		g.lost(ended)
	}
	return g, nil
}

// lost hears from the coordinator that the group cannot go on. Ranks in err are the
// world's.
func (g *Group) lost(err error) {
	var peer *PeerLostError
	if errors.As(err, &peer) {
		moved := *peer
		moved.Rank = slices.Index(g.ranks, peer.Rank)
		err = &moved
	}
	g.engine.Fail(err)
}

// Rank returns this process's place in the group.
func (g *Group) Rank() int { return g.engine.Rank() }

// Size returns the number of ranks of the group.
func (g *Group) Size() int { return g.engine.Size() }

// Ranks returns the members' ranks in the world, ascending.
func (g *Group) Ranks() []int { return slices.Clone(g.ranks) }

// Name returns what messages call the group.
func (g *Group) Name() string { return g.name }

// Named reports whether the group matches operations by name.
func (g *Group) Named() bool { return g.named }

// Err returns why the group has failed, nil while it works.
func (g *Group) Err() error { return g.engine.Err() }

// Run does r on the caller's thread when nothing is queued before it. With a budget ≥ 0
// it gives up waiting for others after that long: the operation goes on and t stands
// for it. A negative budget waits to the end.
func (g *Group) Run(r *Request, budget time.Duration) (t Ticket, done bool, err error) {
	if g.world.cfg.CheckCalls {
		r = &g.placed([]Request{*r})[0]
	}
	return g.engine.Run(r, budget)
}

// Submit queues rs: tickets has one element per request, or one for all, or none. In a
// Named group the requests of one call are released together or not at all.
func (g *Group) Submit(rs []Request, tickets []Ticket) error {
	if g.world.cfg.CheckCalls {
		rs = g.placed(slices.Clone(rs))
	}
	return g.engine.Submit(rs, tickets)
}

// Wait blocks until t is done or timeout has passed (negative: no bound) and then
// releases it.
func (g *Group) Wait(t Ticket, timeout time.Duration) (done bool, err error) {
	return g.engine.Wait(t, timeout)
}

// Poll reports whether t is done and keeps it.
func (g *Group) Poll(t Ticket) (done bool, err error) { return g.engine.Poll(t) }

// Release gives t up; the operation goes on.
func (g *Group) Release(t Ticket) { g.engine.Release(t) }

// Cancel takes t back if it has not begun.
func (g *Group) Cancel(t Ticket) bool { return g.engine.Cancel(t) }

// Join says that this rank has no more data (Named groups): it gives zeros to the
// others' allreduces until all have joined, and returns the rank that came last. With a
// timeout ≥ 0 it may return done = false; call it again then.
func (g *Group) Join(timeout time.Duration) (last int, done bool, err error) {
	return g.engine.Join(timeout)
}

// Counters returns this group's bytes and messages by link.
func (g *Group) Counters() Counters { return g.engine.Counters() }

// farewell tells the other members that this rank takes part in nothing more, waits up to
// grace for them to leave too, and remembers whether they have made as many calls.
func (g *Group) farewell(grace time.Duration) {
	if err := g.engine.Farewell(grace); err != nil {
		g.world.mu.Lock()
		g.world.apart = cmp.Or(g.world.apart, err)
		g.world.mu.Unlock()
	}
}

// Close gives the group up on this rank, and what ByName or InOrder made beside it. It is idempotent.
func (g *Group) Close() error {
	beside := g.closeHalf()
	w := g.world
	w.mu.Lock()
	_, open := w.groups[g]
	delete(w.groups, g)
	w.mu.Unlock()
	err := errors.Join(beside, g.engine.Close())
	if open {
		sum := g.engine.Counters()
		w.mu.Lock()
		w.gone = w.gone.Add(sum)
		w.mu.Unlock()
	}
	g.mu.Lock()
	buffers := g.buffers
	g.buffers = nil
	g.mu.Unlock()
	for _, b := range buffers {
		err = errors.Join(err, b.Close())
	}
	return err
}

// closeGroups closes them all at once: each takes a moment to let its last data arrive,
// and others may be waiting to hear that this rank has left.
func closeGroups(groups []*Group) []error {
	faults := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() { faults[i] = g.Close() })
	}
	wg.Wait()
	return faults
}
