package engine

import (
	"cmp"
	"slices"

	"hora/collective"
	"hora/tensor"
)

// What an operation writes must not be what it still reads: the sum would depend on who comes first. In place is fine
// where package collective says so, which is exactly there.

// span is memory from a byte up to another.
type span struct {
	from, to uintptr
	op       int
	written  bool
}

func spanOf(v tensor.View) span {
	at := uintptr(v.Ptr)
	return span{from: at, to: at + uintptr(v.Len())}
}

func (s span) meets(o span) bool { return s.from < o.to && o.from < s.to }

// clear reports that r's result plainly lies apart from its input, or is that in an operation that works in place.
func (r *Request) clear() bool {
	if r.Send.Ptr == r.Recv.Ptr {
		return r.Send.Count == r.Recv.Count && r.Kind <= collective.Broadcast || r.Send.Count == 0 || r.Recv.Count == 0
	}
	return !spanOf(r.Send).meets(spanOf(r.Recv))
}

// checkOverlap refuses a result that lies over the input elsewhere than the kind of r allows.
func (g *Group) checkOverlap(r *Request) error {
	send, recv, me, n := spanOf(r.Send), spanOf(r.Recv), g.mesh.Rank(), g.mesh.Size()
	if r.clear() || r.pair() || r.Alloc != nil || !send.meets(recv) ||
		n == 1 && send.from == recv.from && send.to == recv.to {
		return nil
	}
	block := -1 // where this rank's block lies in whole
	whole, part, list := recv, send, r.RecvCounts
	switch r.Kind {
	case collective.Reduce:
		if me != r.Root {
			return nil // nothing is written there
		}
	case collective.Allgather:
		block = me
	case collective.Gather:
		if me != r.Root {
			return nil
		}
		block = me
	case collective.ReduceScatter:
		whole, part, block = send, recv, me
	case collective.Scatter:
		if me != r.Root {
			return nil
		}
		whole, part, list, block = send, recv, r.SendCounts, me
	}
	if block >= 0 && part.from == whole.from+uintptr(before(list, block,
		(part.to-part.from)/uintptr(r.Type.Size()))*r.Type.Size()) {
		return nil
	}
	switch {
	case r.Kind == collective.Alltoall:
		return invalid(r, "the result lies in memory of the input; give out memory of its own")
	case block >= 0:
		return invalid(r, "the result and the input overlap, and not where this rank's part lies; give out memory of its own")
	}
	return invalid(r, "the result overlaps a part of the input; give out memory of its own, or the input itself to work in place")
}

// before returns how many elements lie before rank me's block.
func before(counts []int, me int, equal uintptr) int {
	if counts == nil {
		return me * int(equal)
	}
	sum := 0
	for _, c := range counts[:min(me, len(counts))] {
		sum += c
	}
	return sum
}

// checkApart refuses requests of one submission that write what another of them reads or writes: they end in no order.
// Broadcasts in place of one root are apart in any case, since all of them bring what that root has: tied parameters do
// so.
func (g *Group) checkApart(rs []Request) error {
	var few [64]span
	spans := few[:0]
	shared := true
	for i := range rs {
		r := &rs[i]
		if r.Kind == collective.Barrier {
			continue
		}
		shared = shared && r.Kind == collective.Broadcast && r.Root == rs[0].Root && r.Send.Ptr == r.Recv.Ptr
		send, recv := spanOf(r.Send), spanOf(r.Recv)
		send.op, recv.op, recv.written = i, i, true
		if recv.to > recv.from && r.Alloc == nil {
			spans = append(spans, recv)
		}
		if send.to > send.from && send.from != recv.from {
			spans = append(spans, send)
		}
	}
	if shared {
		return nil
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var read, written ends
	for _, s := range spans {
		with := written.reach(s)
		if with < 0 && s.written {
			with = read.reach(s)
		}
		if with >= 0 {
			return invalid(&rs[s.op], "its memory overlaps that of another tensor of the same call (numbers %d and %d of %d), and one of them is written; give each out memory of its own", min(with, s.op)+1, max(with, s.op)+1, len(rs))
		}
		if s.written {
			written.note(s)
		} else {
			read.note(s)
		}
	}
	return nil
}

// ends are the farthest end so far, and the farthest of another request than that one's.
type ends [2]span

func (e *ends) note(s span) {
	switch {
	case s.op == e[0].op && e[0].to != 0:
		e[0].to = max(e[0].to, s.to)
	case s.to > e[0].to:
		e[1], e[0] = e[0], s
	case s.to > e[1].to:
		e[1] = s
	}
}

// reach finds a request, not s's own, that ends behind the beginning of s; -1: none does.
func (e *ends) reach(s span) int {
	for _, o := range e {
		if o.to > s.from && o.op != s.op {
			return o.op
		}
	}
	return -1
}
