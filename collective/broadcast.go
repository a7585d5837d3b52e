package collective

import "unsafe"

// broadcast gives the root's elements to every rank's Recv.
func (c *Comm) broadcast(call *Call) error {
	bytes := max(call.Send.Count, call.Recv.Count) * call.Type.Size()
	root := call.Root == c.mesh.Rank()
	buf := call.Recv.Ptr
	if root && call.Send.Count > 0 {
		if call.Recv.Count > 0 {
			copyAt(call.Recv.Ptr, 0, call.Send.Ptr, 0, bytes)
		}
		buf = call.Send.Ptr
	}
	switch {
	case bytes == 0 || c.mesh.Size() == 1:
		return nil
	case c.op.plan.layout == none:
		return c.broadcastHere(call, buf, bytes)
	case c.op.plan.layout == Hier:
		heads, home := c.headsFor(call.Root)
		if c.isHead() {
			if err := heads.spread(c, buf, bytes, call.Type.Size(), home); err != nil {
				return err
			}
		}
		if c.board == nil {
			return nil
		}
		return c.spread(buf, bytes, c.seatOf(c.heads.ranks[c.topo.host]))
	}
	return c.all.spread(c, buf, bytes, call.Type.Size(), call.Root)
}

func (c *Comm) broadcastHere(call *Call, buf unsafe.Pointer, bytes int) error {
	from := c.seatOf(call.Root)
	if c.op.ready == inParts {
		return c.spread(buf, bytes, from)
	}
	if from != c.seat {
		copyAt(buf, 0, c.srcs[from], 0, bytes)
		c.board.Count(0, bytes)
	}
	return c.release()
}

// spread gives root's bytes to all members: down a tree, or scattered and gathered by
// a ring, which moves each byte twice but never n times from one place.
func (p *peers) spread(c *Comm, buf unsafe.Pointer, bytes, size, root int) error {
	if p.n() == 1 {
		return nil
	}
	if c.op.plan.link != ScatterRing {
		return p.treeSpread(c, buf, bytes, root)
	}
	begin, count := c.cut(bytes/size, p.n())
	if err := p.treeDeal(c, buf, begin, bytes/size, size, root); err != nil {
		return err
	}
	return p.ringGather(c, buf, begin, count, size, root)
}
