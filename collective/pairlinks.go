package collective

import (
	"unsafe"

	"hora/internal/kernel"
	"hora/tensor"
)

// Allreduce of two members over message links, where every segment can be reduced and
// passed on while it is in the cache. dst may be src; nothing is written to dst before
// the first exchange has shown that the other end means the same operation.

// allreducePair is peers.allreduce for two members that need no copy of src.
func (p *peers) allreducePair(c *Comm, dst, src unsafe.Pointer, n int, t tensor.DType, op tensor.Op) error {
	if c.op.plan.link == Ring {
		return p.ringPair(c, dst, src, n, t, op)
	}
	return p.swap(c, dst, src, n, t, op)
}

// swap exchanges everything and adds it all on both sides, the lower member's operand
// first: one exchange a segment.
func (p *peers) swap(c *Comm, dst, src unsafe.Pointer, n int, t tensor.DType, op tensor.Op) error {
	size := t.Size()
	step := max(c.segment/size, 1)
	in := c.spare.take(min(step, n) * size)
	for lo := 0; lo < n; lo += step {
		now := min(step, n-lo)
		if err := p.exchange(1-p.me, at(src, lo*size, now*size), 1-p.me, in[:now*size]); err != nil {
			return err
		}
		a, b := unsafe.Add(src, lo*size), pointer(in)
		if p.me == 1 {
			a, b = b, a
		}
		kernel.Reduce(unsafe.Add(dst, lo*size), a, b, now, t, op)
	}
	return nil
}

// ringPair is the ring of two: each adds its own half, what arrives being the earlier
// operand, and gives the sums back segment by segment, when they have just been added.
// A whole half at a time has left the cache by then, which costs 10 % from 256 KiB on.
func (p *peers) ringPair(c *Comm, dst, src unsafe.Pointer, n int, t tensor.DType, op tensor.Op) error {
	size := t.Size()
	step := max(c.segment/size, 1)
	peer := 1 - p.me
	mine, theirs := window(n, 2, p.me, p.me+1), window(n, 2, peer, peer+1)
	in := c.spare.take(min(step, mine.n) * size)
	for lo := 0; lo < max(mine.n, theirs.n); lo += step {
		give, take := max(0, min(step, theirs.n-lo)), max(0, min(step, mine.n-lo))
		if err := p.exchange(peer, at(src, (theirs.from+lo)*size, give*size), peer, in[:take*size]); err != nil {
			return err
		}
		if take > 0 {
			kernel.Reduce(shift(dst, (mine.from+lo)*size, take), pointer(in), shift(src, (mine.from+lo)*size, take),
				take, t, op)
		}
		if err := p.exchange(peer, at(dst, (mine.from+lo)*size, take*size), peer,
			at(dst, (theirs.from+lo)*size, give*size)); err != nil {
			return err
		}
	}
	return nil
}

// asPair reports an allreduce between two ranks, each a host of its own, that can work
// from Send into Recv.
func (c *Comm) asPair(call *Call) bool {
	return c.op.plan.layout == Flat && c.all.n() == 2 && forPair(c.op.plan.link) &&
		(call.Pre == 0 || call.Pre == 1) && (call.Send.Len() > widened || !narrow(call.Type))
}

// forPair reports the algorithms that allreducePair knows.
func forPair(a Algorithm) bool { return a == Ring || a == RecursiveDoubling }
