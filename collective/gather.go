package collective

import "unsafe"

// gather collects every rank's Send in the root's Recv, in rank order.
func (c *Comm) gather(call *Call) error {
	root := call.Root == c.mesh.Rank()
	size, n := call.Type.Size(), c.mesh.Size()
	own := call.Send.Len()
	if call.RecvCounts == nil && own == 0 {
		return nil
	}
	var begin, count []int
	if root {
		begin, count = c.blocksOf(call.RecvCounts, call.Send.Count)
	}
	switch {
	case n == 1:
		copyAt(call.Recv.Ptr, 0, call.Send.Ptr, 0, own)
		return nil
	case c.op.plan.layout == none:
		return c.gatherHere(call, begin, count)
	case call.RecvCounts == nil && c.op.plan.link == Tree:
		return c.gatherTree(call)
	case !root:
		return c.all.sendIn(call.Root, call.Send.Bytes(), c.segment)
	}
	copyAt(call.Recv.Ptr, begin[call.Root]*size, call.Send.Ptr, 0, own)
	return c.all.collect(c, call.Recv.Ptr, begin, count, size, call.Root)
}

// collect sends each member's block of buf to root, who takes them one by one. Only
// root needs all blocks' places.
func (p *peers) collect(c *Comm, buf unsafe.Pointer, begin, count []int, size, root int) error {
	if p.me != root {
		return p.sendIn(root, at(buf, begin[p.me]*size, count[p.me]*size), c.segment)
	}
	for i := range p.n() {
		if i == root {
			continue
		}
		if err := p.recvIn(i, at(buf, begin[i]*size, count[i]*size), c.segment); err != nil {
			return err
		}
	}
	return nil
}

// gatherTree collects equal blocks up a binomial tree, counted from the root, and
// turns them into rank order there.
func (c *Comm) gatherTree(call *Call) error {
	n, bytes := c.mesh.Size(), call.Send.Len()
	rel := (c.mesh.Rank() - call.Root + n) % n
	buf := pointer(c.work.take(n * bytes))
	begin, _ := c.blocksOf(nil, bytes)
	copyAt(buf, begin[rel], call.Send.Ptr, 0, bytes)
	if err := c.all.treeCollect(c, buf, begin, n*bytes, 1, call.Root); err != nil {
		return err
	}
	if rel != 0 {
		return nil
	}
	for i := range n {
		copyAt(call.Recv.Ptr, (i+call.Root)%n*bytes, buf, begin[i], bytes)
	}
	return nil
}

func (c *Comm) gatherHere(call *Call, begin, count []int) error {
	size := call.Type.Size()
	to := c.seatOf(call.Root)
	if c.op.ready == inParts {
		return c.collectParts(call, begin, count, to)
	}
	if to == c.seat {
		for s := range c.seats {
			copyAt(call.Recv.Ptr, begin[s]*size, c.srcs[s], 0, count[s]*size)
			c.board.Count(0, count[s]*size)
		}
	}
	return c.release()
}

// collectParts pipelines blocks of unknown lengths to one seat: each seat steps
// through its own block alone and the root through the longest.
func (c *Comm) collectParts(call *Call, begin, count []int, to int) error {
	size := call.Type.Size()
	q := c.pieces(1, size)
	if to != c.seat {
		for at := 0; at < call.Send.Count; at += q {
			k := c.op.phase
			if k >= 2 {
				// The root has read my piece k-2 when it has posted k-1.
				if err := c.board.Await(to, k-1); err != nil {
					return err
				}
			}
			stowAt(c.inPart(c.seat, int(k)), 0, call.Send.Ptr, at*size, min(q, call.Send.Count-at)*size)
			c.step()
		}
		return nil
	}
	copyAt(call.Recv.Ptr, begin[to]*size, call.Send.Ptr, 0, count[to]*size)
	for at := 0; at < most(count); at += q {
		k := int(c.op.phase)
		for s := range c.seats {
			n := min(q, count[s]-at)
			if s == to || n <= 0 {
				continue
			}
			if err := c.board.Await(s, uint32(k)+1); err != nil {
				return err
			}
			copyAt(call.Recv.Ptr, (begin[s]+at)*size, c.inPart(s, k), 0, n*size)
			c.board.Count(0, n*size)
		}
		c.step()
	}
	return nil
}
