package hora

import (
	"context"
	"time"
	"unsafe"
)

// Group is a set of ranks that do operations together. The caller's order is the order
// unless it was made with Named. Methods may be called from any goroutine.
type Group struct{}

// Rank is this process's place in the group.
func (g *Group) Rank() int { return 0 }

// Size is the number of ranks of the group.
func (g *Group) Size() int { return 0 }

// Ranks are the members' ranks in the world, ascending.
func (g *Group) Ranks() []int { return nil }

// Name is the group's in messages.
func (g *Group) Name() string { return "" }

// Run does r on the caller's thread when nothing is queued before it. With a budget ≥ 0
// it gives up waiting for others after that long: the operation goes on and t stands
// for it. A negative budget waits to the end.
func (g *Group) Run(r *Request, budget time.Duration) (t Ticket, done bool, err error) {
	return 0, true, nil
}

// Submit queues rs: tickets has one element per request, or one for all, or none. In a
// Named group the requests of one call are released together or not at all.
func (g *Group) Submit(rs []Request, tickets []Ticket) error { return nil }

// Wait blocks until t is done or timeout has passed (negative: no bound) and then
// releases it.
func (g *Group) Wait(t Ticket, timeout time.Duration) (done bool, err error) { return true, nil }

// Poll reports whether t is done and keeps it.
func (g *Group) Poll(t Ticket) (done bool, err error) { return true, nil }

// Release gives t up; the operation goes on.
func (g *Group) Release(t Ticket) {}

// Cancel takes t back if it has not begun.
func (g *Group) Cancel(t Ticket) bool { return false }

// Cell is the address of t's two words for waiting without Go; see engine/ticket.go.
func (g *Group) Cell(t Ticket) unsafe.Pointer { return nil }

// Join says that this rank has no more data (Named groups): it gives zeros to the
// others' allreduces until all have joined, and returns the rank that came last. With a
// timeout ≥ 0 it may return done = false; call it again then.
func (g *Group) Join(timeout time.Duration) (last int, done bool, err error) { return 0, true, nil }

// Buffer is memory that all ranks of this host map: operations on it copy nothing. It
// is collective: all ranks of the group ask for the same size in the same order. It
// lives until the group is closed.
func (g *Group) Buffer(ctx context.Context, bytes int) ([]byte, error) { return nil, nil }

// Register maps size bytes of the shared descriptor fd, which lie at ptr in this
// process, on the other ranks of the host. Collective, as Buffer is.
func (g *Group) Register(ctx context.Context, ptr unsafe.Pointer, size int, fd int) error { return nil }

// Counters are this group's bytes and messages by link.
func (g *Group) Counters() Counters { return Counters{} }

// Fail ends pending and later operations of the group on this rank with err.
func (g *Group) Fail(err error) {}

// Close gives the group up on this rank. It is idempotent.
func (g *Group) Close() error { return nil }
