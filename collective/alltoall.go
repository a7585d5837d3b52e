package collective

import (
	"encoding/binary"
	"unsafe"

	"hora/transport"
)

// alltoall gives every rank a block of this rank's Send and collects a block from
// each.
func (c *Comm) alltoall(call *Call) error {
	n, size := c.mesh.Size(), call.Type.Size()
	if c.op.plan.layout == none && n > 1 {
		return c.alltoallHere(call)
	}
	if call.SendCounts == nil && call.Send.Count == 0 {
		return nil
	}
	if call.SendCounts == nil && c.op.plan.link == Bruck && n > 2 {
		return c.all.bruckAlltoall(c, call.Recv.Ptr, call.Send.Ptr, call.Send.Len()/n)
	}
	begin, count := c.blocksOf(call.SendCounts, call.Send.Count/n)
	from, length := c.other, c.length
	at := 0
	for r := range from {
		k := call.Recv.Count / n
		if call.RecvCounts != nil {
			k = call.RecvCounts[r]
		}
		from[r], length[r] = at, k
		at += k
	}
	return c.all.pairwise(c, call.Recv.Ptr, call.Send.Ptr, begin, count, from, length, size)
}

// pairwise exchanges in n-1 steps with the members above and below at growing
// distance.
func (p *peers) pairwise(c *Comm, dst, src unsafe.Pointer, begin, count, from, length []int, size int) error {
	n := p.n()
	copyAt(dst, from[p.me]*size, src, begin[p.me]*size, count[p.me]*size)
	for d := 1; d < n; d++ {
		to, of := (p.me+d)%n, (p.me-d+n)%n
		out := at(src, begin[to]*size, count[to]*size)
		in := at(dst, from[of]*size, length[of]*size)
		if err := p.exchangeIn(to, out, of, in, c.segment); err != nil {
			return err
		}
	}
	return nil
}

// bruckAlltoall moves equal blocks in ceil(log2 n) steps: a block for the member d
// places above travels by the powers of two that make up d.
func (p *peers) bruckAlltoall(c *Comm, dst, src unsafe.Pointer, bytes int) error {
	n := p.n()
	moving := pointer(c.work.take(n * bytes)) // at d: what is d places from its goal
	for d := range n {
		copyAt(moving, d*bytes, src, (p.me+d)%n*bytes, bytes)
	}
	for hop := 1; hop < n; hop *= 2 {
		packed := 0
		for d := hop; d < n; d++ {
			packed += (d / hop & 1) * bytes
		}
		room := pointer(c.spare.take(2 * packed))
		at_ := 0
		for d := hop; d < n; d++ {
			if d&hop != 0 {
				copyAt(room, at_, moving, d*bytes, bytes)
				at_ += bytes
			}
		}
		if err := p.exchangeIn((p.me+hop)%n, at(room, 0, packed), (p.me-hop+n)%n, at(room, packed, packed),
			c.segment); err != nil {
			return err
		}
		at_ = packed
		for d := hop; d < n; d++ {
			if d&hop != 0 {
				copyAt(moving, d*bytes, room, at_, bytes)
				at_ += bytes
			}
		}
	}
	for d := range n {
		copyAt(dst, (p.me-d+n)%n*bytes, moving, d*bytes, bytes)
	}
	return nil
}

func (c *Comm) alltoallHere(call *Call) error {
	size := call.Type.Size()
	equal := call.Send.Count / c.seats
	if call.SendCounts != nil {
		if err := c.compareCounts(call); err != nil {
			return err
		}
		return c.alltoallParts(call)
	}
	switch c.op.ready {
	case inParts:
		return c.alltoallParts(call)
	case peeked:
		return c.moveByPeeking(call, c.seat*equal*size)
	}
	past := call.Recv.Len() >= c.stream
	for s := range c.seats {
		if s == c.seat {
			putAt(call.Recv.Ptr, s*equal*size, c.srcs[s], s*equal*size, equal*size, past)
		} else {
			takeAt(call.Recv.Ptr, s*equal*size, c.srcs[s], c.seat*equal*size, equal*size, past)
		}
		c.board.Count(0, equal*size)
	}
	return c.release()
}

// postCounts puts what I send to each seat into my slot, before the arrival.
func (c *Comm) postCounts(call *Call) {
	table := c.board.Slot(c.seat, c.op.parity)
	for s, k := range call.SendCounts {
		binary.LittleEndian.PutUint64(table[8*s:], uint64(k))
	}
}

func (c *Comm) sentBy(seat, to int) int {
	return int(binary.LittleEndian.Uint64(c.board.Slot(seat, c.op.parity)[8*to:]))
}

// compareCounts finds a rank that sends me another number of elements than I expect.
func (c *Comm) compareCounts(call *Call) error {
	for s, k := range call.RecvCounts {
		if c.sentBy(s, c.seat) != k {
			return &transport.MismatchError{
				Rank: c.board.Ranks()[s], Mine: c.op.stamp,
				Theirs: transport.Stamp{Seq: c.op.stamp.Seq, Print: ^c.op.stamp.Print},
			}
		}
	}
	return nil
}

// alltoallParts pipelines the blocks through parts, each cut into one piece a seat.
// All seats take as many steps as the longest block anywhere needs.
func (c *Comm) alltoallParts(call *Call) error {
	size := call.Type.Size()
	q := c.pieces(c.seats, size)
	begin, count := c.blocksOf(call.SendCounts, call.Send.Count/c.seats)
	longest := most(count)
	from := c.other
	whole := 0
	for s := range from {
		from[s] = whole
		if call.RecvCounts != nil {
			whole += call.RecvCounts[s]
			for to := range c.seats {
				longest = max(longest, c.sentBy(s, to))
			}
		} else {
			whole += count[s]
		}
	}
	past := whole*size >= c.stream
	putAt(call.Recv.Ptr, from[c.seat]*size, call.Send.Ptr, begin[c.seat]*size, count[c.seat]*size, past)
	for at := 0; at < longest; at += q {
		k := int(c.op.phase)
		for s := range c.seats {
			if n := min(q, count[s]-at); n > 0 && s != c.seat {
				stowAt(c.inPart(c.seat, k), s*q*size, call.Send.Ptr, (begin[s]+at)*size, n*size)
			}
		}
		if err := c.together(); err != nil {
			return err
		}
		for s := range c.seats {
			theirs := count[s]
			if call.RecvCounts != nil {
				theirs = call.RecvCounts[s]
			}
			if n := min(q, theirs-at); n > 0 && s != c.seat {
				takeAt(call.Recv.Ptr, (from[s]+at)*size, c.inPart(s, k), c.seat*q*size, n*size, past)
				c.board.Count(0, n*size)
			}
		}
	}
	return nil
}
