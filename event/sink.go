package event

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Listener hears events. Its methods are called on the goroutine on which things
// happen, so they return quickly, take no lock that is held over I/O and never call
// back into the group.
type Listener interface {
	// Operation is called once per collective of this rank. o is valid in the call only.
	Operation(o *Operation)
	// Event is called for everything rarer.
	Event(e Event)
}

// Sink hands events to its listeners. The zero Sink works; a nil *Sink has no listeners.
type Sink struct {
	mu        sync.Mutex // guards changes of listeners
	listeners atomic.Pointer[[]Listener]
}

// On reports whether anybody listens: callers take no timestamps otherwise.
func (s *Sink) On() bool { return s != nil && s.listeners.Load() != nil }

// Add registers a listener until remove is called.
func (s *Sink) Add(l Listener) (remove func()) {
	entry := &l // two equal listeners stay two
	held := &registered{entry, l}
	s.change(func(all []Listener) []Listener { return append(all, held) })
	return func() {
		s.change(func(all []Listener) []Listener {
			return slices.DeleteFunc(all, func(x Listener) bool { return x == Listener(held) })
		})
	}
}

type registered struct {
	entry *Listener
	Listener
}

func (s *Sink) change(f func([]Listener) []Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Listener
	if old := s.listeners.Load(); old != nil {
		all = slices.Clone(*old)
	}
	all = f(all)
	if len(all) == 0 {
		s.listeners.Store(nil)
		return
	}
	s.listeners.Store(&all)
}

// Operation reports one collective.
func (s *Sink) Operation(o *Operation) {
	if s == nil {
		return
	}
	if all := s.listeners.Load(); all != nil {
		for _, l := range *all {
			l.Operation(o)
		}
	}
}

// Emit reports anything else.
func (s *Sink) Emit(e Event) {
	if s == nil {
		return
	}
	if all := s.listeners.Load(); all != nil {
		for _, l := range *all {
			l.Event(e)
		}
	}
}

// Epoch is the instant that Now counts from.
type Epoch struct{ start time.Time }

// NewEpoch starts a clock at this moment.
func NewEpoch() Epoch { return Epoch{time.Now()} }

// Now is nanoseconds since the epoch on the monotonic clock. It is never 0.
func (e Epoch) Now() int64 { return int64(time.Since(e.start)) + 1 }

// Start is the wall-clock time of the epoch.
func (e Epoch) Start() time.Time { return e.start }
