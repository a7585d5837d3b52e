package collective

import (
	"unsafe"

	"hora/internal/kernel"
	"hora/tensor"
)

// adasum combines all ranks' gradients pairwise, in a tree of ranks: with dot = a·b,
// two become a(1 - dot/2|a|²) + b(1 - dot/2|b|²), so that what they share counts once
// and what they do not is added. Dots and norms are of each tensor (Call.Starts) by
// itself, in float64. Both ends of an exchange compute the same with the lower rank's
// operand first, so all ranks hold equal bits.
//
// Narrow floats are combined as float32 and rounded once. Worlds that are not a power
// of two first combine the ranks too many with their neighbours.
func (c *Comm) adasum(call *Call) error {
	n, t := call.Send.Count, call.Type
	size := t.Size()
	var buf unsafe.Pointer
	if narrow(t) {
		buf = pointer(c.work.take(4 * n))
		kernel.ToFloat32((*float32)(buf), call.Send.Ptr, n, t)
		t, size = wide, 4
		load(buf, buf, n, t, call.Pre)
	} else {
		buf = pointer(c.work.take(n * size))
		load(buf, call.Send.Ptr, n, t, call.Pre)
	}
	if err := c.all.combineAll(c, buf, n, t, call.Starts); err != nil {
		return err
	}
	c.deliver(call, call.Recv.Ptr, buf, 0, n, t)
	return nil
}

// combineAll is recursive doubling with Adasum's combination in place of a sum.
func (p *peers) combineAll(c *Comm, buf unsafe.Pointer, n int, t tensor.DType, starts []int) error {
	f := p.fold()
	bytes := n * t.Size()
	in := c.spare.take(bytes)
	if p.me < 2*f.rest {
		if f.at < 0 {
			if err := p.sendIn(p.me+1, at(buf, 0, bytes), c.segment); err != nil {
				return err
			}
			return p.leave(c, &f, buf, bytes)
		}
		if err := p.recvIn(p.me-1, in, c.segment); err != nil {
			return err
		}
		combine(buf, pointer(in), buf, n, t, starts)
	}
	for d := 1; d < f.power; d *= 2 {
		peer := f.member(f.at ^ d)
		if err := p.exchangeIn(peer, at(buf, 0, bytes), peer, in, c.segment); err != nil {
			return err
		}
		if f.at&d == 0 {
			combine(buf, buf, pointer(in), n, t, starts)
		} else {
			combine(buf, pointer(in), buf, n, t, starts)
		}
	}
	return p.leave(c, &f, buf, bytes)
}

// combine puts Adasum's combination of a and b into dst, tensor by tensor.
func combine(dst, a, b unsafe.Pointer, n int, t tensor.DType, starts []int) {
	if len(starts) == 0 {
		combineOne(dst, a, b, n, t)
		return
	}
	for i, from := range starts {
		end := n
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		skip, k := from*t.Size(), end-from
		combineOne(shift(dst, skip, k), shift(a, skip, k), shift(b, skip, k), k, t)
	}
}

func combineOne(dst, a, b unsafe.Pointer, n int, t tensor.DType) {
	if n == 0 {
		return
	}
	dot, aa, bb := kernel.DotNorms(a, b, n, t)
	ca, cb := 1.0, 1.0
	if aa > 0 {
		ca = 1 - dot/(2*aa)
	}
	if bb > 0 {
		cb = 1 - dot/(2*bb)
	}
	kernel.AdasumCombine(dst, a, b, n, t, ca, cb)
}
