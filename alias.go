package hora

import (
	"hora/collective"
	"hora/engine"
	"hora/event"
	"hora/internal/secret"
	"hora/tensor"
	"hora/transport"
)

// The types of the packages below that a caller of this one needs, so that one import
// is enough.
type (
	// Request is one operation for Group.Run and Group.Submit.
	Request = engine.Request
	// Call is the part of a Request that the collective sees.
	Call = collective.Call
	// Kind says which operation a Call is.
	Kind = collective.Kind
	// Ticket stands for a submitted operation.
	Ticket = engine.Ticket
	// Op is a reduction operator.
	Op = tensor.Op
	// DType is the type of an element.
	DType = tensor.DType
	// View is a tensor that somebody else owns.
	View = tensor.View
	// Element is the set of Go types the typed functions take.
	Element = tensor.Element
	// Counters are bytes and messages by link.
	Counters = transport.Counters
	// Secret is what every connection of a job proves.
	Secret = secret.Secret
	// Sink hands events to listeners.
	Sink = event.Sink

	// PeerLostError says which rank is gone and why.
	PeerLostError = transport.PeerLostError
	// DeadlineError says that an operation took longer than its deadline.
	DeadlineError = transport.DeadlineError
	// MismatchError says that ranks asked for different things.
	MismatchError = engine.MismatchError
	// InvalidError says that a request can not be right whatever others do.
	InvalidError = engine.InvalidError
	// DeadlockError says that ranks waited for each other for ever.
	DeadlockError = engine.DeadlockError
	// OperationError says which operation a failure met.
	OperationError = engine.OperationError
)

// The reduction operators.
const (
	Sum     = tensor.Sum
	Average = tensor.Average
	Product = tensor.Product
	Min     = tensor.Min
	Max     = tensor.Max
	And     = tensor.And
	Or      = tensor.Or
	Xor     = tensor.Xor
	Adasum  = tensor.Adasum
)

// The kinds of operation, for a Request.
const (
	KindAllreduce     = collective.Allreduce
	KindReduce        = collective.Reduce
	KindBroadcast     = collective.Broadcast
	KindAllgather     = collective.Allgather
	KindReduceScatter = collective.ReduceScatter
	KindAlltoall      = collective.Alltoall
	KindGather        = collective.Gather
	KindScatter       = collective.Scatter
	KindBarrier       = collective.Barrier
	KindSend          = collective.SendTo
	KindRecv          = collective.RecvFrom
)

// ErrClosed and ErrCancelled are what operations end with that their own rank gave up.
var (
	ErrClosed    = engine.ErrClosed
	ErrCancelled = engine.ErrCancelled
)
