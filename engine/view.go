package engine

import (
	"fmt"
	"sync"
	"sync/atomic"

	"hora/collective"
)

// view is where this rank is, for the watch and for ranks that ask. The turn's holder
// writes it once per operation; everybody else reads.
type view struct {
	finished atomic.Uint64 // number of the last operation that has ended, rounds of names included

	mu      sync.Mutex // guards present and last
	present place
	last    place // the one before present
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

// begin notes an operation that starts now.
func (v *view) begin(seq uint64, kind collective.Kind, name string) {
	v.mu.Lock()
	if v.present.name != "" || v.present.kind != 0 {
		v.last = v.present
	}
	v.present = place{seq: seq, kind: kind, name: name}
	v.mu.Unlock()
}

// pack notes how many more tensors travel with the present operation.
func (v *view) packed(more int) {
	v.mu.Lock()
	v.present.pack = more
	v.mu.Unlock()
}

// read is the operation in progress, if any, and the last finished one.
func (v *view) read() (busy bool, present, last place) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.finished.Load() >= v.present.seq {
		return false, place{}, v.present
	}
	return true, v.present, v.last
}
