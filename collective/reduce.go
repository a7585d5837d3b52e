package collective

import (
	"hora/internal/kernel"
)

// reduce leaves the reduction of all ranks' Send in the root's Recv.
func (c *Comm) reduce(call *Call) error {
	n, t := call.Send.Count, call.Type
	root := call.Root == c.mesh.Rank()
	switch {
	case n == 0:
		return nil
	case c.mesh.Size() == 1:
		load(call.Recv.Ptr, call.Send.Ptr, n, t, call.Pre)
		finish(call.Recv.Ptr, n, call, 1, t)
		return nil
	case c.op.plan.layout == none:
		return c.reduceHere(call)
	case c.op.plan.layout == Hier:
		return c.reduceLayers(call)
	}
	buf, t := c.working(call, nil)
	if c.op.plan.link == Ring {
		begin, count := c.cut(n, c.all.n())
		if err := c.all.ringReduce(c, buf, begin, count, t, call.Op); err != nil {
			return err
		}
		if err := c.all.collect(c, buf, begin, count, t.Size(), call.Root); err != nil {
			return err
		}
	} else if err := c.all.treeReduce(c, buf, n, t, call.Op, call.Root); err != nil {
		return err
	}
	if root {
		c.deliver(call, call.Recv.Ptr, buf, 0, n, t)
	}
	return nil
}

func (c *Comm) reduceHere(call *Call) error {
	n, t := call.Send.Count, call.Type
	root := call.Root == c.mesh.Rank()
	if c.op.ready == inParts {
		return c.reduceAndShare(call.Recv.Ptr, call.Send.Ptr, n, call, c.seatOf(call.Root))
	}
	if root {
		kernel.ReduceAll(call.Recv.Ptr, c.srcs[:c.seats], n, t, call.Op)
		finish(call.Recv.Ptr, n, call, c.seats, t)
	}
	return c.release()
}

// reduceLayers reduces shards inside each host, each shard across hosts to the one on
// the root's host, and collects them at the root.
func (c *Comm) reduceLayers(call *Call) error {
	n := call.Send.Count
	buf, t := c.working(call, nil)
	begin, count := c.shards(n, t.Size())
	seat, size := c.topo.seat, t.Size()
	mine := at(buf, begin[seat]*size, count[seat]*size)
	if c.board != nil {
		inner := *call
		inner.Pre = 1
		if err := c.reduceBlocks(pointer(mine), buf, begin, count, &inner, t); err != nil {
			return err
		}
	}
	home := c.topo.of[call.Root]
	if count[seat] > 0 {
		if err := c.cross.treeReduce(c, pointer(mine), count[seat], t, call.Op, home); err != nil {
			return err
		}
	}
	if c.topo.host != home {
		return nil
	}
	if c.board != nil {
		if err := c.shareBlocks(buf, pointer(mine), begin, count, size, c.seatOf(call.Root)); err != nil {
			return err
		}
	}
	if call.Root == c.mesh.Rank() {
		c.deliver(call, call.Recv.Ptr, buf, 0, n, t)
	}
	return nil
}
