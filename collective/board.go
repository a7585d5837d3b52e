package collective

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"hora/tensor"
	"hora/transport"
)

// What a rank says of its memory when it arrives: where its source and its Recv are
// registered (0: they are not, else the buffer's id plus one, and the offset), and
// whether it has filled its slot.
type header struct {
	send, recv     uint32
	sendAt, recvAt uint64
	filled         bool
	peek           peekHeader
}

const headerBytes = 25 + peekBytes

func (h *header) put(b []byte) {
	binary.LittleEndian.PutUint32(b, h.send)
	binary.LittleEndian.PutUint32(b[4:], h.recv)
	binary.LittleEndian.PutUint64(b[8:], h.sendAt)
	binary.LittleEndian.PutUint64(b[16:], h.recvAt)
	b[24] = 0
	if h.filled {
		b[24] = 1
	}
	h.peek.put(b[25:])
}

func (h *header) get(b []byte) {
	h.send = binary.LittleEndian.Uint32(b)
	h.recv = binary.LittleEndian.Uint32(b[4:])
	h.sendAt = binary.LittleEndian.Uint64(b[8:])
	h.recvAt = binary.LittleEndian.Uint64(b[16:])
	h.filled = b[24] != 0
	h.peek.get(b[25:])
}

// ready is where the ranks of this host find each other's contributions once all
// have arrived.
type ready uint8

const (
	inParts  ready = iota // nowhere yet: they will go through the parts, piece by piece
	inHeader              // in the arrivals themselves
	inSlots
	inPlace // in their owners' memory; release tells them when it was read
	peeked  // in their owners' private memory, which the system reads for us
	staged  // of Allreduce, with Recv in registered memory: there, or in Send where that is registered too
)

// meet does the header phase: it posts this rank's arrival once and takes in the
// others' until the budget is used up.
func (c *Comm) meet(call *Call, budget time.Duration) (bool, error) {
	o := &c.op
	if !o.posted {
		if ok, err := c.board.CatchUp(budget); !ok {
			return false, err
		}
		c.announce(call)
		o.posted = true
	}
	for ; o.met < c.seats; o.met++ {
		if o.met == c.seat {
			continue
		}
		in, ok, err := c.board.AwaitArrival(o.met, budget)
		if err != nil {
			o.open = false
			return false, err
		}
		if !ok {
			return false, nil
		}
		switch {
		case o.plan.inline:
			c.srcs[o.met] = pointer(in)
		case o.plan.headed():
			c.headers[o.met].get(in)
		}
	}
	if o.ready == inParts && o.plan.headed() {
		return true, c.settle(call)
	}
	return true, nil
}

// announce posts the arrival: with the contribution in it, or after copying that
// into the slot, or saying where it is registered.
func (c *Comm) announce(call *Call) {
	o := &c.op
	src := c.source(call)
	factor := call.Pre
	if !call.Kind.Reduces() {
		factor = 1
	}
	switch {
	case call.Kind == Barrier:
		c.board.Arrive(nil)
	case o.plan.inline:
		mine := src.Ptr
		if factor != 0 && factor != 1 {
			mine = pointer(o.inline[:])
			load(mine, src.Ptr, src.Count, call.Type, factor)
		}
		c.srcs[c.seat] = mine
		o.ready = inHeader
		c.board.Arrive(at(mine, 0, src.Len()))
	case o.plan.headed():
		h := &c.headers[c.seat]
		*h = header{}
		if o.plan.direct {
			c.locate(h, call, src)
		}
		if o.plan.peek && (call.Kind != Broadcast || h.send == 0 && h.recv == 0) {
			c.offer(&h.peek, call)
		}
		if o.plan.slot && h.send == 0 {
			c.fillSlot(call, src, factor)
			h.filled = true
			c.filled[o.parity] = src.Len()
		}
		h.put(o.inline[:])
		c.board.Arrive(o.inline[:headerBytes])
	default:
		if call.Kind == Alltoall && call.SendCounts != nil && o.plan.layout == none {
			c.postCounts(call)
		}
		c.board.Arrive(nil)
	}
}

