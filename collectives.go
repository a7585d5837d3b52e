package hora

import (
	"context"
	"fmt"
	"unsafe"

	"hora/tensor"
)

// The typed operations. Each blocks until its result is there. ctx bounds the wait: an
// operation that others have begun cannot be taken back, so when ctx ends first the
// group fails on this rank with ctx's cause.

// run does r and waits for it, watching ctx only if it can end.
func run(ctx context.Context, g *Group, r *Request) error {
	if ctx.Done() == nil {
		_, _, err := g.engine.Run(r, -1)
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("%s: %w", r.Kind, err)
	}
	stop := context.AfterFunc(ctx, func() { g.engine.Fail(context.Cause(ctx)) })
	_, _, err := g.engine.Run(r, -1)
	stop()
	return err
}

// Allreduce replaces x on every rank by the reduction of all ranks' x.
func Allreduce[T Element](ctx context.Context, g *Group, x []T, op Op) error {
	r := AllreduceRequest(g.auto(), x, op)
	return run(ctx, g, &r)
}

// AllreduceRequest returns an Allreduce for Group.Submit or Group.Run, in place.
func AllreduceRequest[T Element](name string, x []T, op Op) Request {
	v := tensor.Of(x)
	return Request{Call: Call{Kind: KindAllreduce, Op: op, Type: v.Type, Send: v, Recv: v}, Name: name}
}

// Reduce replaces x on root by the reduction of all ranks' x.
func Reduce[T Element](ctx context.Context, g *Group, x []T, op Op, root int) error {
	v := tensor.Of(x)
	r := Request{Call: Call{Kind: KindReduce, Op: op, Type: v.Type, Root: root, Send: v}, Name: g.auto()}
	if g.Rank() == root {
		r.Recv = v
	}
	return run(ctx, g, &r)
}

// Broadcast replaces x on every rank by root's.
func Broadcast[T Element](ctx context.Context, g *Group, x []T, root int) error {
	v := tensor.Of(x)
	r := Request{Call: Call{Kind: KindBroadcast, Type: v.Type, Root: root, Send: v, Recv: v}, Name: g.auto()}
	return run(ctx, g, &r)
}

// Allgather gives every rank all ranks' x, in rank order. Lengths may differ.
func Allgather[T Element](ctx context.Context, g *Group, x []T) ([]T, error) {
	var all []T
	v := tensor.Of(x)
	r := Request{Call: Call{Kind: KindAllgather, Type: v.Type, Send: v}, Name: g.auto(), Alloc: allocate(&all)}
	err := run(ctx, g, &r)
	return all, err
}

// ReduceScatter gives each rank its share of the reduction of all ranks' x: the first
// len(x) mod n ranks get one element more.
func ReduceScatter[T Element](ctx context.Context, g *Group, x []T, op Op) ([]T, error) {
	n := g.Size()
	counts := make([]int, n)
	for i := range counts {
		counts[i] = len(x) / n
		if i < len(x)%n {
			counts[i]++
		}
	}
	mine := make([]T, counts[g.Rank()])
	v := tensor.Of(x)
	r := Request{Call: Call{
		Kind: KindReduceScatter, Op: op, Type: v.Type, Send: v, Recv: tensor.Of(mine),
		RecvCounts: counts,
	}, Name: g.auto()}
	err := run(ctx, g, &r)
	return mine, err
}

// Alltoall sends counts[r] elements of x to each rank r, in order, and returns what all
// ranks sent here, in rank order, with the number from each. nil counts means equal parts.
func Alltoall[T Element](ctx context.Context, g *Group, x []T, counts []int) ([]T, []int, error) {
	var all []T
	v := tensor.Of(x)
	r := Request{
		Call: Call{Kind: KindAlltoall, Type: v.Type, Send: v, SendCounts: counts}, Name: g.auto(),
		Alloc: allocate(&all),
	}
	var one [1]Ticket
	rs := [1]Request{r}
	if err := g.Submit(rs[:], one[:]); err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { g.engine.Fail(context.Cause(ctx)) })
	defer stop()
	if err := g.engine.Await(one[0]); err != nil {
		g.Release(one[0])
		return nil, nil, err
	}
	_, _, received := g.engine.Result(one[0], nil)
	g.Release(one[0])
	return all, received, nil
}

// Gather gives root all ranks' x in rank order, and nil to the others. Lengths may differ.
func Gather[T Element](ctx context.Context, g *Group, x []T, root int) ([]T, error) {
	sizes := make([]int64, g.Size())
	sizes[g.Rank()] = int64(len(x))
	if err := Reduce(ctx, g, sizes, Sum, root); err != nil {
		return nil, err
	}
	v := tensor.Of(x)
	r := Request{Call: Call{Kind: KindGather, Type: v.Type, Root: root, Send: v, RecvCounts: []int{}}, Name: g.auto()}
	var all []T
	if g.Rank() == root {
		total := 0
		r.RecvCounts = make([]int, len(sizes))
		for i, s := range sizes {
			r.RecvCounts[i] = int(s)
			total += int(s)
		}
		all = make([]T, total)
		r.Recv = tensor.Of(all)
	}
	err := run(ctx, g, &r)
	return all, err
}

// Scatter gives each rank its part of root's x: dst has the length of that part, which
// may differ from rank to rank.
func Scatter[T Element](ctx context.Context, g *Group, dst, x []T, root int) error {
	sizes := make([]int64, g.Size())
	sizes[g.Rank()] = int64(len(dst))
	if err := Reduce(ctx, g, sizes, Sum, root); err != nil {
		return err
	}
	v := tensor.Of(dst)
	r := Request{Call: Call{Kind: KindScatter, Type: v.Type, Root: root, Recv: v, SendCounts: []int{}}, Name: g.auto()}
	if g.Rank() == root {
		r.Send = tensor.Of(x)
		r.SendCounts = make([]int, len(sizes))
		for i, s := range sizes {
			r.SendCounts[i] = int(s)
		}
	}
	return run(ctx, g, &r)
}

// Barrier returns when every rank has entered it.
func Barrier(ctx context.Context, g *Group) error {
	r := Request{Call: Call{Kind: KindBarrier}, Name: g.auto()}
	return run(ctx, g, &r)
}

// Send sends x to a rank that calls Recv.
func Send[T Element](ctx context.Context, g *Group, x []T, to int) error {
	v := tensor.Of(x)
	r := Request{Call: Call{Kind: KindSend, Type: v.Type, Peer: to, Send: v}}
	return run(ctx, g, &r)
}

// Recv fills x with what rank from sends; the lengths must be equal.
func Recv[T Element](ctx context.Context, g *Group, x []T, from int) error {
	v := tensor.Of(x)
	r := Request{Call: Call{Kind: KindRecv, Type: v.Type, Peer: from, Recv: v}}
	return run(ctx, g, &r)
}

// allocate makes the slice that an operation fills once its length is known.
func allocate[T Element](to *[]T) func(bytes int) unsafe.Pointer {
	return func(bytes int) unsafe.Pointer {
		var zero T
		*to = make([]T, bytes/int(unsafe.Sizeof(zero)))
		return unsafe.Pointer(unsafe.SliceData(*to))
	}
}

// auto names an operation whose caller gave none. In a named group that is by position, since
// ranks that call the typed functions in the same order count alike.
func (g *Group) auto() string {
	if !g.named {
		return g.site()
	}
	return fmt.Sprintf("unnamed.%d", g.count.Add(1))
}
