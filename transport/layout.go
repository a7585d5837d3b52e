package transport

import (
	"fmt"
	"unsafe"
)

// The layout of a board's memory, the same in every process:
//
//	one page    head: sizes, the mismatch word, the failure record
//	per seat    control: flags, each on lines of its own
//	per seat    two descriptions (Explain)
//	per seat    two slots, then the parts
//	per pair    two rings: operations of the group, operations of the pair
//
// Words that others poll are 128 bytes apart: processors fetch lines in pairs.
// Every word starts at zero; nothing is ever reset.
const (
	pageBytes     = 4096
	boardMagic    = 0x61726f68_00000003 // "hora", layout 3
	maxSeats      = 1024
	describeBytes = MaxDescription + 64
)

// head is the first page.
type head struct {
	magic     uint64 // stored last
	seats     uint32
	slotBytes uint32
	partBytes uint32
	parts     uint32
	ringBytes uint32
	_         [128 - 28]byte

	// mismatch is Seq<<10 | seat of the last operation that somebody explains. It
	// only grows.
	mismatch uint64
	_        [120]byte

	failure record
}

// arrival is one seat's header for one operation: one cache line, and a second one for
// payload that the first has no room for.
type arrival struct {
	word   uint64 // Seq<<1 | wait bit; published last
	print  uint64
	inline [InlineBytes]byte
}

// control is what one seat tells the others.
type control struct {
	arrive   [2]arrival // by parity of Seq
	progress uint64     // Seq<<24 | phase<<1 | wait bit
	_        [120]byte

	door uint32 // 1 while the seat sleeps for its rings: see idle
	_    [60]byte
	left uint32 // 1 after an orderly leave
	cpu  uint32 // 1 + processor on which the seat last went to sleep, 0 unknown
	out  uint32 // 1 once the seat's driver touches no other's memory any more: see Withdraw
	_    [52]byte

	// A line that changes only when somebody goes to sleep: the seat reads it after
	// everything that it publishes.
	plain    uint32 // 1: the seat publishes by plain stores, see publish
	sleepers uint32 // seats that are about to sleep, or sleep, on a word of this seat
	_        [120]byte

	probe struct { // what a seat that has waited for long is waiting in
		version    uint64 // odd while being written
		seq, print uint64
	}
	_ [104]byte
}

// description is one seat's text in Explain.
type description struct {
	word uint64 // Seq<<1 | wait bit
	n    uint32
	_    [52]byte
	text [MaxDescription]byte
}

// ringHead is the two ends of a ring: bytes ever written and ever read.
type ringHead struct {
	written uint64
	_       [120]byte
	read    uint64
	_       [120]byte
}

// extent is where each area starts.
type extent struct {
	control, describe, slots, rings, end int
	perSeat                              int // slots and parts of one seat
	perRing                              int
}

func (c BoardConfig) withDefaults(seats int) BoardConfig {
	if c.SlotBytes <= 0 {
		c.SlotBytes = 64 << 10
	}
	if c.PartBytes <= 0 {
		c.PartBytes = 256 << 10
	}
	if c.Parts <= 0 {
		c.Parts = 4
	}
	if c.RingBytes <= 0 {
		c.RingBytes = 128 << 10
		if seats > 8 { // there are seats² rings
			c.RingBytes = 32 << 10
		}
	}
	c.SlotBytes = alignUp(c.SlotBytes, pageBytes)
	c.PartBytes = alignUp(c.PartBytes, pageBytes)
	size := pageBytes
	for size < c.RingBytes {
		size *= 2
	}
	c.RingBytes = size
	return c
}

func alignUp(n, to int) int { return (n + to - 1) / to * to }

func (c BoardConfig) extent(seats int) extent {
	var e extent
	e.control = pageBytes
	e.describe = alignUp(e.control+seats*int(unsafe.Sizeof(control{})), pageBytes)
	e.slots = e.describe + seats*2*describeBytes
	e.perSeat = 2*c.SlotBytes + c.Parts*c.PartBytes
	e.rings = e.slots + seats*e.perSeat
	e.perRing = int(unsafe.Sizeof(ringHead{})) + c.RingBytes
	e.end = alignUp(e.rings+seats*seats*2*e.perRing, pageBytes)
	return e
}

// BoardSize is the length of the memory that NewBoard needs.
func BoardSize(seats int, cfg BoardConfig) int {
	return cfg.withDefaults(seats).extent(seats).end
}

// BoardHotSize is the length of the front of that memory which operations touch
// all the time; the rings behind it are touched only by pairs that talk.
func BoardHotSize(seats int, cfg BoardConfig) int {
	return cfg.withDefaults(seats).extent(seats).rings
}

// checkLayout refuses memory that was laid out otherwise; the first seat's sizes
// are what holds.
func (h *head) checkLayout(seats int, c BoardConfig) error {
	for _, f := range []struct {
		name       string
		mine, here uint32
	}{
		{"ranks on this host", uint32(seats), h.seats},
		{"slot bytes", uint32(c.SlotBytes), h.slotBytes},
		{"part bytes", uint32(c.PartBytes), h.partBytes},
		{"parts", uint32(c.Parts), h.parts},
		{"ring bytes", uint32(c.RingBytes), h.ringBytes},
	} {
		if f.mine != f.here {
			return fmt.Errorf("open board: %s is %d here and %d at the first rank of this host; configure all ranks alike", f.name, f.mine, f.here)
		}
	}
	return nil
}

func littleEndian() bool {
	one := uint16(1)
	return *(*byte)(unsafe.Pointer(&one)) == 1
}

// low is the half of a word that carries its wait bit: what a futex compares.
func low(p *uint64) *uint32 { return (*uint32)(unsafe.Pointer(p)) }
