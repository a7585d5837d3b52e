package engine

import "hora/collective"

// Request is one operation as its caller asks for it. The views, counts and shape must
// stay alive and unchanged until the operation is done; the Request itself may be
// reused as soon as Run or Submit returns.
type Request struct {
	collective.Call

	// Name is what messages and, in a named group, the other ranks know it by. Named
	// groups need one; it is unique among the operations in flight.
	Name string

	// Shape is the tensor's, for the comparison between ranks and for messages; nil
	// compares element counts only. The first dimension of an allgather or alltoall
	// may differ between ranks.
	Shape []int

	// Device is where the caller's tensor lives: 0 the host, 1+i accelerator i. All
	// ranks must agree on host or accelerator.
	Device int
}
