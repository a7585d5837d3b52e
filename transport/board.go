package transport

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"
)

// InlineBytes is the payload that travels in an arrival's own two cache lines, which
// processors fetch together.
const InlineBytes = 112

// Waiter puts a rank to sleep until a word in shared memory changes, with the
// meaning of a futex: Wait returns at once if *word is not old, else after Wake,
// after timeout or for no reason.
type Waiter interface {
	Wait(word *uint32, old uint32, timeout time.Duration)
	Wake(word *uint32)
	// Yield lets another thread run on this processor.
	Yield()
}

// Region finds registered memory: buffers that every rank on the host maps.
// Both methods are called on the data path: no lock, no allocation.
type Region interface {
	// Registered finds the buffer of this rank that holds [ptr, ptr+n).
	Registered(ptr unsafe.Pointer, n int) (id uint32, offset uint64, ok bool)
	// Mapped is where this process maps [offset, offset+n) of that seat's buffer;
	// nil if it does not.
	Mapped(seat int, id uint32, offset uint64, n int) unsafe.Pointer
}

// Board is the memory that the ranks of one host share, as one of them sees it.
// The ranks here are seats, numbered in rank order.
//
// A board operation has two steps. First everybody arrives: Arrive posts this
// rank's header (fingerprint and up to InlineBytes of payload, in one or two cache lines),
// AwaitArrival reads another's. Every rank reads every header of every operation:
// so all of them see a mismatch, and nobody can be two operations ahead of
// anybody, which is why two lines, slots and descriptions per seat are enough.
// Then, if the operation needs more, ranks move data through slots, parts or
// registered memory, and say how far they are with Post and Await.
//
// Why nothing is overwritten that is still read. A rank enters operation k only when its
// driver is through with k−1, and it goes past k's header phase only when it has seen
// all others enter k: then all are through with k−1. So who posts for k+2, in the same
// line, slot or description as for k, has passed k+1's header phase, and nobody is in k.
// Parts are written only after a header phase, when everybody is through with the
// operations before; inside one, together() orders them (collective/parts.go). What
// breaks the chain is an operation that a rank leaves without having seen everybody
// enter it: after a loss nothing is posted any more; after a mismatch CatchUp waits for
// who was behind. Registered memory is lent for one operation, from the headers to its
// last phase; see Withdraw for what becomes of it in a failed one. A new group, an elastic
// job's next epoch too, has memory of its own.
//
// Words that are waited for only grow, and their lowest bit is the wait bit: a
// reader that goes to sleep sets it with a compare-and-swap, the writer publishes
// with an exchange and wakes only if the old value had the bit. No wake-up can be
// lost, and as long as nobody sleeps nobody pays for it.
//
// But an exchange waits until the line is this processor's own, some 100 ns after the
// other one has polled it, and only then may the writer look for the other's word. So
// where the system can fence other processes (BoardConfig.Fence), a seat publishes by a plain
// store and then looks at its sleepers word, and who goes to sleep pays: it counts
// itself there, fences the writer, looks once more, and sleeps. Either the
// writer's store was before the fence, and the sleeper sees it, or its look at
// sleepers was after, and it sees the sleeper.
//
// One goroutine drives a board; Fail, Leave and Traffic may be called from any.
type Board struct {
	seats, seat int
	ranks       []int
	cfg         BoardConfig
	waiter      Waiter

	head    *head
	control []*control
	// Pointers into control: the compiler looks for nil where it takes the address of a
	// field, by a read of the structure's first line, which is a header that others write.
	arrivals [2][]*arrival // by parity: every seat's header
	progress []*uint64
	sleepers *uint32 // of this seat
	describe []*[2]description
	data     []unsafe.Pointer // slots and parts of each seat
	rings    [2][]ringPair    // by class: group, pair; per other seat

	stamp    Stamp
	deadline time.Time
	parity   int
	want     uint64 // Seq<<1
	base     uint64 // Seq<<24
	me       *control
	plain    bool      // this seat publishes by plain stores
	waited   time.Time // start of the operation's first slow wait; zero before

	spin    spinner
	failed  atomic.Pointer[failure]
	asleep  atomic.Pointer[uint32] // the word that this rank's wait sleeps on, for Fail to end it
	onFail  notifier
	behind  uint64    // operation that not everybody had come to when this rank went on: see CatchUp
	lostAt  time.Time // when this rank first saw the loss of a rank it does not wait for
	traffic [4]uint64 // bytes sent and received, messages sent and received; one writer
}

