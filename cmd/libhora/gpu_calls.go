//go:build cgo

package main

import (
	"time"
	"unsafe"

	"hora"
	"hora/device"
)

// check refuses what no path could do, before anything is queued.
func check(r *hora.Request, ranks int) error {
	sum := func(counts []int) (n int) {
		for _, c := range counts {
			if c < 0 {
				return -1
			}
			n += c
		}
		return n
	}
	switch {
	case r.Kind < hora.KindAllreduce || r.Kind > hora.KindRecv || r.Kind == hora.KindBarrier:
		return argument("start operation on GPU: kind %d is none that works on tensors", r.Kind)
	case r.Send.Count < 0 || r.Recv.Count < 0:
		return argument("%s on GPU: a tensor of %d elements", r.Kind, min(r.Send.Count, r.Recv.Count))
	case !r.Type.Valid():
		return argument("%s on GPU: element type %d is unknown", r.Kind, r.Type)
	case r.Root < 0 || r.Root >= ranks:
		return argument("%s on GPU: root %d is not among %d ranks", r.Kind, r.Root, ranks)
	case (r.Kind == hora.KindSend || r.Kind == hora.KindRecv) && (r.Peer < 0 || r.Peer >= ranks):
		return argument("%s on GPU: rank %d is not among %d; receiving from any rank works on host tensors only", r.Kind, r.Peer, ranks)
	case r.SendCounts != nil && sum(r.SendCounts) != r.Send.Count:
		return argument("%s on GPU: the parts to send have %d elements, the tensor %d", r.Kind, sum(r.SendCounts), r.Send.Count)
	case r.RecvCounts != nil && r.Kind != hora.KindReduceScatter && sum(r.RecvCounts) != r.Recv.Count:
		return argument("%s on GPU: the parts to receive have %d elements, the tensor %d", r.Kind, sum(r.RecvCounts), r.Recv.Count)
	case r.RecvCounts != nil && r.Kind == hora.KindReduceScatter && sum(r.RecvCounts) != r.Send.Count:
		return argument("%s on GPU: the parts have %d elements, the tensor %d", r.Kind, sum(r.RecvCounts), r.Send.Count)
	case !fits(r, ranks):
		return argument("%s on GPU: %d elements to send and %d to receive do not fit %d ranks", r.Kind, r.Send.Count, r.Recv.Count, ranks)
	}
	return nil
}

// fits holds the sizes of both sides together where no counts are given.
func fits(r *hora.Request, ranks int) bool {
	send, recv := r.Send.Count, r.Recv.Count
	switch r.Kind {
	case hora.KindAllreduce:
		return recv == send
	case hora.KindAllgather:
		return r.RecvCounts != nil || recv == send*ranks
	case hora.KindReduceScatter:
		return r.RecvCounts != nil || send == recv*ranks
	case hora.KindAlltoall:
		return (r.SendCounts != nil || send%ranks == 0) && (r.RecvCounts != nil || recv%ranks == 0)
	}
	return true
}

// factor returns what a linear operator multiplies by in all; 0 in a request means 1.
func factor(r *hora.Request) float64 {
	f := 1.0
	if r.Pre != 0 {
		f *= r.Pre
	}
	if r.Post != 0 {
		f *= r.Post
	}
	return f
}

// native tells how NCCL would do r, and false where it cannot.
func native(r *hora.Request, ranks int) (device.Reduction, bool) {
	switch r.Kind {
	case hora.KindAllreduce, hora.KindReduce, hora.KindReduceScatter:
		return device.Native(r.Type, r.Op, factor(r), ranks)
	}
	return device.Reduction{Type: device.Bytes(), Each: r.Type.Size()}, true
}

// parts returns the elements of each rank: those given, or equal ones.
func parts(counts []int, whole, ranks int) []int {
	if len(counts) == ranks {
		return counts
	}
	equal := make([]int, ranks)
	for i := range equal {
		equal[i] = whole / ranks
	}
	return equal
}

