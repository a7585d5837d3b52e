package engine

import (
	"time"
	"unsafe"

	"hora/collective"
)

// Request is one operation as its caller asks for it. The views, counts and shape must
// stay alive and unchanged until the operation is done; the Request itself may be
// reused as soon as Run or Submit returns.
type Request struct {
	collective.Call

	// Name is what messages and, in a named group, the other ranks know it by. Named
	// groups need one; it is unique among the operations in flight.
	Name string

	// Counted says that Name counts the caller's calls, so that it does not come again.
	// Where it ends in a dot and a number, that of the next call differs in the number
	// alone; see serial.go. All ranks must set it alike.
	Counted bool

	// (Of the Call: where only the root knows counts, the others give an empty, non-nil
	// list, so that they know that blocks differ.)

	// Shape is the tensor's, for the comparison between ranks and for messages; nil
	// compares element counts only. The first dimension of an allgather or alltoall
	// may differ between ranks.
	Shape []int

	// Device is where the caller's tensor lives: 0 the host, 1+i accelerator i. All
	// ranks must agree on host or accelerator.
	Device int

	// Timeout ends this operation, and the group with it; 0 means the group's
	// OpTimeout.
	Timeout time.Duration

	// Tag tells sends between the same two ranks apart.
	Tag int

	// Alloc, when set, makes the result's memory once its size is known, for an
	// allgather or alltoall whose ranks do not know each other's counts: Recv and
	// RecvCounts stay empty and Group.Result tells both. All ranks must set it alike.
	// It is called on the thread that runs the operation; nil from it fails the group.
	Alloc func(bytes int) unsafe.Pointer

	// of and at are the length of the grouped call that this is a part of, and its place
	// there; 0 for a call of its own. The engine sets them.
	of, at int32
}

// AnyRank as the Peer of a RecvFrom takes the oldest message with its tag from whoever
// sent it; Group.Source tells who did.
const AnyRank = -1

// timeout returns how long r may take, 0 for ever.
func (r *Request) timeout(cfg *Config) time.Duration {
	if r.Timeout > 0 {
		return r.Timeout
	}
	return cfg.OpTimeout
}

// pair reports an operation between two ranks, which has no place in the group's order.
func (r *Request) pair() bool {
	return r.Kind == collective.SendTo || r.Kind == collective.RecvFrom
}

// bytes returns the size of what travels, for events.
func (r *Request) bytes() int64 {
	return int64(max(r.Send.Count, r.Recv.Count)) * int64(r.Type.Size())
}

// operator returns the reduction's name, empty where nothing is reduced.
func (r *Request) operator() string {
	if r.Kind.Reduces() {
		return r.Op.String()
	}
	return ""
}
