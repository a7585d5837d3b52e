package collective

import (
	"errors"
	"time"

	"hora/transport"
)

// Config holds the knobs of a Comm. The zero value is right.
type Config struct {
	// Table overrides parts of the selection table; ParseTable states the grammar.
	// It must be the same on all ranks.
	Table string
	// Segment is the most bytes that one message of a segmented algorithm carries;
	// 0 means 256 KiB. Small tests set a few bytes to reach every multi-segment path.
	Segment int
	// Part is the most bytes that one step of a pipelined shared-memory algorithm
	// puts into a rank's part; 0 means the Board's own part size.
	Part int
	// Tune measures segment and part sizes for about 50 ms in New; rank 0 decides.
	// It is a collective operation: all ranks must set it alike.
	Tune bool
}

// A Comm runs the operations of one group, one at a time, for one rank. It is used
// by one goroutine at a time and owns its scratch memory.
type Comm struct{ mesh transport.Mesh }

// New makes a Comm over the group's links.
func New(m transport.Mesh, cfg Config) (*Comm, error) { return &Comm{mesh: m}, nil }

// Arrive does the header phase alone: it tells the ranks on this host that this one
// has come to the operation and waits up to budget for them. It is true when all are
// here, and always where no memory is shared. A negative budget waits without bound.
// Run continues where Arrive stopped; calling Arrive again goes on waiting.
func (c *Comm) Arrive(s transport.Stamp, call *Call, budget time.Duration) (bool, error) {
	return true, nil
}

// Run runs the whole operation, or what Arrive left of it, and returns when this
// rank's Recv is complete and its Send may be reused. A zero deadline means none.
func (c *Comm) Run(s transport.Stamp, call *Call, deadline time.Time) error {
	return errors.New("not yet")
}
