package collective

import (
	"unsafe"
)

// allgather puts every rank's Send, in rank order, into every rank's Recv.
func (c *Comm) allgather(call *Call) error {
	size := call.Type.Size()
	n := c.mesh.Size()
	begin, count := c.blocksOf(call.RecvCounts, call.Send.Count)
	own := shift(call.Recv.Ptr, begin[c.mesh.Rank()]*size, call.Send.Count)
	switch {
	case call.Recv.Count == 0:
		return nil
	case n == 1:
		copyAt(own, 0, call.Send.Ptr, 0, call.Send.Len())
		return nil
	case c.op.plan.layout == none:
		return c.allgatherHere(call, begin, count)
	}
	copyAt(own, 0, call.Send.Ptr, 0, call.Send.Len())
	if c.op.plan.layout == Hier {
		return c.allgatherLayers(call, begin, count)
	}
	return c.all.gatherAll(c, call.Recv.Ptr, begin, count, size)
}

// blocksOf cuts a tensor into the ranks' blocks.
func (c *Comm) blocksOf(counts []int, equal int) (begin, count []int) {
	begin, count = c.begin, c.count
	at := 0
	for r := range begin {
		k := equal
		if counts != nil {
			k = counts[r]
		}
		begin[r], count[r] = at, k
		at += k
	}
	return begin, count
}

func (p *peers) gatherAll(c *Comm, buf unsafe.Pointer, begin, count []int, size int) error {
	if c.op.plan.link == Bruck {
		return p.bruckGather(c, buf, begin, count, size)
	}
	return p.ringGather(c, buf, begin, count, size, 0)
}

func (c *Comm) allgatherHere(call *Call, begin, count []int) error {
	size := call.Type.Size()
	switch c.op.ready {
	case inParts:
		return c.shareBlocks(call.Recv.Ptr, call.Send.Ptr, begin, count, size, -1)
	case peeked:
		return c.moveByPeeking(call, 0)
	}
	past := call.Recv.Len() >= c.stream
	// The own block first, then the next seats': ranks that read the same lines at once take them from each other.
	for i := range c.seats {
		s := (c.seat + i) % c.seats
		if i == 0 {
			putAt(call.Recv.Ptr, begin[s]*size, c.srcs[s], 0, count[s]*size, past)
		} else {
			takeAt(call.Recv.Ptr, begin[s]*size, c.srcs[s], 0, count[s]*size, past)
		}
		c.board.Count(0, count[s]*size)
	}
	return c.release()
}

// allgatherLayers gathers, among the ranks with my seat on all hosts, their blocks,
// and then host by host shares the blocks inside mine. Every host has equally many
// ranks.
func (c *Comm) allgatherLayers(call *Call, begin, count []int) error {
	size := call.Type.Size()
	b, k := c.other[:c.cross.n()], c.length[:c.cross.n()]
	for h, r := range c.cross.ranks {
		b[h], k[h] = begin[r], count[r]
	}
	if err := c.cross.gatherAll(c, call.Recv.Ptr, b, k, size); err != nil {
		return err
	}
	if c.board == nil {
		return nil
	}
	local := len(c.topo.locals())
	for _, ranks := range c.topo.hosts {
		b, k := c.other[:local], c.length[:local]
		for s, r := range ranks {
			b[s], k[s] = begin[r], count[r]
		}
		mine := shift(call.Recv.Ptr, b[c.seat]*size, k[c.seat])
		if err := c.shareBlocks(call.Recv.Ptr, mine, b, k, size, -1); err != nil {
			return err
		}
	}
	return nil
}
