package hora

import (
	"context"
	"fmt"

	"hora/tensor"
)

// Pending is a call that was submitted and goes on while the caller does something else. The memory it was given is not
// to be touched until Wait has returned. It belongs to one goroutine.
type Pending struct {
	g      *Group
	ticket Ticket
	kind   Kind
	ended  bool
	err    error
}

// AllreduceAsync begins an Allreduce of x, in place.
func AllreduceAsync[T Element](g *Group, x []T, op Op) (*Pending, error) {
	return g.begin(AllreduceRequest(g.auto(), x, op))
}

// BroadcastAsync begins a Broadcast of root's x, in place.
func BroadcastAsync[T Element](g *Group, x []T, root int) (*Pending, error) {
	v := tensor.Of(x)
	return g.begin(Request{Call: Call{Kind: KindBroadcast, Type: v.Type, Root: root, Send: v, Recv: v}, Name: g.auto()})
}

func (g *Group) begin(r Request) (*Pending, error) {
	var ticket [1]Ticket
	if err := g.engine.Submit([]Request{r}, ticket[:]); err != nil {
		return nil, err
	}
	return &Pending{g: g, ticket: ticket[0], kind: r.Kind}, nil
}

// Wait blocks until the call has ended and returns its error; again, it returns the same. When ctx ends first the group
// fails on this rank with ctx's cause, as for a call that blocks.
func (p *Pending) Wait(ctx context.Context) error {
	if p.ended {
		return p.err
	}
	if ctx.Done() != nil {
		if err := context.Cause(ctx); err != nil {
			p.g.engine.Fail(fmt.Errorf("%s: %w", p.kind, err))
		}
		defer context.AfterFunc(ctx, func() { p.g.engine.Fail(context.Cause(ctx)) })()
	}
	_, p.err = p.g.engine.Wait(p.ticket, -1)
	p.ended = true
	return p.err
}

// Done reports whether Wait would return at once.
func (p *Pending) Done() bool {
	if p.ended {
		return true
	}
	done, _ := p.g.engine.Poll(p.ticket)
	return done
}
