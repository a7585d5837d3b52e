package engine

import (
	"fmt"
	"sync"
	"sync/atomic"

	"hora/collective"
	"hora/transport"
)

// view is where this rank is, for the watch and for ranks that ask. The turn's holder
// writes it once per operation; everybody else reads. Operations follow each other within
// half a microsecond, so what changes with each is noted without a lock or an exchange.
type view struct {
	finished uint64 // number of the last operation that has ended, rounds of names included
	now      uint64 // seq<<8 | kind of the present operation
	before   uint64 // and of the one before it

	mu         sync.Mutex // guards what follows; the turn's holder, who alone writes it, reads without
	name, last string     // of the present operation and of the one before
	pack, pair int        // further tensors that travel with them
}

// place is one operation as messages name it.
type place struct {
	seq  uint64
	kind collective.Kind
	name string
	pack int // further tensors that travel with it
}

func (p place) String() string {
	switch {
	case p.seq == 0:
		return ""
	case p.name == "":
		return fmt.Sprintf("%s (operation %d)", p.kind, p.seq)
	case p.pack > 0:
		return fmt.Sprintf("%s %s and %d more (operation %d)", p.kind, p.name, p.pack, p.seq)
	}
	return fmt.Sprintf("%s %s (operation %d)", p.kind, p.name, p.seq)
}

// begin notes an operation that starts now. The turn is held.
func (v *view) begin(seq uint64, kind collective.Kind, name string) {
	renamed := v.name != name || v.last != name || v.pack|v.pair != 0
	if renamed {
		v.mu.Lock()
		v.last, v.pair = v.name, v.pack
		v.name, v.pack = name, 0
	}
	transport.Note(&v.before, v.now)
	transport.Note(&v.now, seq<<8|uint64(kind))
	if renamed {
		v.mu.Unlock()
	}
}

// packed notes how many more tensors travel with the present operation. The turn is held.
func (v *view) packed(more int) {
	v.mu.Lock()
	v.pack = more
	v.mu.Unlock()
}

// end notes that operation seq has ended. The turn is held.
func (v *view) end(seq uint64) { transport.Note(&v.finished, seq) }

// ended returns the number of the last operation that has.
func (v *view) ended() uint64 { return atomic.LoadUint64(&v.finished) }

// read returns the operation in progress, if any, and the last finished one.
func (v *view) read() (busy bool, present, last place) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now, before := atomic.LoadUint64(&v.now), atomic.LoadUint64(&v.before)
	if later := atomic.LoadUint64(&v.now); later != now {
		now, before = later, now
	}
	present = place{seq: now >> 8, kind: collective.Kind(now), name: v.name, pack: v.pack}
	if v.ended() >= present.seq {
		return false, place{}, present
	}
	if before == now { // the next is about to be noted
		return true, present, place{}
	}
	return true, present, place{seq: before >> 8, kind: collective.Kind(before), name: v.last, pack: v.pair}
}
