package engine

import (
	"fmt"
	"strings"

	"hora/collective"
	"hora/tensor"
)

// check refuses what can not be right whatever the other ranks do, before anything is
// sent and before it has a number.
func (g *Group) check(r *Request) error {
	if r.Kind == 0 || int(r.Kind) > len(collective.Kinds()) {
		return invalid(r, "%s is not an operation", r.Kind)
	}
	if g.names != nil && r.Name == "" && !r.pair() {
		return invalid(r, "an operation of group %s needs a name: its ranks match operations by it", g.cfg.Name)
	}
	if r.Kind == collective.Barrier {
		return nil
	}
	if !r.Type.Valid() {
		return invalid(r, "%s is not an element type", r.Type)
	}
	if r.Send.Count < 0 || r.Recv.Count < 0 || r.Send.Count > 0 && r.Send.Ptr == nil ||
		r.Recv.Count > 0 && r.Recv.Ptr == nil {
		return invalid(r, "a tensor of %d elements lies nowhere; give its memory", max(r.Send.Count, r.Recv.Count))
	}
	n := g.mesh.Size()
	if r.Kind.Rooted() && (r.Root < 0 || r.Root >= n) {
		return invalid(r, "root rank %d is not in group %s of %d ranks; name a root between 0 and %d", r.Root, g.cfg.Name, n, n-1)
	}
	if r.pair() {
		return g.checkPair(r, n)
	}
	if r.Kind.Reduces() {
		if err := tensor.Check(r.Op, r.Type); err != nil {
			return invalid(r, "%s", strings.TrimPrefix(err.Error(), "reduce: "))
		}
		if r.Op == tensor.Adasum && r.Kind != collective.Allreduce {
			return invalid(r, "adasum is an allreduce; %s takes sum, average, product, min or max", r.Kind)
		}
	}
	if err := g.checkCounts(r, n); err != nil {
		return err
	}
	return g.checkOverlap(r)
}

func (g *Group) checkPair(r *Request, n int) error {
	if r.Kind == collective.RecvFrom && r.Peer == AnyRank {
		return nil
	}
	if r.Peer < 0 || r.Peer >= n {
		return invalid(r, "rank %d is not in group %s of %d ranks; name one between 0 and %d", r.Peer, g.cfg.Name, n, n-1)
	}
	return nil
}

func (g *Group) checkCounts(r *Request, n int) error {
	me := g.mesh.Rank()
	switch r.Kind {
	case collective.Allreduce:
		if r.Recv.Count != r.Send.Count {
			return invalid(r, "%d elements go in and %d come out; give as many", r.Send.Count, r.Recv.Count)
		}
	case collective.Alltoall:
		if r.SendCounts == nil && r.Send.Count%n != 0 {
			return invalid(r, "%d elements do not divide into equal parts for %d ranks; give splits", r.Send.Count, n)
		}
		if err := counts(r, "splits", r.SendCounts, n, r.Send.Count); err != nil {
			return err
		}
		if r.Alloc == nil {
			return counts(r, "received splits", r.RecvCounts, n, r.Recv.Count)
		}
	case collective.Allgather:
		if r.Alloc != nil {
			return nil
		}
		if r.RecvCounts == nil && r.Recv.Count != n*r.Send.Count {
			return invalid(r, "%d ranks with %d elements each need room for %d, not %d; give counts if the ranks' differ", n, r.Send.Count, n*r.Send.Count, r.Recv.Count)
		}
		if r.RecvCounts != nil && len(r.RecvCounts) == n && r.RecvCounts[me] != r.Send.Count {
			return invalid(r, "this rank sends %d elements and its count says %d", r.Send.Count, r.RecvCounts[me])
		}
		return counts(r, "counts", r.RecvCounts, n, r.Recv.Count)
	case collective.ReduceScatter:
		if r.RecvCounts == nil && r.Send.Count != n*r.Recv.Count {
			return invalid(r, "%d elements do not divide into %d parts of %d; give counts", r.Send.Count, n, r.Recv.Count)
		}
		if r.RecvCounts != nil && len(r.RecvCounts) == n && r.RecvCounts[me] != r.Recv.Count {
			return invalid(r, "this rank receives %d elements and its count says %d", r.Recv.Count, r.RecvCounts[me])
		}
		return counts(r, "counts", r.RecvCounts, n, r.Send.Count)
	case collective.Gather:
		if me == r.Root && r.RecvCounts == nil && r.Recv.Count != n*r.Send.Count {
			return invalid(r, "the root needs room for %d elements and has %d", n*r.Send.Count, r.Recv.Count)
		}
		if me == r.Root {
			return counts(r, "counts", r.RecvCounts, n, r.Recv.Count)
		}
	case collective.Scatter:
		if me == r.Root && r.SendCounts == nil && r.Send.Count != n*r.Recv.Count {
			return invalid(r, "the root's %d elements do not divide into %d parts of %d", r.Send.Count, n, r.Recv.Count)
		}
		if me == r.Root {
			return counts(r, "counts", r.SendCounts, n, r.Send.Count)
		}
	}
	return nil
}

// counts checks one list of counts: one per rank, none negative, adding up to total.
func counts(r *Request, what string, list []int, ranks, total int) error {
	if list == nil {
		return nil
	}
	if len(list) != ranks {
		return invalid(r, "%d %s for %d ranks; give one per rank", len(list), what, ranks)
	}
	sum := 0
	for i, c := range list {
		if c < 0 {
			return invalid(r, "the %s for rank %d are negative (%d)", what, i, c)
		}
		sum += c
	}
	if sum != total {
		return invalid(r, "the %s add up to %d and the tensor has %d elements", what, sum, total)
	}
	return nil
}

func invalid(r *Request, format string, args ...any) error {
	what := r.Kind.String()
	if r.Name != "" {
		what += " " + r.Name
	}
	return &InvalidError{what + ": " + fmt.Sprintf(format, args...)}
}
