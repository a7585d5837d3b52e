package collective

import (
	"unsafe"

	"hora/internal/kernel"
)

// reduceScatter leaves in every rank's Recv the reduction of its block of all ranks'
// Send.
func (c *Comm) reduceScatter(call *Call) error {
	n, t := call.Send.Count, call.Type
	me := c.mesh.Rank()
	begin, count := c.blocksOf(call.RecvCounts, call.Recv.Count)
	switch {
	case n == 0:
		return nil
	case c.mesh.Size() == 1:
		load(call.Recv.Ptr, call.Send.Ptr, n, t, call.Pre)
		finish(call.Recv.Ptr, n, call, 1, t)
		return nil
	case c.op.plan.layout == none:
		return c.reduceScatterHere(call, begin, count)
	}
	buf, t := c.working(call, nil)
	if c.op.plan.layout == Hier {
		return c.reduceScatterLayers(call, buf, begin, count)
	}
	var err error
	if c.op.plan.link == Ring {
		err = c.all.ringReduce(c, buf, begin, count, t, call.Op)
	} else {
		err = c.all.recursiveDoubling(c, buf, n, t, call.Op)
	}
	if err != nil {
		return err
	}
	c.deliver(call, call.Recv.Ptr, buf, begin[me], count[me], t)
	return nil
}

func (c *Comm) reduceScatterHere(call *Call, begin, count []int) error {
	t := call.Type
	mine := count[c.seat]
	if c.op.ready == inParts {
		if err := c.reduceBlocks(call.Recv.Ptr, call.Send.Ptr, begin, count, call, t); err != nil {
			return err
		}
		finish(call.Recv.Ptr, mine, call, c.seats, t)
		return nil
	}
	if mine > 0 {
		for s := range c.seats {
			c.srcs[s] = unsafe.Add(c.srcs[s], begin[c.seat]*t.Size())
		}
		kernel.ReduceAll(call.Recv.Ptr, c.srcs[:c.seats], mine, t, call.Op)
		finish(call.Recv.Ptr, mine, call, c.seats, t)
		c.board.Count(0, (c.seats-1)*mine*t.Size())
	}
	return c.release()
}

// reduceScatterLayers reduces, for each host in turn, the blocks of its ranks inside
// my host, so that I hold those of the ranks with my seat, and then reduces these
// across hosts. Every host has equally many ranks.
func (c *Comm) reduceScatterLayers(call *Call, buf unsafe.Pointer, begin, count []int) error {
	t := call.Type
	if call.Send.Len() <= widened && narrow(t) {
		t = wide
	}
	size := t.Size()
	if c.board != nil {
		inner := *call
		inner.Pre = 1
		local := len(c.topo.locals())
		for _, ranks := range c.topo.hosts {
			b, k := c.other[:local], c.length[:local]
			for s, r := range ranks {
				b[s], k[s] = begin[r], count[r]
			}
			mine := shift(buf, b[c.seat]*size, k[c.seat])
			if err := c.reduceBlocks(mine, buf, b, k, &inner, t); err != nil {
				return err
			}
		}
	}
	b, k := c.other[:c.cross.n()], c.length[:c.cross.n()]
	for h, r := range c.cross.ranks {
		b[h], k[h] = begin[r], count[r]
	}
	if err := c.cross.ringReduce(c, buf, b, k, t, call.Op); err != nil {
		return err
	}
	me := c.mesh.Rank()
	c.deliver(call, call.Recv.Ptr, buf, begin[me], count[me], t)
	return nil
}