// fillSlot copies the contribution into my slot, less the block of it that only I read.
func (c *Comm) fillSlot(call *Call, src tensor.View, factor float64) {
	slot := pointer(c.board.Slot(c.seat, c.op.parity))
	from, to := c.ownBlock(call)
	if from == to || factor != 0 && factor != 1 {
		stow(slot, src.Ptr, src.Count, call.Type, factor)
		return
	}
	size := call.Type.Size()
	stowAt(slot, 0, src.Ptr, 0, from*size)
	if n := src.Count - to; n > 0 {
		stowAt(slot, to*size, src.Ptr, to*size, n*size)
	}
}

// ownBlock is the part of Send that no other rank reads, in elements.
func (c *Comm) ownBlock(call *Call) (from, to int) {
	me := c.mesh.Rank()
	switch {
	case call.Kind == Alltoall && call.SendCounts == nil:
		n := call.Send.Count / c.mesh.Size()
		return me * n, (me + 1) * n
	case call.Kind == ReduceScatter && call.RecvCounts == nil:
		return me * call.Recv.Count, (me + 1) * call.Recv.Count
	}
	return 0, 0
}

// locate fills in where the call's memory is registered.
func (c *Comm) locate(h *header, call *Call, src tensor.View) {
	if src.Count > 0 {
		if id, at, ok := c.board.Registered(src.Ptr, src.Len()); ok {
			h.send, h.sendAt = id+1, at
		}
	}
	if call.Recv.Count == 0 {
		return
	}
	if src.Ptr == call.Recv.Ptr && src.Count == call.Recv.Count {
		h.recv, h.recvAt = h.send, h.sendAt
	} else if id, at, ok := c.board.Registered(call.Recv.Ptr, call.Recv.Len()); ok {
		h.recv, h.recvAt = id+1, at
	}
}

// settle decides from all headers, and so alike on all ranks, where the
// contributions are read.
func (c *Comm) settle(call *Call) error {
	o := &c.op
	rootSeat := -1
	if call.Kind == Broadcast || call.Kind == Scatter {
		rootSeat = c.seatOf(call.Root)
	}
	direct, slots, stages := o.plan.direct, o.plan.slot, o.plan.direct && call.Kind == Allreduce
	for s := range c.headers {
		h := &c.headers[s]
		if rootSeat < 0 || s == rootSeat {
			direct = direct && h.send != 0
			slots = slots && h.filled
		}
		if call.Kind == Allreduce {
			direct = direct && h.recv != 0
			stages = stages && h.recv != 0
		}
	}
	switch {
	case direct:
		o.ready = inPlace
		return c.borrow(call, rootSeat)
	case slots:
		o.ready = inSlots
		for s := range c.headers {
			c.srcs[s] = pointer(c.board.Slot(s, o.parity))
		}
		if src := c.source(call); src.Ptr != nil && (!call.Kind.Reduces() || call.Pre == 0 || call.Pre == 1) {
			c.srcs[c.seat] = src.Ptr // of my own slot only the others' blocks are filled
		}
	case stages:
		o.ready = staged
		return c.borrow(call, rootSeat)
	case o.plan.peek:
		return c.settlePeek(call)
	}
	return nil
}

// borrow is what precedes the first touch of other ranks' memory.
func (c *Comm) borrow(call *Call, rootSeat int) error {
	if err := c.board.Sound(); err != nil {
		return err
	}
	return c.mapped(call, rootSeat)
}

// lent is the phase up to which others may touch memory of this rank, by what its header
// said and by what it knows of theirs; 0: they never do.
func (c *Comm) lent() uint32 {
	o := &c.op
	h := &c.headers[c.seat]
	if o.plan.peek && h.peek.able {
		switch {
		case o.met < c.seats:
			return transport.AllPhases
		case o.ready == peeked:
			return o.lastPhase
		}
	}
	if !o.plan.direct || h.send == 0 && h.recv == 0 {
		return 0
	}
	switch {
	case o.met < c.seats:
		return transport.AllPhases
	case o.ready == inPlace:
		return 1
	case o.ready == staged:
		return 2
	}
	return 0
}

