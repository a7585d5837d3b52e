package transport

import "time"

// BoardConfig is what the ranks of one host agree on about their board (the sizes)
// and what each brings (the rest). The zero value of every field has a meaning.
type BoardConfig struct {
	Ranks []int  // group rank of each seat, ascending; nil: seat i is rank i
	Host  string // for error texts

	SlotBytes int // one-shot slot, two per seat; 0: 64 KiB
	PartBytes int // one pipelined part; 0: 128 KiB
	Parts     int // parts per seat; 0: 4

	Waiter      Waiter // nil: spin and yield only, never sleep
	Regions     Region // nil: nothing is registered
	PeerTimeout time.Duration
	// Spin is the time that a wait polls before it yields or sleeps; 0: 30 µs.
	// Oversubscribed makes every wait poll 20 times, yield 20 times, then sleep.
	Spin           time.Duration
	Oversubscribed bool
	// Stacked reports whether that seat last ran on the processor this thread is on
	// now (then polling only keeps it from running). nil: never.
	Stacked func(seat int) bool
	// Failure is asked on the slow path, at least every 50 ms of a wait: what the
	// owner of the memory knows about lost peers.
	Failure func() error
}
