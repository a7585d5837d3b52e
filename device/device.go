// Package device says what hora needs of an accelerator, as interfaces: streams and
// events, copies between its memory and the host's, and a communicator of NCCL's shape.
// It owns the two things about them that are plain arithmetic: how a tensor is cut to
// pass through host memory (Staging), and which operations NCCL can do (Native).
//
// It never touches device memory, loads no library and starts no goroutines; who drives
// an accelerator implements the interfaces (cmd/libhora, by dlopen).
package device

// Ptr is an address of device or host memory, as the accelerator numbers it.
type Ptr uint64

// Stream is an accelerator's queue of work; 0 is its default stream.
type Stream uint64

// Event is a place in a stream that others can wait for.
type Event uint64

// Queue is one accelerator as one thread sees it: its device is already the thread's.
type Queue interface {
	// Copy queues a copy on s; n bytes stay untouched until s has come to it.
	Copy(to, from Ptr, n int, s Stream) error
	// Record marks the present end of s as e.
	Record(e Event, s Stream) error
	// Await makes s wait until what e marks has ended. The caller does not wait.
	Await(s Stream, e Event) error
	// Ended blocks the caller until what e marks has ended; it bounds the wait.
	Ended(e Event) error
}

// Communicator is NCCL's shape: collectives between the accelerators of several ranks,
// queued on a stream. Counts are elements; types and operators are NCCL's numbers.
// Between Start and End calls are one operation.
type Communicator interface {
	Start() error
	End() error
	AllReduce(send, recv Ptr, count int, t, op int, s Stream) error
	Reduce(send, recv Ptr, count int, t, op, root int, s Stream) error
	Broadcast(send, recv Ptr, count int, t, root int, s Stream) error
	AllGather(send, recv Ptr, count int, t int, s Stream) error
	ReduceScatter(send, recv Ptr, count int, t, op int, s Stream) error
	Send(send Ptr, count int, t, peer int, s Stream) error
	Recv(recv Ptr, count int, t, peer int, s Stream) error
	// Scaled makes an operator that multiplies by factor before it adds; it is given
	// back by drop once what uses it has been queued.
	Scaled(factor float64, t int) (op int, drop func(), err error)
}
