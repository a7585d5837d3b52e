package engine

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"hora/collective"
)

const (
	cellBytes = 16
	maxCells  = 1 << 16 // operations in flight in one group
	noCell    = 0       // cell 0 is never handed out, so that the zero Ticket stands for nothing

	cellDone   = 1
	cellFailed = 2
	cellStep   = 4 // between the upper halves of a cell's tickets, so that done and failed never repeat one
)

// cells are the tickets of one group. The state words lie outside Go's heap, where C
// may read them; everything else is here. Group.mu guards all of it except the words.
type cells struct {
	mem  []byte // mapped; maxCells cells, touched as they are used
	all  []*cell
	free []uint32
}

// cell is the Go side of one ticket.
type cell struct {
	index   uint32
	half    uint32 // upper half of the present ticket
	left    int32  // operations that are not done
	dropped bool   // released before it was done
	inUse   bool
	err     error
	result  collectiveResult

	// What it is waited for: the name's key in a named group, kind and name.
	key     uint64
	name    string
	counted bool // Request.Counted
	kind    collective.Kind
}

// collectiveResult is what an operation with Request.Alloc or AnyRank found.
type collectiveResult struct {
	ptr    unsafe.Pointer
	count  int
	counts []int
	source int
}

func newCells() (*cells, error) {
	mem, err := mapMemory(maxCells * cellBytes)
	if err != nil {
		return nil, err
	}
	return &cells{mem: mem, all: make([]*cell, 1, 64)}, nil
}

// take makes a ticket for n operations; nil when too many are in flight.
func (c *cells) take(n int) *cell {
	var e *cell
	if k := len(c.free); k > 0 {
		e = c.all[c.free[k-1]]
		c.free = c.free[:k-1]
	} else {
		if len(c.all) == maxCells {
			return nil
		}
		e = &cell{index: uint32(len(c.all))}
		c.all = append(c.all, e)
	}
	e.half += cellStep
	if e.half >= 1<<31 {
		e.half = cellStep // a ticket is a positive int64 in C
	}
	e.left, e.dropped, e.inUse, e.err, e.key = int32(n), false, true, nil, 0
	e.result.ptr, e.result.count, e.result.counts, e.result.source = nil, 0, e.result.counts[:0], 0
	atomic.StoreUint32(c.state(e.index), e.half)
	return e
}

// left returns how many more tickets there are.
func (c *cells) left() int { return len(c.free) + maxCells - len(c.all) }

func (e *cell) ticket() Ticket { return Ticket(e.half)<<32 | Ticket(e.index) }

// find returns the cell that t stands for, nil when t was released.
func (c *cells) find(t Ticket) *cell {
	i := uint32(t)
	if i == noCell || int(i) >= len(c.all) {
		return nil
	}
	if e := c.all[i]; e.inUse && !e.dropped && e.half == uint32(t>>32) {
		return e
	}
	return nil
}

func (c *cells) release(e *cell) {
	if e.left > 0 {
		e.dropped = true
		return
	}
	e.inUse = false
	c.free = append(c.free, e.index)
}

// finish counts one operation of e as done and reports whether it was the last. The
// caller wakes Go's waiters.
func (c *cells) finish(e *cell, err error) bool {
	if err != nil && e.err == nil {
		e.err = err
	}
	e.left--
	if e.left > 0 {
		return false
	}
	word := c.state(e.index)
	if e.err == nil {
		atomic.StoreUint32(word, e.half+cellDone)
	} else {
		atomic.StoreUint32(word, e.half+cellFailed)
	}
	if atomic.LoadUint32(c.sleepers(e.index)) != 0 {
		wakeAll(word)
	}
	if e.dropped {
		e.inUse = false
		c.free = append(c.free, e.index)
	}
	return true
}

func (c *cells) state(i uint32) *uint32 {
	return (*uint32)(unsafe.Pointer(&c.mem[int(i)*cellBytes]))
}

func (c *cells) sleepers(i uint32) *uint32 {
	return (*uint32)(unsafe.Pointer(&c.mem[int(i)*cellBytes+4]))
}

func mapMemory(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}
