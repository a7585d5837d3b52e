package collective

import (
	"fmt"

	"hora/tensor"
)

// Kind says which operation a Call is. The numbers are part of the C ABI and of
// fingerprints: append, never renumber.
type Kind uint8

// The operations.
const (
	Allreduce Kind = iota + 1
	Reduce
	Broadcast
	Allgather
	ReduceScatter
	Alltoall
	Gather
	Scatter
	Barrier
	SendTo
	RecvFrom
	kindEnd
)

var kindNames = [kindEnd]string{
	"", "allreduce", "reduce", "broadcast", "allgather", "reducescatter",
	"alltoall", "gather", "scatter", "barrier", "send", "recv",
}

// String is the operation's name in lower case.
func (k Kind) String() string {
	if k == 0 || k >= kindEnd {
		return fmt.Sprintf("operation(%d)", uint8(k))
	}
	return kindNames[k]
}

// ParseKind finds the operation with that name.
func ParseKind(name string) (Kind, error) {
	for i := Allreduce; i < kindEnd; i++ {
		if kindNames[i] == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("parse operation: none is called %q", name)
}

// Kinds lists every operation in numeric order.
func Kinds() []Kind {
	all := make([]Kind, 0, kindEnd-1)
	for k := Allreduce; k < kindEnd; k++ {
		all = append(all, k)
	}
	return all
}

// Rooted reports an operation that has a root.
func (k Kind) Rooted() bool {
	return k == Reduce || k == Broadcast || k == Gather || k == Scatter
}

// Reduces reports an operation that adds elements.
func (k Kind) Reduces() bool { return k == Allreduce || k == Reduce || k == ReduceScatter }

// A Call is one rank's part in one operation. Its views must stay alive and
// unchanged until Run returns; Run writes only Recv.
//
//	            Send                         Recv
//	Allreduce   n elements                   n; may be Send itself (in place)
//	Reduce      n                            n on the root (may be Send); ignored elsewhere
//	Broadcast   n on the root; else ignored  n; on the root empty or Send itself
//	Allgather   my block                     all blocks in rank order; Send may be my block of it
//	ReduceScatter  all blocks in rank order  my block; may lie where my block lies in Send
//	Alltoall    a block for each rank        a block from each rank; must not overlap Send
//	Gather      my block                     all blocks, on the root
//	Scatter     all blocks, on the root      my block
//	SendTo      what Peer gets               —
//	RecvFrom    —                            what Peer sends
//
// Blocks are equal unless counts are given: RecvCounts (Allgather, ReduceScatter:
// equal on all ranks; Gather: on the root), SendCounts (Scatter: on the root), both
// for Alltoall, in elements.
type Call struct {
	Kind Kind
	Op   tensor.Op
	Type tensor.DType
	Root int // of rooted operations
	Peer int // of SendTo and RecvFrom

	// Pre and Post are factors before and after the reduction; 0 means 1.
	Pre, Post float64

	Send, Recv             tensor.View
	SendCounts, RecvCounts []int

	// Starts gives, for Adasum over several tensors in one buffer, the element at
	// which each begins, ascending from 0; nil means one tensor.
	Starts []int

	// Agree asks that over message links all ranks' fingerprints are compared before
	// a byte of Recv is written, as the header phase on shared memory always does.
	// Rooted operations do so anyway.
	Agree bool
}
