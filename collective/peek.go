package collective

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
	"unsafe"

	"hora/internal/kernel"
	"hora/tensor"
	"hora/transport"
)

// Two ranks of a host may read each other's private memory through the system, in one
// copy where parts take two. Each reads what the other has of its own share, piece by
// piece, adds, and the other reads the sums; of allgather and alltoall it reads the block that
// it is to have. Of broadcast the receiver reads one half and the root writes the other. Whether the system lets them
// is tried once, in the first operation that would do so: each reads a word of the other's whose value is in its
// header, which also shows that it is the right process.

// peekStep is how many bytes are read at once: less has the system look up the same
// process too often, more does not stay in the second-level cache.
const peekStep = 512 << 10

// smallPages is the size up to which memory on small pages is read so. Above it the look-up
// of each page costs more than the copy that is saved.
const smallPages = 12 << 20

// peekable reports that an operation can be done so.
func peekable(call *Call) bool {
	switch call.Kind {
	case Allreduce, Alltoall, Broadcast:
		return true
	case Allgather:
		return call.RecvCounts == nil
	}
	return false
}

// peeking is what a rank knows about reading the other's memory.
type peeking struct {
	witness *uint64 // of mine, for the other to try
	tried   bool
	able    bool
	ends    [4]uintptr // what readable asks about
}

// peekHeader is what a rank says of its memory that may be read through the system.
type peekHeader struct {
	able       bool // I can read yours
	parts      bool // of the first seat: the next call of this kind and size goes through parts all the same
	timed      bool // likewise: and its time is taken
	large      bool // mine is on huge pages; only said above smallPages
	send, recv uint64
	word       uint64 // where my witness is, and what it says
	value      uint64
	took       uint32 // what my last timed call of this kind and size took, in nanoseconds
}

const peekBytes = 37

func (h *peekHeader) put(b []byte) {
	b[0] = 0
	for i, set := range [4]bool{h.able, h.large, h.parts, h.timed} {
		if set {
			b[0] |= 1 << i
		}
	}
	for i, v := range [4]uint64{h.send, h.recv, h.word, h.value} {
		binary.LittleEndian.PutUint64(b[1+8*i:], v)
	}
	binary.LittleEndian.PutUint32(b[33:], h.took)
}

func (h *peekHeader) get(b []byte) {
	h.able, h.large, h.parts, h.timed = b[0]&1 != 0, b[0]&2 != 0, b[0]&4 != 0, b[0]&8 != 0
	for i, v := range [4]*uint64{&h.send, &h.recv, &h.word, &h.value} {
		*v = binary.LittleEndian.Uint64(b[1+8*i:])
	}
	h.took = binary.LittleEndian.Uint32(b[33:])
}

// offer says where the call's memory is.
func (c *Comm) offer(h *peekHeader, call *Call) {
	p := &c.peeking
	if p.witness == nil {
		p.witness = new(uint64)
		*p.witness = rand.Uint64()
	}
	send, recv := call.Send, call.Recv
	if call.Kind == Broadcast { // one of them, of which the other rank reads or writes half
		if call.Root != c.mesh.Rank() || send.Count == 0 {
			send = recv
		}
		recv = send
	}
	h.send, h.recv = address(send.Ptr), address(recv.Ptr)
	h.word, h.value = address(unsafe.Pointer(p.witness)), *p.witness
	var how try
	if c.op.plan.measure {
		how = c.paceOf(call).told
		c.tell(h, call)
	}
	if how.way == byParts || !p.able {
		c.op.asked = 0
		return
	}
	var began time.Time
	if how.timed {
		began = time.Now()
	}
	h.able = c.readable(send, recv)
	if h.able && c.wholeBytes(call) >= smallPages {
		h.large = c.board.Large(send.Ptr, send.Len()) && c.board.Large(recv.Ptr, recv.Len())
	}
	if how.timed {
		c.op.asked = time.Since(began)
	}
}

// readable reports that the system reads both at all: it does not where a device's driver has
// mapped them. Tensors lie in one mapping, so their ends tell.
func (c *Comm) readable(v, w tensor.View) bool {
	p := &c.peeking
	p.ends = [4]uintptr{
		uintptr(v.Ptr), uintptr(v.Ptr) + uintptr(v.Len()-1),
		uintptr(w.Ptr), uintptr(w.Ptr) + uintptr(w.Len()-1),
	}
	if v == w {
		return c.board.Readable(p.ends[:2])
	}
	return c.board.Readable(p.ends[:])
}

func address(p unsafe.Pointer) uint64 { return uint64(uintptr(p)) }

