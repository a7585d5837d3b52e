package hora

import (
	"context"
	"fmt"
)

// half is what a group knows of the group beside it: the same ranks in the other kind.
type half struct {
	made   chan struct{} // closed when group or err is there
	cancel context.CancelFunc
	group  *Group
	err    error
}

// ByName returns the half of g whose operations come in any order and are matched by name: g itself, if it was made
// with Named. Otherwise the first call makes it, on every member, each when it gets there: ctx bounds that wait, as in
// NewGroup, and where it fails every later call has the same error. It has g's timeout and is closed with g.
func (g *Group) ByName(ctx context.Context) (*Group, error) { return g.ofKind(ctx, true) }

// InOrder returns the half of g whose operations are done in the order of the calls: g itself, unless it was made with
// Named. It is made as ByName's is.
func (g *Group) InOrder(ctx context.Context) (*Group, error) { return g.ofKind(ctx, false) }

func (g *Group) ofKind(ctx context.Context, named bool) (*Group, error) {
	if g.named == named {
		return g, nil
	}
	g.mu.Lock()
	h, first := g.half, g.half == nil
	if first {
		ctx, h = g.newHalf(ctx)
	}
	g.mu.Unlock()
	if first {
		g.makeHalf(ctx, h)
	}
	select {
	case <-h.made: // even if ctx is over
		return h.group, h.err
	default:
	}
	select {
	case <-h.made:
		return h.group, h.err
	case <-ctx.Done():
		return nil, fmt.Errorf("make %s: %w", g.halfName(), context.Cause(ctx))
	}
}

func (g *Group) halfName() string {
	if g.named {
		return g.name + " (ordered)"
	}
	return g.name + " (named)"
}

// newHalf notes that the group beside g is being made. The caller holds mu.
func (g *Group) newHalf(ctx context.Context) (context.Context, *half) {
	ctx, cancel := context.WithTimeout(ctx, g.world.cfg.StartTimeout)
	g.half = &half{made: make(chan struct{}), cancel: cancel}
	return ctx, g.half
}

// makeHalf makes the group beside g. All members work its number out from g's, so that it does not matter what else
// they make meanwhile.
func (g *Group) makeHalf(ctx context.Context, h *half) {
	defer close(h.made)
	defer h.cancel()
	o := groupOptions{named: !g.named, name: g.halfName(), timeout: g.timeout}
	h.group, h.err = g.world.open(ctx, g.ranks, numberOf(fmt.Sprint(g.id, " the other half")), o)
	if h.err != nil {
		return
	}
	back := &half{made: make(chan struct{}), group: g}
	close(back.made)
	h.group.mu.Lock()
	defer h.group.mu.Unlock()
	if h.group.half == nil { // else the world is being closed already
		h.group.half = back
	}
}

// closeHalf closes the group beside g if g has made it, ends its making, and lets nobody make it any more.
func (g *Group) closeHalf() error {
	g.mu.Lock()
	h := g.half
	if h == nil {
		h = &half{made: make(chan struct{}), err: ErrClosed}
		close(h.made)
		g.half = h
	}
	g.mu.Unlock()
	if h.cancel == nil {
		return nil
	}
	h.cancel()
	<-h.made
	if h.err != nil {
		return nil // who asked for it has been told
	}
	return h.group.Close()
}
