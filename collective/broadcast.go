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
	switch c.op.ready {
	case inParts:
		return c.spread(buf, bytes, from)
	case peeked:
		return c.broadcastByPeeking(call, buf, from, bytes)
	}
	if own, ok := c.pushed(from, bytes); ok {
		if err := c.pushAndPull(call, buf, from, own, bytes); err != nil {
			return err
		}
	} else if from != c.seat {
		fetchAt(buf, 0, c.srcs[from], 0, bytes)
		c.board.Count(0, bytes)
	}
	return c.release()
}

// pushLeast is the size from which the root of a broadcast in registered memory does a share of the copying.
const pushLeast = 256 << 10

// pushStep is how much is copied between two looks at whether this rank is still counted as alive.
const pushStep = 256 << 10

// pushed returns up to which byte receivers copy for themselves, and whether the root writes the rest into
// their memory: where that is registered too its core need not wait. The answer is made of headers, so it is the same
// on all ranks.
func (c *Comm) pushed(root, bytes int) (own int, ok bool) {
	if c.op.ready != inPlace || bytes < pushLeast {
		return bytes, false
	}
	for s := range c.headers {
		if s != root && c.headers[s].recv == 0 {
			return bytes, false
		}
	}
	own, _ = c.share(bytes, 1, c.seats-1)
	return own, true
}

// pushAndPull copies the bytes before own on the receivers and, for each of them, the others on the root.
func (c *Comm) pushAndPull(call *Call, buf unsafe.Pointer, root, own, bytes int) error {
	if c.seat != root {
		fetchAt(buf, 0, c.srcs[root], 0, own)
		c.board.Count(0, own)
		return nil
	}
	for s := range c.headers {
		h := &c.headers[s]
		if s == root {
			continue
		}
		to := c.board.Mapped(s, h.recv-1, h.recvAt, bytes)
		if to == nil {
			return c.unmapped(call, s, h.recv-1)
		}
		for at := own; at < bytes; at += pushStep {
			if err := c.board.Sound(); err != nil {
				return err // a rank that slept through its own loss must not store over what follows
			}
			stowAt(to, at, c.srcs[root], at, min(pushStep, bytes-at))
		}
		c.board.Count(bytes-own, 0)
	}
	return nil
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
