package collective

// scatter gives every rank its block of the root's Send.
func (c *Comm) scatter(call *Call) error {
	root := call.Root == c.mesh.Rank()
	size, n := call.Type.Size(), c.mesh.Size()
	own := call.Recv.Len()
	if call.SendCounts == nil && own == 0 {
		return nil
	}
	var begin, count []int
	if root {
		begin, count = c.blocksOf(call.SendCounts, call.Recv.Count)
	}
	switch {
	case n == 1:
		copyAt(call.Recv.Ptr, 0, call.Send.Ptr, 0, own)
		return nil
	case c.op.plan.layout == none:
		return c.scatterHere(call, begin, count)
	case call.SendCounts == nil && c.op.plan.link == Tree:
		return c.scatterTree(call)
	case !root:
		return c.all.recvIn(call.Root, call.Recv.Bytes(), c.segment)
	}
	copyAt(call.Recv.Ptr, 0, call.Send.Ptr, begin[call.Root]*size, own)
	for i := range n {
		if i == call.Root {
			continue
		}
		if err := c.all.sendIn(i, at(call.Send.Ptr, begin[i]*size, count[i]*size), c.segment); err != nil {
			return err
		}
	}
	return nil
}

// scatterTree deals equal blocks down a binomial tree counted from the root.
func (c *Comm) scatterTree(call *Call) error {
	n, bytes := c.mesh.Size(), call.Recv.Len()
	rel := (c.mesh.Rank() - call.Root + n) % n
	buf := pointer(c.work.take(n * bytes))
	begin, _ := c.blocksOf(nil, bytes)
	if rel == 0 {
		for i := range n {
			copyAt(buf, begin[i], call.Send.Ptr, (i+call.Root)%n*bytes, bytes)
		}
	}
	if err := c.all.treeDeal(c, buf, begin, n*bytes, 1, call.Root); err != nil {
		return err
	}
	copyAt(call.Recv.Ptr, 0, buf, begin[rel], bytes)
	return nil
}

func (c *Comm) scatterHere(call *Call, begin, count []int) error {
	from := c.seatOf(call.Root)
	if c.op.ready == inParts {
		return c.dealParts(call, begin, count, from)
	}
	own := call.Recv.Len()
	copyAt(call.Recv.Ptr, 0, c.srcs[from], c.seat*own, own)
	c.board.Count(0, own)
	return c.release()
}

// dealParts pipelines blocks of lengths that only the root knows: its part is cut into
// one piece a seat, and each seat steps as far as its own block goes.
func (c *Comm) dealParts(call *Call, begin, count []int, from int) error {
	size := call.Type.Size()
	q := c.pieces(c.seats, size)
	if from != c.seat {
		for at := 0; at < call.Recv.Count; at += q {
			k := c.op.phase
			if err := c.board.Await(from, k+1); err != nil {
				return err
			}
			copyAt(call.Recv.Ptr, at*size, c.inPart(from, int(k)), c.seat*q*size, min(q, call.Recv.Count-at)*size)
			c.board.Count(0, min(q, call.Recv.Count-at)*size)
			c.step()
		}
		return nil
	}
	copyAt(call.Recv.Ptr, 0, call.Send.Ptr, begin[from]*size, count[from]*size)
	for at := 0; at < most(count); at += q {
		k := c.op.phase
		for s := range c.seats {
			n := min(q, count[s]-at)
			if s == from || n <= 0 {
				continue
			}
			if k >= 2 {
				// The seat has read its piece k-2 when it has posted k-1.
				if err := c.board.Await(s, k-1); err != nil {
					return err
				}
			}
			stowAt(c.inPart(from, int(k)), s*q*size, call.Send.Ptr, (begin[s]+at)*size, n*size)
		}
		c.step()
	}
	return nil
}
