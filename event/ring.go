package event

import "sync"

// Ring keeps the newest operations in memory that was allocated once. It is a
// [Listener]; its writer never waits for a reader and allocates nothing.
type Ring struct {
	mu   sync.Mutex // guards ops and next
	ops  []Operation
	next uint64 // operations ever written
}

// NewRing keeps the newest n operations, at least one.
func NewRing(n int) *Ring { return &Ring{ops: make([]Operation, max(n, 1))} }

// Operation stores a copy of o over the oldest one.
func (r *Ring) Operation(o *Operation) {
	r.mu.Lock()
	r.ops[r.next%uint64(len(r.ops))] = *o
	r.next++
	r.mu.Unlock()
}

// Event ignores everything that is not an operation.
func (r *Ring) Event(Event) {}

// Drain copies into dst the operations written since the cursor, oldest first, and
// returns how many, the new cursor and how many were overwritten before they were read.
func (r *Ring) Drain(dst []Operation, cursor uint64) (n int, next, missed uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := uint64(len(r.ops))
	if r.next > cursor+size {
		missed = r.next - size - cursor
		cursor = r.next - size
	}
	for n < len(dst) && cursor < r.next {
		dst[n] = r.ops[cursor%size]
		n++
		cursor++
	}
	return n, cursor, missed
}