// NewBoard lays a board over mem, which must be 64-byte aligned and all zero when
// the first seat comes (seat 0 comes first and writes the sizes that all must
// share). The board does not own mem: it stays mapped until nobody uses the board.
func NewBoard(mem []byte, seats, seat int, cfg BoardConfig) (*Board, error) {
	if seats < 1 || seats > maxSeats || seat < 0 || seat >= seats {
		return nil, fmt.Errorf("open board: seat %d of %d; at most %d ranks can share one", seat, seats, maxSeats)
	}
	if !littleEndian() {
		return nil, errors.New("open board: shared memory needs a little-endian processor")
	}
	cfg = cfg.withDefaults(seats)
	e := cfg.extent(seats)
	if len(mem) < e.end {
		return nil, fmt.Errorf("open board: %d bytes of memory, %d needed", len(mem), e.end)
	}
	base := unsafe.Pointer(unsafe.SliceData(mem))
	if uintptr(base)%64 != 0 {
		return nil, errors.New("open board: memory is not aligned to 64 bytes")
	}
	b := &Board{seats: seats, seat: seat, ranks: cfg.Ranks, cfg: cfg, waiter: cfg.Waiter}
	if b.ranks == nil {
		for i := range seats {
			b.ranks = append(b.ranks, i)
		}
	}
	if len(b.ranks) != seats {
		return nil, fmt.Errorf("open board: %d ranks for %d seats", len(b.ranks), seats)
	}
	if b.waiter == nil {
		b.waiter = yielder{}
	}
	b.head = (*head)(base)
	if seat == 0 {
		h := b.head
		h.seats, h.slotBytes, h.partBytes = uint32(seats), uint32(cfg.SlotBytes), uint32(cfg.PartBytes)
		h.parts, h.ringBytes = uint32(cfg.Parts), uint32(cfg.RingBytes)
		atomic.StoreUint64(&h.magic, boardMagic)
	}
	if atomic.LoadUint64(&b.head.magic) != boardMagic {
		return nil, errors.New("open board: the first rank of this host has not laid it out, or is another version of hora")
	}
	if err := b.head.checkLayout(seats, cfg); err != nil {
		return nil, err
	}
	b.lay(base, e)
	b.spin.calibrate(cfg)
	if b.plain = plainStores && cfg.Fence != nil && cfg.Fenced && !cfg.Oversubscribed; b.plain {
		atomic.StoreUint32(&b.me.plain, 1)
	}
	return b, nil
}

// lay sets the pointers to each area.
func (b *Board) lay(base unsafe.Pointer, e extent) {
	b.control = make([]*control, b.seats)
	b.describe = make([]*[2]description, b.seats)
	b.data = make([]unsafe.Pointer, b.seats)
	for i := range b.seats {
		b.control[i] = (*control)(unsafe.Add(base, e.control+i*int(unsafe.Sizeof(control{}))))
		b.describe[i] = (*[2]description)(unsafe.Add(base, e.describe+i*2*describeBytes))
		b.data[i] = unsafe.Add(base, e.slots+i*e.perSeat)
	}
	b.me = b.control[b.seat]
	b.progress = make([]*uint64, b.seats)
	for parity := range b.arrivals {
		b.arrivals[parity] = make([]*arrival, b.seats)
		for i, c := range b.control {
			b.arrivals[parity][i] = &c.arrive[parity]
			b.progress[i] = &c.progress
		}
	}
	b.sleepers = &b.me.sleepers
	at := func(from, to, class int) *ringHead {
		return (*ringHead)(unsafe.Add(base, e.rings+((from*b.seats+to)*2+class)*e.perRing))
	}
	for class := range b.rings {
		b.rings[class] = make([]ringPair, b.seats)
		for i := range b.seats {
			b.rings[class][i].out.lay(at(b.seat, i, class), b.cfg.RingBytes)
			b.rings[class][i].in.lay(at(i, b.seat, class), b.cfg.RingBytes)
		}
	}
}

