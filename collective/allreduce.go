package collective

import (
	"unsafe"

	"hora/internal/kernel"
	"hora/tensor"
)

// widened is the size up to which 16-bit and 8-bit floats travel between hosts as
// float32 and are rounded once; above it they are rounded at every hop.
const widened = 64 << 10

// wide is what narrow floats travel as.
const wide = tensor.Float32

// shareStep is how many bytes of its share a rank reduces before it stores them to
// the others: what stays in the first-level cache.
const shareStep = 16 << 10

// allreduce leaves the reduction of all ranks' Send in every rank's Recv.
func (c *Comm) allreduce(call *Call) error {
	n, t := call.Send.Count, call.Type
	switch {
	case n == 0:
		return nil
	case c.mesh.Size() == 1:
		load(call.Recv.Ptr, call.Send.Ptr, n, t, call.Pre)
		finish(call.Recv.Ptr, n, call, 1, t)
		return nil
	case call.Op == tensor.Adasum:
		return c.adasum(call)
	case c.op.plan.layout == none:
		return c.allreduceHere(call)
	}
	if c.asPair(call) {
		if err := c.all.allreducePair(c, call.Recv.Ptr, call.Send.Ptr, n, t, call.Op); err != nil {
			return err
		}
		finish(call.Recv.Ptr, n, call, 2, t)
		return nil
	}
	buf, t := c.working(call, call.Recv.Ptr)
	var err error
	if c.op.plan.layout == Hier {
		err = c.allreduceLayers(buf, n, t, call)
	} else {
		err = c.all.allreduce(c, buf, n, t, call)
	}
	if err != nil {
		return err
	}
	c.deliver(call, call.Recv.Ptr, buf, 0, n, t)
	return nil
}

// working copies Send, times the factor before, to where an algorithm may add in
// place: small tensors to scratch, so that a mismatch leaves Recv alone, and there as
// float32 if they are narrow floats; large ones to big, or to scratch if that is nil.
func (c *Comm) working(call *Call, big unsafe.Pointer) (unsafe.Pointer, tensor.DType) {
	n, t := call.Send.Count, call.Type
	bytes := n * t.Size()
	if bytes > widened {
		if big == nil {
			big = pointer(c.work.take(bytes))
		}
		load(big, call.Send.Ptr, n, t, call.Pre)
		return big, t
	}
	if !narrow(t) {
		buf := pointer(c.work.take(bytes))
		load(buf, call.Send.Ptr, n, t, call.Pre)
		return buf, t
	}
	buf := pointer(c.work.take(4 * n))
	kernel.ToFloat32((*float32)(buf), call.Send.Ptr, n, t)
	load(buf, buf, n, tensor.Float32, call.Pre)
	return buf, tensor.Float32
}

// deliver finishes n elements from element at of buf on and puts them at dst, in the
// call's own type.
func (c *Comm) deliver(call *Call, dst, buf unsafe.Pointer, at, n int, t tensor.DType) {
	if n == 0 {
		return
	}
	buf = unsafe.Add(buf, at*t.Size())
	finish(buf, n, call, c.mesh.Size(), t)
	if t != call.Type {
		kernel.FromFloat32(dst, (*float32)(buf), n, call.Type)
		return
	}
	copyAt(dst, 0, buf, 0, n*t.Size())
}

func narrow(t tensor.DType) bool {
	return t == tensor.Float16 || t == tensor.BFloat16 || t == tensor.Float8E4M3 || t == tensor.Float8E5M2
}

// allreduceHere works in the memory of the one host that holds the whole group.
func (c *Comm) allreduceHere(call *Call) error {
	n := call.Send.Count
	switch c.op.ready {
	case inHeader, inSlots:
		kernel.ReduceAll(call.Recv.Ptr, c.srcs[:c.seats], n, call.Type, call.Op)
		finish(call.Recv.Ptr, n, call, c.seats, call.Type)
		c.board.Count(n*call.Type.Size(), (c.seats-1)*n*call.Type.Size())
		return nil
	case inPlace:
		return c.reduceInPlace(call)
	case peeked:
		return c.reduceByPeeking(call)
	case staged:
		if err := c.stage(call); err != nil {
			return err
		}
		return c.reduceInPlace(call)
	default:
		return c.reduceAndShare(call.Recv.Ptr, call.Send.Ptr, n, call, -1)
	}
}

