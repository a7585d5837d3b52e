package hora

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"hora/engine"
)

// half is what a group knows of the group beside it: the same ranks in the other kind.
type half struct {
	made   chan struct{} // closed when group or err is there
	cancel context.CancelFunc
	group  *Group
	err    error
}

// ByName returns the half of g whose operations come in any order and are matched by name: g itself, if it was made
// with Named. Otherwise the first call makes it, on every member, each when it gets there: that wait is bounded by ctx,
// or where that has no deadline as an operation of g is, else by what ends doubted waits; where it fails every later
// call has the same error. It has g's timeout and is closed with g.
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
	var cancel context.CancelFunc
	if _, has := ctx.Deadline(); has {
		ctx, cancel = context.WithCancel(ctx)
	} else {
		ctx, cancel = context.WithTimeout(ctx, g.halfLimit())
	}
	g.half = &half{made: make(chan struct{}), cancel: cancel}
	return ctx, g.half
}

// halfLimit returns how long members that have come wait for the others' first call of the other kind. Those may be
// busy with anything, or wait for one of these in a call of g: nobody can tell.
func (g *Group) halfLimit() time.Duration {
	c := &g.world.cfg
	if t := cmp.Or(g.timeout, c.OpTimeout, max(c.StallEnd, 0)); t > 0 {
		return t
	}
	return max(c.StartTimeout, doubted*cmp.Or(max(c.DeadlockTimeout, 0), defaultDeadlock))
}

// makeHalf makes the group beside g. All members work its number out from g's, so that it does not matter what else
// they make meanwhile.
func (g *Group) makeHalf(ctx context.Context, h *half) {
	defer close(h.made)
	defer h.cancel()
	o := groupOptions{named: !g.named, name: g.halfName(), timeout: g.timeout}
	began, unmet := time.Now(), &engine.UnmetError{Named: o.named}
	if c := &g.world.cfg; c.StallWarn >= 0 && c.Log != nil {
		after := cmp.Or(c.StallWarn, engine.DefaultStall)
		warn := time.AfterFunc(after, func() {
			c.Log.Warn(fmt.Sprintf("%s: not every rank has made its first call %s in %v; see what the others do instead",
				g.name, unmet.Calls(), after))
		})
		defer warn.Stop()
	}
	h.group, h.err = g.world.open(ctx, g.ranks, numberOf(fmt.Sprint(g.id, " the other half")), o)
	if h.err != nil {
		if errors.Is(h.err, context.DeadlineExceeded) {
			unmet.After, unmet.Err = time.Since(began), h.err
			h.err = &OperationError{Kind: "make group " + o.name, Err: unmet}
		}
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
