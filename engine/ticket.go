package engine

import (
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

// Cell is the address of t's cell: base + 16 × lower half of t.
func (g *Group) Cell(t Ticket) unsafe.Pointer { return nil }

// Poll reports whether t is done, without releasing it.
func (g *Group) Poll(t Ticket) (done bool, err error) { return false, nil }

// Wait blocks until t is done or timeout has passed; a negative timeout means no bound,
// 0 is a look. When done it releases t and returns the operation's error; a ticket of
// several operations gives the first error in the order of submission.
func (g *Group) Wait(t Ticket, timeout time.Duration) (done bool, err error) { return false, nil }

// Release gives t up without waiting: the operation goes on and its result is dropped.
func (g *Group) Release(t Ticket) {}

// Cancel takes back what t stands for if none of it has begun; it then completes with
// ErrCancelled. In a group whose other ranks have begun it, they wait until it is
// submitted again.
func (g *Group) Cancel(t Ticket) bool { return false }
