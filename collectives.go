package hora

import "context"

// The typed operations. Each blocks until its result is there; ctx ends the wait, not
// the operation, which the other ranks have begun: a group whose wait was cut short is
// failed on this rank, because the buffers go back to the caller.

// Allreduce replaces x on every rank by the reduction of all ranks' x.
func Allreduce[T Element](ctx context.Context, g *Group, x []T, op Op) error { return nil }

// Reduce replaces x on root by the reduction of all ranks' x.
func Reduce[T Element](ctx context.Context, g *Group, x []T, op Op, root int) error { return nil }

// Broadcast replaces x on every rank by root's.
func Broadcast[T Element](ctx context.Context, g *Group, x []T, root int) error { return nil }

// Allgather gives every rank all ranks' x, in rank order. Lengths may differ.
func Allgather[T Element](ctx context.Context, g *Group, x []T) ([]T, error) { return nil, nil }

// ReduceScatter gives each rank its share of the reduction of all ranks' x: the first
// len(x) mod n ranks get one element more.
func ReduceScatter[T Element](ctx context.Context, g *Group, x []T, op Op) ([]T, error) {
	return nil, nil
}

// Alltoall sends counts[r] elements of x to each rank r, in order, and returns what all
// ranks sent here, in rank order, with the number from each. nil counts means equal parts.
func Alltoall[T Element](ctx context.Context, g *Group, x []T, counts []int) ([]T, []int, error) {
	return nil, nil, nil
}

// Gather gives root all ranks' x in rank order, and nil to the others. Lengths may differ.
func Gather[T Element](ctx context.Context, g *Group, x []T, root int) ([]T, error) { return nil, nil }

// Scatter gives each rank its part of root's x: dst has the length of that part.
func Scatter[T Element](ctx context.Context, g *Group, dst, x []T, root int) error { return nil }

// Barrier returns when every rank has entered it.
func Barrier(ctx context.Context, g *Group) error { return nil }

// Send sends x to a rank that calls Recv.
func Send[T Element](ctx context.Context, g *Group, x []T, to int) error { return nil }

// Recv fills x with what rank from sends; the lengths must be equal.
func Recv[T Element](ctx context.Context, g *Group, x []T, from int) error { return nil }
