package transport

import (
	"time"
	"unsafe"
)

// BoardConfig is what the ranks of one host agree on about their board (the sizes)
// and what each brings (the rest). The zero value of every field has a meaning.
type BoardConfig struct {
	Ranks []int  // group rank of each seat, ascending; nil: seat i is rank i
	Host  string // for error texts

	SlotBytes int // one-shot slot, two per seat; 0: 64 KiB
	PartBytes int // one pipelined part; 0: 256 KiB
	Parts     int // parts per seat; 0: 4
	RingBytes int // one ring, two per ordered pair; 0: 128 KiB, above 8 seats 32 KiB

	Waiter  Waiter // nil: poll and yield only, never sleep
	Regions Region // nil: nothing is registered

	// Peek reads n bytes at an address of a seat's process; nil: there is no such means.
	// ErrGone says that the process has ended.
	Peek func(seat int, dst unsafe.Pointer, at uintptr, n int) error
	// Readable reports that Peek could read a byte at each of up to four addresses of this process.
	Readable func(at []uintptr) bool
	// Poke writes there, likewise.
	Poke func(seat int, src unsafe.Pointer, at uintptr, n int) error
	// Large says that memory of this process lies on huge pages; nil: it is not known.
	Large func(p unsafe.Pointer, n int) bool

	// PeerTimeout bounds how long Explain waits for a rank; 0: 10 s.
	PeerTimeout time.Duration
	// Spin is how long a wait polls before it sleeps; 0: 50 µs, negative: not at all.
	Spin time.Duration
	// Oversubscribed says that ranks share processors: every wait polls 20 times,
	// yields 20 times, then sleeps.
	Oversubscribed bool
	// Fence makes every processor that runs a process with Fenced set order its memory
	// accesses, now; nil: there is no such means.
	Fence func()
	// Fenced says that others' Fence reaches this process.
	Fenced bool
	// CPU is the processor this thread runs on; nil: unknown. With it, a wait that
	// finds its peer on the same processor behaves as if oversubscribed.
	CPU func() int
	// Failure is asked by waits that have gone slow, at least every 50 ms: what the
	// owner of the memory knows about lost ranks. nil: nothing.
	Failure func() error
	// Lost says of a seat what Failure says of all. nil: of none.
	Lost func(seat int) bool
}

func (c *BoardConfig) peerTimeout() time.Duration {
	if c.PeerTimeout > 0 {
		return c.PeerTimeout
	}
	return 10 * time.Second
}