// enqueue tells NCCL one operation, between Start and End.
func enqueue(c device.Communicator, r *hora.Request, p device.Reduction, rank, ranks int, s device.Stream) error {
	send, recv, size := at(r.Send), at(r.Recv), r.Type.Size()
	n := r.Send.Count * p.Each
	switch r.Kind {
	case hora.KindAllreduce:
		return c.AllReduce(send, recv, n, p.Type, p.Op, s)
	case hora.KindReduce:
		return c.Reduce(send, recv, n, p.Type, p.Op, r.Root, s)
	case hora.KindBroadcast:
		if rank != r.Root {
			n, send = r.Recv.Count*p.Each, recv
		} else if recv == 0 {
			recv = send
		}
		return c.Broadcast(send, recv, n, p.Type, r.Root, s)
	case hora.KindAllgather:
		if r.RecvCounts == nil {
			return c.AllGather(send, recv, n, p.Type, s)
		}
		for root, count := range r.RecvCounts {
			if count > 0 {
				from := recv
				if root == rank {
					from = send
				}
				if err := c.Broadcast(from, recv, count*p.Each, p.Type, root, s); err != nil {
					return err
				}
			}
			recv += device.Ptr(count * size)
		}
	case hora.KindReduceScatter:
		if r.RecvCounts == nil {
			return c.ReduceScatter(send, recv, n/ranks, p.Type, p.Op, s)
		}
		for root, count := range r.RecvCounts {
			if count > 0 {
				if err := c.Reduce(send, recv, count*p.Each, p.Type, p.Op, root, s); err != nil {
					return err
				}
			}
			send += device.Ptr(count * size)
		}
	case hora.KindSend:
		return c.Send(send, n, p.Type, r.Peer, s)
	case hora.KindRecv:
		return c.Recv(recv, r.Recv.Count*p.Each, p.Type, r.Peer, s)
	default:
		return swap(c, r, p, rank, ranks, s)
	}
	return nil
}

// swap does alltoall, gather and scatter as messages.
func swap(c device.Communicator, r *hora.Request, p device.Reduction, rank, ranks int, s device.Stream) error {
	in, out := sides(r, rank, ranks)
	give := func(side *device.Side, peers []int, f func(at device.Ptr, count, t, peer int,
		s device.Stream) error,
	) error {
		at := side.At
		for i, count := range side.Counts {
			if count > 0 {
				if err := f(at, count*p.Each, p.Type, peers[i], s); err != nil {
					return err
				}
			}
			at += device.Ptr(count * r.Type.Size())
		}
		return nil
	}
	all := make([]int, ranks)
	for i := range all {
		all[i] = i
	}
	to, from := all, all
	switch r.Kind {
	case hora.KindGather:
		to = []int{r.Root}
	case hora.KindScatter:
		from = []int{r.Root}
	}
	if err := give(in, to, c.Send); err != nil {
		return err
	}
	return give(out, from, c.Recv)
}

// sides says what of r's memory goes out and what comes in on this rank.
func sides(r *hora.Request, rank, ranks int) (in, out *device.Side) {
	in, out = &device.Side{At: at(r.Send)}, &device.Side{At: at(r.Recv)}
	whole := func(s *device.Side, n int) { s.Counts = []int{n} }
	switch r.Kind {
	case hora.KindAllreduce:
		whole(in, r.Send.Count)
		whole(out, r.Send.Count)
	case hora.KindReduce:
		whole(in, r.Send.Count)
		if rank == r.Root {
			whole(out, r.Send.Count)
		}
	case hora.KindBroadcast:
		if rank != r.Root {
			whole(out, r.Recv.Count)
			break
		}
		whole(in, r.Send.Count)
		if out.At != 0 && out.At != in.At {
			whole(out, r.Send.Count)
		}
	case hora.KindAllgather:
		whole(in, r.Send.Count)
		out.Counts = parts(r.RecvCounts, r.Send.Count*ranks, ranks)
	case hora.KindReduceScatter:
		in.Counts = parts(r.RecvCounts, r.Send.Count, ranks)
		whole(out, in.Counts[rank])
	case hora.KindAlltoall:
		in.Counts, out.Counts = parts(r.SendCounts, r.Send.Count, ranks), parts(r.RecvCounts, r.Recv.Count, ranks)
	case hora.KindGather:
		whole(in, r.Send.Count)
		if rank == r.Root {
			out.Counts = parts(r.RecvCounts, r.Recv.Count, ranks)
		}
	case hora.KindScatter:
		whole(out, r.Recv.Count)
		if rank == r.Root {
			in.Counts = parts(r.SendCounts, r.Send.Count, ranks)
		}
	case hora.KindSend:
		whole(in, r.Send.Count)
	case hora.KindRecv:
		whole(out, r.Recv.Count)
	}
	return in, out
}