// settlePeek decides from both headers, and so alike on both ranks, whether memory is read through the
// system in this operation.
func (c *Comm) settlePeek(call *Call) error {
	o := &c.op
	other := 1 - c.seat
	a, b := &c.headers[0].peek, &c.headers[1].peek
	var how try
	if o.plan.measure {
		how = c.heed(call)
	}
	if a.able && b.able && (a.large && b.large || c.wholeBytes(call) < smallPages) {
		if how.timed {
			c.start(call)
		}
		o.ready = peeked
		if o.lastPhase = 1; call.Kind != Allreduce {
			return c.board.Sound()
		}
		chunk := 2 * peekStep / call.Type.Size()
		o.lastPhase = uint32((call.Send.Count+chunk-1)/chunk) + 1
		return c.board.Sound()
	}
	if how.timed && how.way == byParts {
		c.start(call)
	}
	if p := &c.peeking; !p.tried {
		p.tried = true
		theirs := &c.headers[other].peek
		var word uint64
		p.able = c.board.Peek(other, unsafe.Pointer(&word), uintptr(theirs.word), 8) == nil && word == theirs.value &&
			c.board.Poke(other, unsafe.Pointer(&word), uintptr(theirs.word), 8) == nil
	}
	return nil
}

// reduceByPeeking reduces this rank's half of each chunk and takes the other's sums.
func (c *Comm) reduceByPeeking(call *Call) error {
	t, n := call.Type, call.Send.Count
	size := t.Size()
	other := 1 - c.seat
	theirs := c.headers[other].peek
	half := peekStep / size
	chunk := 2 * half
	last := (n + chunk - 1) / chunk
	room := pointer(c.work.take(min(half, n) * size))
	for i := 0; i <= last; i++ {
		if i < last {
			lo, len := i*chunk, min(chunk, n-i*chunk)
			from, to := lo+block(len, 2, c.seat), lo+block(len, 2, c.seat+1)
			if err := c.peek(call.Kind, other, room, theirs.send, from*size, (to-from)*size); err != nil {
				return err
			}
			if to > from {
				dst := unsafe.Add(call.Recv.Ptr, from*size)
				c.srcs[c.seat], c.srcs[other] = unsafe.Add(call.Send.Ptr, from*size), room
				kernel.ReduceAll(dst, c.srcs[:2], to-from, t, call.Op)
				finish(dst, to-from, call, 2, t)
			}
			c.step()
		}
		if i > 0 {
			if err := c.board.Await(other, uint32(i)); err != nil {
				return err
			}
			lo, len := (i-1)*chunk, min(chunk, n-(i-1)*chunk)
			from, to := lo+block(len, 2, other), lo+block(len, 2, other+1)
			if err := c.peek(call.Kind, other, shift(call.Recv.Ptr, from*size, to-from), theirs.recv, from*size,
				(to-from)*size); err != nil {
				return err
			}
		}
	}
	return c.together()
}

// moveByPeeking copies this rank's own block, which lies from bytes into Send, and reads the other's, which lies
// as far into its Send.
func (c *Comm) moveByPeeking(call *Call, from int) error {
	other := 1 - c.seat
	bytes := call.Recv.Len() / 2
	send := c.headers[other].peek.send
	putAt(call.Recv.Ptr, c.seat*bytes, call.Send.Ptr, from, bytes, call.Recv.Len() >= c.stream)
	for at := 0; at < bytes; at += peekStep {
		if err := c.peek(call.Kind, other, unsafe.Add(call.Recv.Ptr, other*bytes+at), send, from+at,
			min(peekStep, bytes-at)); err != nil {
			return err
		}
	}
	return c.together()
}

// broadcastByPeeking has the receiver read the first half and the root write the second.
func (c *Comm) broadcastByPeeking(call *Call, buf unsafe.Pointer, root, bytes int) error {
	half, _ := c.share(bytes, 1, 1)
	other := 1 - c.seat
	theirs := c.headers[other].peek.recv
	if c.seat != root {
		for at := 0; at < half; at += peekStep {
			if err := c.peek(call.Kind, other, unsafe.Add(buf, at), theirs, at, min(peekStep, half-at)); err != nil {
				return err
			}
		}
		return c.together()
	}
	for at := half; at < bytes; at += peekStep {
		if err := c.board.Sound(); err != nil {
			return err // a rank that slept through its own loss must not store over what follows
		}
		n := min(peekStep, bytes-at)
		err := c.board.Poke(other, unsafe.Add(buf, at), uintptr(theirs)+uintptr(at), n)
		c.board.Count(n, n)
		if err := c.peekError(call.Kind, other, n, "write", err); err != nil {
			return err
		}
	}
	return c.together()
}

// peek reads n bytes of another seat's memory. It says last whether that may have been
// somebody else's by then: who fails says so before he lets his memory go.
func (c *Comm) peek(k Kind, seat int, dst unsafe.Pointer, base uint64, offset, n int) error {
	if n == 0 {
		return nil
	}
	err := c.board.Peek(seat, dst, uintptr(base)+uintptr(offset), n)
	c.board.Count(n, n)
	return c.peekError(k, seat, n, "read", err)
}

// peekError is what a failure to read or write another seat's memory means.
func (c *Comm) peekError(k Kind, seat, n int, did string, err error) error {
	if sound := c.board.Sound(); sound != nil {
		return sound
	}
	if errors.Is(err, transport.ErrGone) { // who notices the end of processes will say why
		return c.board.Await(seat, transport.AllPhases>>9)
	}
	if err != nil {
		return fmt.Errorf("%s %d bytes of rank %d's memory: %w; HORA_ALGORITHMS=\"%s:0-=twoshot\" does without", did, n, c.board.Ranks()[seat], err, k)
	}
	return nil
}