// fail is how the operation's error leaves this package: not before other ranks are
// through with this one's memory. A mismatch leaves the board as it was.
func (c *Comm) fail(err error) error {
	var mismatch *transport.MismatchError
	if c.board != nil && c.op.posted && !errors.As(err, &mismatch) {
		c.board.Withdraw(err, c.lent())
	}
	c.op.open, c.op.timed = false, nil
	return err
}

// mapped finds this process's view of every contribution (or only the root's).
func (c *Comm) mapped(call *Call, rootSeat int) error {
	mine := c.source(call)
	for s := range c.headers {
		if rootSeat >= 0 && s != rootSeat {
			continue
		}
		if s == c.seat {
			c.srcs[s] = mine.Ptr
			continue
		}
		h := &c.headers[s]
		id, at := h.send, h.sendAt
		if id == 0 { // staged: its owner copies it there
			id, at = h.recv, h.recvAt
		}
		bytes := c.contributionOf(call, s)
		if c.srcs[s] = c.board.Mapped(s, id-1, at, bytes); c.srcs[s] == nil {
			return c.unmapped(call, s, id-1)
		}
	}
	return nil
}

func (c *Comm) unmapped(call *Call, seat int, id uint32) error {
	return fmt.Errorf("run %s: registered buffer %d of rank %d is not mapped here", call.Kind, id, c.board.Ranks()[seat])
}

// contributionOf is how many bytes of a seat's source this rank may read. Where
// counts are only known to their owner it is what this rank takes from it.
func (c *Comm) contributionOf(call *Call, seat int) int {
	size := call.Type.Size()
	switch call.Kind {
	case Allgather, Gather:
		if call.RecvCounts != nil {
			if len(call.RecvCounts) == 0 {
				return 0
			}
			return call.RecvCounts[c.board.Ranks()[seat]] * size
		}
	case Broadcast:
		return max(call.Send.Count, call.Recv.Count) * size
	case Scatter:
		return call.Recv.Count * size * c.seats
	}
	return call.Send.Count * size
}

// claimMost is how much of a slot is claimed ahead. More than 16 KiB would keep a small
// operation longer than what had filled the slot took.
const claimMost = 16 << 10

// claimSlot asks for the lines of the slot that the next operation will fill, if an
// operation before this one has filled it: its readers were done with it when they
// arrived at this one. Bringing it back takes a small operation longer than copying into it.
func (c *Comm) claimSlot() {
	next := c.op.parity ^ 1
	if n := c.filled[next]; n > 0 {
		c.filled[next] = 0
		claimLines(pointer(c.board.Slot(c.seat, next)), (min(n, claimMost)+63)/64)
	}
}

// release ends an operation that read other ranks' memory where it lies: nobody goes
// on before everybody has read.
func (c *Comm) release() error {
	if c.op.ready != inPlace {
		return nil
	}
	return c.together()
}

// together is a barrier of this host's ranks inside an operation.
func (c *Comm) together() error {
	c.step()
	return c.board.AwaitAll(c.op.phase)
}

// step tells this host's ranks that I have come one phase further.
func (c *Comm) step() {
	c.op.phase++
	c.board.Post(c.op.phase)
}

func (c *Comm) seatOf(rank int) int {
	for s, r := range c.board.Ranks() {
		if r == rank {
			return s
		}
	}
	return -1
}

// out and in are my and a seat's part for one step of a pipeline; two of them
// alternate for inputs, two for results.
func (c *Comm) inPart(seat, k int) unsafe.Pointer {
	return pointer(c.board.Part(seat, k&1))
}

func (c *Comm) outPart(seat, k int) unsafe.Pointer {
	return pointer(c.board.Part(seat, 2+k&1))
}