// partsOf returns how many parts one side of r has on some rank: all ranks cut alike.
func partsOf(r *hora.Request, ranks int) int {
	switch r.Kind {
	case hora.KindAllgather, hora.KindReduceScatter, hora.KindAlltoall, hora.KindGather, hora.KindScatter:
		return ranks
	}
	return 1
}

// unequal reports that ranks may have different numbers of elements, so that they must
// agree on how many turns there are.
func unequal(r *hora.Request) bool {
	switch r.Kind {
	case hora.KindAlltoall, hora.KindGather, hora.KindScatter:
		return true
	}
	return false
}

// stage carries r through host memory on the calling thread.
func (g *gpu) stage(l *lane, r *hora.Request, ready device.Event, op *gpuOp) error {
	rank, ranks, size := g.host.Rank(), g.host.Size(), r.Type.Size()
	in, out := sides(r, rank, ranks)
	st := &l.staging
	st.Slots = l.apart
	if r.Kind == hora.KindAllreduce || r.Kind == hora.KindBroadcast {
		st.Slots = l.inPlace
	}
	chunk := st.Chunk(size, partsOf(r, ranks))
	turns := int64(st.Turns(in, out, chunk))
	if unequal(r) {
		agree := []int64{turns}
		a := hora.AllreduceRequest(r.Name, agree, hora.Max)
		a.Timeout = left(op.deadline)
		if _, _, err := g.host.Run(&a, -1); err != nil {
			return err
		}
		turns = agree[0]
	}
	h := hora.Request{
		Call: hora.Call{Kind: r.Kind, Op: r.Op, Type: r.Type, Root: r.Root, Peer: r.Peer, Pre: r.Pre, Post: r.Post},
		Name: r.Name, Shape: shape(r), Device: 1, Tag: r.Tag,
	}
	return st.Run(in, out, size, chunk, int(turns), ready, op.done, func(t *device.Turn) error {
		h.Timeout = left(op.deadline)
		fill(&h, t, r, rank)
		_, _, err := g.host.Run(&h, -1)
		return err
	})
}

// left returns what remains of an operation's time, 0 for no bound.
func left(deadline time.Time) time.Duration {
	if deadline.IsZero() {
		return 0
	}
	return max(time.Millisecond, time.Until(deadline))
}

// shape returns what ranks compare: every turn names the whole tensor, so that a wrong count
// is found before a byte has moved.
func shape(r *hora.Request) []int {
	switch {
	case r.Shape != nil:
		return r.Shape
	case r.Kind == hora.KindAllreduce, r.Kind == hora.KindReduce, r.Kind == hora.KindReduceScatter,
		r.Kind == hora.KindAllgather && r.RecvCounts == nil:
		return []int{r.Send.Count}
	}
	return nil
}

// fill makes h the host's part of one turn.
func fill(h *hora.Request, t *device.Turn, r *hora.Request, rank int) {
	view := func(at device.Ptr, counts []int) (v hora.View) {
		v.Type = r.Type
		for _, n := range counts {
			v.Count += n
		}
		if counts != nil {
			*(*device.Ptr)(unsafe.Pointer(&v.Ptr)) = at // pinned memory of the lane's, outside Go's heap
		}
		return v
	}
	h.Send, h.Recv = view(t.In, t.InCounts), view(t.Out, t.OutCounts)
	h.SendCounts, h.RecvCounts = nil, nil
	switch r.Kind {
	case hora.KindBroadcast:
		if rank != r.Root {
			h.Send = h.Recv
		} else {
			h.Recv = h.Send
		}
	case hora.KindAllgather:
		h.RecvCounts = t.OutCounts
	case hora.KindReduceScatter:
		h.RecvCounts = t.InCounts
	case hora.KindAlltoall:
		h.SendCounts, h.RecvCounts = t.InCounts, t.OutCounts
	case hora.KindGather:
		if h.RecvCounts = t.OutCounts; rank != r.Root {
			h.RecvCounts = []int{}
		}
	case hora.KindScatter:
		if h.SendCounts = t.InCounts; rank != r.Root {
			h.SendCounts = []int{}
		}
	}
}
