package engine

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// Ticket stands for a submitted operation, or for several submitted together. It is
// valid from Submit until Wait has said done or Release was called. The zero Ticket
// stands for nothing and is always done.
type Ticket uint64

// Each ticket has a cell in memory outside Go's heap that never moves while the group
// lives, so that C code can test and wait without the Go scheduler:
//
//	offset 0  uint32  state: the upper half of the ticket while pending,
//	                  that + 1 when it succeeded, that + 2 when it failed
//	offset 4  uint32  number of C threads that sleep on state
//
// A waiter adds 1 to the second word, calls futex(FUTEX_WAIT|FUTEX_PRIVATE_FLAG) on the
// first with the upper half of its ticket, subtracts 1, and looks again. Whoever
// completes stores state and, if the second word is not 0, wakes all. The cell is
// reused after the ticket was released, by a ticket with another upper half.

// Cell returns the address of t's cell: the same base for all tickets + 16 × the lower half
// of t.
func (g *Group) Cell(t Ticket) unsafe.Pointer {
	return unsafe.Pointer(g.cells.state(uint32(t) % maxCells))
}

// Poll reports whether t is done, without releasing it.
func (g *Group) Poll(t Ticket) (done bool, err error) {
	if t == 0 {
		return true, nil
	}
	if atomic.LoadUint32(g.cells.state(uint32(t)%maxCells)) == uint32(t>>32) {
		return false, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.cells.find(t)
	if e == nil {
		return true, errReleased
	}
	return e.left == 0, e.err
}

// Wait blocks until t is done or timeout has passed; a negative timeout means no bound,
// 0 is a look. When done it releases t and returns the operation's error; a ticket of
// several operations gives the first error that occurred.
func (g *Group) Wait(t Ticket, timeout time.Duration) (done bool, err error) {
	if t == 0 {
		return true, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.cells.find(t)
	if e == nil {
		return true, errReleased
	}
	if e.left > 0 && timeout != 0 {
		g.awaited(e)
		w := g.sleeper(timeout)
		for e.left > 0 && !w.late {
			g.done.Wait()
		}
		g.awake(w)
	}
	if e.left > 0 {
		return false, nil
	}
	err = e.err
	g.cells.release(e)
	return true, err
}

// Await blocks until t is done and returns its error, without releasing it.
func (g *Group) Await(t Ticket) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.cells.find(t)
	if e == nil {
		return errReleased
	}
	g.awaited(e)
	for e.left > 0 {
		g.done.Wait()
	}
	return e.err
}

// Result returns what the operation behind t with Request.Alloc received: where Alloc put
// it and how many elements came from each rank. It appends to counts. It is valid from
// done until t is released.
func (g *Group) Result(t Ticket, counts []int) (ptr unsafe.Pointer, count int, all []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.cells.find(t)
	if e == nil || e.left > 0 {
		return nil, 0, counts
	}
	return e.result.ptr, e.result.count, append(counts, e.result.counts...)
}

// Source returns the rank that the message behind t came from. It is valid from done until t
// is released.
func (g *Group) Source(t Ticket) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.cells.find(t)
	if e == nil || e.left > 0 {
		return AnyRank
	}
	return e.result.source
}

// Release gives t up without waiting: the operation goes on and its result is dropped.
func (g *Group) Release(t Ticket) {
	g.mu.Lock()
	if e := g.cells.find(t); e != nil {
		g.cells.release(e)
	}
	g.mu.Unlock()
}

// sleeper is the timer of one Wait, kept for the next.
type sleeper struct {
	timer *time.Timer
	late  bool // guarded by Group.mu
}

// sleeper arms a timer that wakes the waiters of the group. Group.mu is held.
func (g *Group) sleeper(timeout time.Duration) *sleeper {
	if timeout < 0 {
		return &g.patient
	}
	var w *sleeper
	if k := len(g.sleepers); k > 0 {
		w = g.sleepers[k-1]
		g.sleepers = g.sleepers[:k-1]
		w.late = false
		w.timer.Reset(timeout)
		return w
	}
	w = new(sleeper)
	w.timer = time.AfterFunc(timeout, func() {
		g.mu.Lock()
		w.late = true
		g.mu.Unlock()
		g.done.Broadcast()
	})
	return w
}

// awake puts a sleeper back. A timer that has fired and not yet run would make the next
// user late, so only one that could be stopped, or has run, is kept.
func (g *Group) awake(w *sleeper) {
	if w == &g.patient {
		return
	}
	if w.timer.Stop() || w.late {
		g.sleepers = append(g.sleepers, w)
	}
}