// stage puts into this rank's Recv what the others read of its Send when that is
// private memory: their shares. My own share is read where it lies, so that this copies
// less than a rank that first moved its Send into registered memory would.
func (c *Comm) stage(call *Call) error {
	size, n := call.Type.Size(), call.Send.Count
	if c.headers[c.seat].send == 0 {
		from, to := c.share(n, size, c.seat)
		copyAt(call.Recv.Ptr, 0, call.Send.Ptr, 0, from*size)
		copyAt(call.Recv.Ptr, to*size, call.Send.Ptr, to*size, (n-to)*size)
		c.board.Count((n-to+from)*size, 0)
	}
	return c.together()
}

// share is what a seat reduces of n elements that all ranks can reach. Shares begin on
// cache lines, so that no two ranks write one.
func (c *Comm) share(n, size, seat int) (from, to int) {
	line := max(64/size, 1)
	lines := (n + line - 1) / line
	return min(n, block(lines, c.seats, seat)*line), min(n, block(lines, c.seats, seat+1)*line)
}

// reduceInPlace reduces this rank's share of what the others have in registered memory
// and stores it to every rank's Recv.
func (c *Comm) reduceInPlace(call *Call) error {
	t := call.Type
	size, n := t.Size(), call.Send.Count
	for s := range c.headers {
		h := &c.headers[s]
		c.dsts[s] = call.Recv.Ptr
		if s != c.seat {
			c.dsts[s] = c.board.Mapped(s, h.recv-1, h.recvAt, n*size)
		}
		if c.dsts[s] == nil {
			return c.unmapped(call, s, h.recv-1)
		}
	}
	at, end := c.share(n, size, c.seat)
	ahead := at // elements from where the pointers are to at
	for step := shareStep / size; at < end; at += step {
		now := min(step, end-at)
		for s := range c.seats {
			c.srcs[s] = unsafe.Add(c.srcs[s], ahead*size)
			c.dsts[s] = unsafe.Add(c.dsts[s], ahead*size)
		}
		ahead = now
		if err := c.board.Sound(); err != nil {
			return err // a rank that slept through its own loss must not store over what follows
		}
		own := c.dsts[c.seat]
		kernel.ReduceAll(own, c.srcs[:c.seats], now, t, call.Op)
		finish(own, now, call, c.seats, t)
		for s := range c.seats {
			if s != c.seat {
				kernel.Copy(c.dsts[s], own, now*size)
			}
		}
		c.board.Count((c.seats-1)*now*size, (c.seats-1)*now*size)
	}
	return c.together()
}

// allreduceLayers reduces inside each host, one shard a rank, then each shard across
// hosts, then gives the shards to all ranks of the host.
func (c *Comm) allreduceLayers(buf unsafe.Pointer, n int, t tensor.DType, call *Call) error {
	inner := *call
	inner.Pre, inner.Post = 1, 1
	begin, count := c.shards(n, t.Size())
	mine := shift(buf, begin[c.topo.seat]*t.Size(), count[c.topo.seat])
	if c.board != nil {
		if err := c.reduceBlocks(mine, buf, begin, count, &inner, t); err != nil {
			return err
		}
	}
	if count[c.topo.seat] > 0 {
		if err := c.cross.allreduce(c, mine, count[c.topo.seat], t, call); err != nil {
			return err
		}
	}
	if c.board == nil {
		return nil
	}
	return c.shareBlocks(buf, mine, begin, count, t.Size(), -1)
}

// shards cuts n elements into this world's shards: one for each of the first ranks of
// a host, nothing for the rest. Small tensors are one shard: a message costs more
// than it carries.
func (c *Comm) shards(n, size int) (begin, count []int) {
	local := len(c.topo.locals())
	shards := max(1, min(c.topo.shards, n*size/c.leastShard))
	begin, count = c.begin[:local], c.count[:local]
	for s := range local {
		begin[s], count[s] = n, 0
		if s < shards {
			begin[s] = block(n, shards, s)
			count[s] = block(n, shards, s+1) - begin[s]
		}
	}
	return begin, count
}
