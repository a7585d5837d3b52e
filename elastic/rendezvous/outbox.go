package rendezvous

import (
	"net"
	"sync"
	"time"
)

// outbox is what waits to be written to one connection. put never blocks; run is the connection's writing goroutine.
type outbox struct {
	mu     sync.Mutex // guards frames, bytes and closed; held for appends only
	frames [][]byte
	bytes  int
	closed bool
	wake   chan struct{} // capacity 1
}

// maxBacklog bounds what a reader that does not read may cost the writer.
const maxBacklog = 4 * maxMessage

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// put queues a frame, which must not change afterwards. It is false when the connection is closed or too far behind.
func (o *outbox) put(frame []byte) bool {
	o.mu.Lock()
	ok := !o.closed && o.bytes+len(frame) <= maxBacklog
	if ok {
		o.frames = append(o.frames, frame)
		o.bytes += len(frame)
	}
	o.mu.Unlock()
	if ok {
		o.signal()
	}
	return ok
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// close lets run write what is queued and then return.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.signal()
}

func (o *outbox) take() (frames [][]byte, closed bool) {
	o.mu.Lock()
	frames, o.frames, o.bytes = o.frames, nil, 0
	closed = o.closed
	o.mu.Unlock()
	return frames, closed
}

// run writes frames in order until close or a failed write. When beat is above zero it also writes what pulse gives
// every such time.
func (o *outbox) run(conn net.Conn, beat time.Duration, pulse func() []byte) error {
	var tick <-chan time.Time
	if beat > 0 {
		t := time.NewTicker(beat)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-o.wake:
			frames, closed := o.take()
			bufs := net.Buffers(frames)
			if _, err := bufs.WriteTo(conn); err != nil {
				return err
			}
			if closed {
				return nil
			}
		case <-tick:
			if _, err := conn.Write(pulse()); err != nil {
				return err
			}
		}
	}
}
