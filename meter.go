package hora

import (
	"sync/atomic"
	"time"

	"hora/event"
)

// meter counts what this rank does, for Config.Progress. It hears every operation of the
// world and passes all it hears on to the listeners that were there before.
type meter struct {
	next       *event.Sink // nil without such listeners
	clock      event.Epoch
	operations atomic.Int64
	bytes      atomic.Int64
	inside     atomic.Int64 // nanoseconds
}

// newMeter puts a meter before c's listeners.
func newMeter(c *Config) *meter {
	m := &meter{next: c.Events, clock: event.NewEpoch()}
	c.Events = &event.Sink{}
	c.Events.Add(m) // for as long as the sink, which is nobody else's
	return m
}

func (m *meter) Operation(o *event.Operation) {
	m.operations.Add(1)
	m.bytes.Add(o.Bytes)
	m.inside.Add(max(o.Done-o.Started, 0))
	m.next.Operation(o)
}

func (m *meter) Event(e event.Event) { m.next.Emit(e) }

// tell returns what rendezvous asks with every beat; nil without a meter.
func (m *meter) tell() func() event.Work {
	if m == nil {
		return nil
	}
	return func() event.Work {
		return event.Work{
			Elapsed: time.Duration(m.clock.Now()), Operations: m.operations.Load(), Bytes: m.bytes.Load(),
			Inside: time.Duration(m.inside.Load()),
		}
	}
}
