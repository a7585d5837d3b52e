package engine

import (
	"time"

	"hora/transport"
)

// Group is one rank's side of a set of ranks that do operations together. All methods
// may be called from any goroutine; the order of an ordered group is the order in which
// Run and Submit are entered.
type Group struct{}

// New makes a group over m, which it owns from then on.
func New(m transport.Mesh, cfg Config) *Group { return &Group{} }

// Run does r and returns when it is done. When nothing is queued before it, it runs on
// the caller's thread. If budget is not negative and the other ranks have not come
// after that long, the operation goes on without the caller, who gets a ticket and
// done = false; the budget also bounds the time spent behind queued operations.
func (g *Group) Run(r *Request, budget time.Duration) (t Ticket, done bool, err error) {
	return 0, true, nil
}

// Submit queues rs and returns at once. tickets has one element per request or a single
// one for all of them, or is empty when nobody will wait. In a named group the requests
// of one Submit are released together or not at all.
func (g *Group) Submit(rs []Request, tickets []Ticket) error { return nil }

// Join says that this rank has no more data: until every rank has joined, it takes part
// in the others' allreduces with zeros. It returns the rank that joined last. Only named
// groups have it.
func (g *Group) Join(timeout time.Duration) (last int, done bool, err error) { return 0, true, nil }

// Rank is this rank's place in the group.
func (g *Group) Rank() int { return 0 }

// Size is the number of ranks of the group.
func (g *Group) Size() int { return 1 }

// Counters are the bytes and messages moved by link.
func (g *Group) Counters() transport.Counters { return transport.Counters{} }

// Fail ends every pending and later operation with err.
func (g *Group) Fail(err error) {}

// Close waits for nothing: what is pending fails with ErrClosed. It joins the group's
// goroutines and closes the mesh. It is idempotent.
func (g *Group) Close() error { return nil }
