package transport

import (
	"time"
	"unsafe"
)

// InlineBytes is the payload that travels in an arrival's own cache line.
const InlineBytes = 48

// Waiter puts a rank to sleep until a word in shared memory changes, with the
// meaning of a futex: Wait returns at once if *word is not old, else after Wake,
// after timeout or for no reason. A Waiter never returns early often enough to
// cost more than a sleep would.
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
