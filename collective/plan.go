package collective

import (
	"hora/tensor"
	"hora/transport"
)

// plan is how one operation will be done. All ranks make the same plan from what
// their fingerprints cover; only whether memory is registered differs, and the header
// phase settles that.
type plan struct {
	layout  Algorithm
	link    Algorithm
	inline  bool // the contribution travels in the arrival itself
	slot    bool // or in my slot
	direct  bool // or is read where it lies, if all are registered
	peek    bool // or through the system, if it lets both ranks
	measure bool // and if that is quicker than parts
}

// headed reports that arrivals say where contributions are.
func (p *plan) headed() bool { return p.direct || p.slot || p.peek }

// planFor chooses for a call that check has passed.
func (c *Comm) planFor(call *Call, p *plan) {
	p.layout, p.link = none, none
	p.inline, p.slot, p.direct, p.peek, p.measure = false, false, false, false, false
	if call.Kind == Barrier || call.Kind == SendTo || call.Kind == RecvFrom {
		p.inline, p.layout = true, Hier
		return
	}
	whole := c.wholeBytes(call)
	unit := c.contributed(call, whole)
	if len(c.topo.hosts) > 1 {
		p.layout = c.menuAll.pick(call.Kind, layoutColumn, call.Type, whole)
		links := &c.menuAll
		if p.layout == Hier && c.layered(call) {
			links = &c.menuCross
		} else {
			p.layout = Flat
		}
		p.link = links.pick(call.Kind, linkColumn, call.Type, max(whole, 0))
	} else if c.board == nil {
		p.layout = Flat
		p.link = c.menuAll.pick(call.Kind, linkColumn, call.Type, max(whole, 0))
	}
	if c.board == nil || call.Op == tensor.Adasum && call.Kind == Allreduce || len(c.topo.hosts) > 1 {
		return
	}
	if unit >= 0 && unit <= transport.InlineBytes {
		p.inline = true
		return
	}
	on := c.menuBoard.pick(call.Kind, boardColumn, call.Type, whole)
	p.slot = unit >= 0 && unit <= c.board.SlotBytes() && on == OneShot
	plain := call.Pre == 0 || call.Pre == 1
	p.direct = whole >= 0 && c.menuBoard.pick(call.Kind, directColumn, call.Type, whole) == Direct && plain
	p.peek = peekable(call) && c.seats == 2 && plain && (on == Peek || on == Measured)
	p.measure = p.peek && on == Measured
}

// layered reports whether an operation can use the memory inside hosts: some host
// has it, and where blocks of ranks must pair up across hosts, all have it alike.
func (c *Comm) layered(call *Call) bool {
	if c.topo.alone(c.mesh.Size()) {
		return false
	}
	switch call.Kind {
	case Allreduce:
		return call.Op != tensor.Adasum
	case Reduce, Broadcast:
		return true
	case Allgather, ReduceScatter:
		return c.topo.even
	}
	return false
}

// wholeBytes is the size by which tables choose: what one rank holds when all blocks
// are together. It is the same on all ranks; -1 where ranks cannot know it.
func (c *Comm) wholeBytes(call *Call) int {
	size := call.Type.Size()
	switch call.Kind {
	case Allreduce, Reduce, ReduceScatter:
		return call.Send.Count * size
	case Broadcast:
		return max(call.Send.Count, call.Recv.Count) * size
	case Allgather:
		return call.Recv.Count * size
	case Alltoall:
		if call.SendCounts != nil {
			return -1
		}
		return call.Send.Count * size
	case Gather:
		if call.RecvCounts != nil {
			return -1
		}
		return call.Send.Count * size * c.mesh.Size()
	case Scatter:
		if call.SendCounts != nil {
			return -1
		}
		return call.Recv.Count * size * c.mesh.Size()
	}
	return 0
}

// contributed is the greatest number of bytes that one rank brings into shared
// memory, -1 where ranks cannot know it.
func (c *Comm) contributed(call *Call, whole int) int {
	if whole < 0 {
		return -1
	}
	switch call.Kind {
	case Allgather:
		if call.RecvCounts == nil {
			return call.Send.Count * call.Type.Size()
		}
		most := 0
		for _, k := range call.RecvCounts {
			most = max(most, k)
		}
		return most * call.Type.Size()
	case Gather:
		return call.Send.Count * call.Type.Size()
	}
	return whole
}

// source is what this rank contributes; nothing where only the root does.
func (c *Comm) source(call *Call) tensor.View {
	switch call.Kind {
	case Broadcast:
		if call.Root != c.mesh.Rank() {
			return tensor.View{}
		}
		if call.Send.Count == 0 {
			return call.Recv
		}
	case Scatter:
		if call.Root != c.mesh.Rank() {
			return tensor.View{}
		}
	}
	return call.Send
}
