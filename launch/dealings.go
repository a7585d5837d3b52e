package launch

import (
	"slices"
	"sync"

	"hora/internal/wire"
	"hora/launch/protocol"
)

// dealings are an agent's messages that the owner has not dealt with.
type dealings struct {
	mu   sync.Mutex // guards what follows; held for field access only
	open []uint64
	last uint64
}

// take counts a message that the owner gets.
func (d *dealings) take(n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open, d.last = append(d.open, n), n
}

// dealt says up to which message everything has been dealt with, when n has.
func (d *dealings) dealt(n uint64) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = slices.DeleteFunc(d.open, func(o uint64) bool { return o == n })
	if d.last = max(d.last, n); len(d.open) > 0 {
		return slices.Min(d.open) - 1
	}
	return d.last
}

// heardOf tells an agent that outlives its launcher what need not be told again.
func (l *link) heardOf(n uint64) {
	if n > 0 {
		l.send(protocol.CmdHeard, wire.AppendU64(nil, l.dealings.dealt(n)))
	}
}