// Seats is the number of ranks on this host, Seat this rank's place among them,
// Ranks the group rank of each seat (read only).
func (b *Board) Seats() int   { return b.seats }
func (b *Board) Seat() int    { return b.seat }
func (b *Board) Ranks() []int { return b.ranks }

// SlotBytes, PartBytes and Parts are the sizes that all seats share.
func (b *Board) SlotBytes() int { return b.cfg.SlotBytes }
func (b *Board) PartBytes() int { return b.cfg.PartBytes }
func (b *Board) Parts() int     { return b.cfg.Parts }

// Slot is a seat's memory for what it posts once per operation; parity is Seq&1.
// Only the seat's own rank writes to it.
func (b *Board) Slot(seat, parity int) []byte {
	n := b.cfg.SlotBytes
	return unsafe.Slice((*byte)(unsafe.Add(b.data[seat], (parity&1)*n)), n)
}

// Part is the i-th of a seat's pieces of memory for pipelined operations.
func (b *Board) Part(seat, i int) []byte {
	n := b.cfg.PartBytes
	return unsafe.Slice((*byte)(unsafe.Add(b.data[seat], 2*b.cfg.SlotBytes+i*n)), n)
}

// Registered finds the registered buffer of this rank that holds [ptr, ptr+n).
func (b *Board) Registered(ptr unsafe.Pointer, n int) (id uint32, offset uint64, ok bool) {
	if b.cfg.Regions == nil {
		return 0, 0, false
	}
	return b.cfg.Regions.Registered(ptr, n)
}

// Mapped is where this process maps [offset, offset+n) of a seat's buffer; nil if
// it does not.
func (b *Board) Mapped(seat int, id uint32, offset uint64, n int) unsafe.Pointer {
	if b.cfg.Regions == nil {
		return nil
	}
	return b.cfg.Regions.Mapped(seat, id, offset, n)
}

// Peek reads n bytes at an address of a seat's process, where the system allows it.
func (b *Board) Peek(seat int, dst unsafe.Pointer, at uintptr, n int) error {
	if b.cfg.Peek == nil {
		return errNoPeek
	}
	return b.cfg.Peek(seat, dst, at, n)
}

// Readable reports that the system reads this process's bytes at up to four addresses; it is asked once for all of
// them.
func (b *Board) Readable(at []uintptr) bool { return b.cfg.Readable != nil && b.cfg.Readable(at) }

// Poke writes n bytes to an address of a seat's process, where the system allows it.
func (b *Board) Poke(seat int, src unsafe.Pointer, at uintptr, n int) error {
	if b.cfg.Poke == nil {
		return errNoPeek
	}
	return b.cfg.Poke(seat, src, at, n)
}

// Large reports that memory of this process is known to lie on huge pages.
func (b *Board) Large(p unsafe.Pointer, n int) bool { return b.cfg.Large != nil && b.cfg.Large(p, n) }

// Count adds what an operation moved over the board, in bytes of payload.
func (b *Board) Count(sent, received int) {
	count(&b.traffic, uint64(sent), uint64(received))
}

// Traffic is what was counted so far.
func (b *Board) Traffic() Traffic {
	t := &b.traffic
	return Traffic{
		BytesSent: atomic.LoadUint64(&t[0]), BytesReceived: atomic.LoadUint64(&t[1]),
		MessagesSent: atomic.LoadUint64(&t[2]), MessagesReceived: atomic.LoadUint64(&t[3]),
	}
}
