package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"hora/internal/wire"
	"hora/transport"
)

// loss is why a process can no longer be reached.
type loss struct {
	reason string
	at     time.Time
	grace  time.Duration // how long its data connections may still deliver
	cause  error         // it gave up because of this; nil: it is the cause itself
}

const (
	reasonClosed = "connection closed: its process ended"
	reasonReset  = "connection reset"
)

// link is the control connection to one process. Its reader and writer are the
// only users of conn; others hand messages to queue.
type link struct {
	n     *Node
	rank  int // job rank of the peer
	host  string
	conn  net.Conn
	queue chan []byte
	stop  chan struct{}
	once  sync.Once
	bye   atomic.Bool // the peer's process has said that it leaves
}

// queueLength bounds what waits for a slow peer; it holds an explanation of every
// rank of a large group. More is dropped: messages are
// repeated (probe, want), or the peer is about to be lost.
const queueLength = 4096

func (n *Node) newLink(conn net.Conn, rank int, host string) *link {
	return &link{
		n: n, rank: rank, host: host, conn: conn, queue: make(chan []byte, queueLength),
		stop: make(chan struct{}),
	}
}

// send queues a message; false: the queue is full or the link has ended.
func (l *link) send(m []byte) bool {
	select {
	case <-l.stop:
		return false
	default:
	}
	select {
	case l.queue <- m:
		return true
	default:
		return false
	}
}

// end stops the link; what is queued is still written, within a bound.
func (l *link) end() { l.once.Do(func() { close(l.stop) }) }

func (l *link) write() {
	defer l.conn.Close() // wakes the reader
	for {
		var m []byte
		select {
		case m = <-l.queue:
		case <-l.stop:
			select {
			case m = <-l.queue:
			default:
				return
			}
		}
		l.conn.SetWriteDeadline(time.Now().Add(l.n.cfg.PeerTimeout))
		if _, err := l.conn.Write(m); err != nil {
			l.end()
			return
		}
	}
}

func (l *link) read() {
	err := l.readAll()
	l.end()
	if l.bye.Load() {
		l.n.lose(l.rank, loss{reason: transport.ReasonLeft, grace: time.Second})
		return
	}
	var nerr net.Error
	why := loss{reason: reasonClosed, grace: 100 * time.Millisecond}
	switch {
	case errors.As(err, &nerr) && nerr.Timeout():
		why = loss{reason: fmt.Sprintf("silent for %v (HORA_PEER_TIMEOUT, hora run --peer-timeout)", l.n.cfg.PeerTimeout)}
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		why.reason = reasonReset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
	default:
		why.reason = err.Error()
	}
	l.n.lose(l.rank, why)
}

// patience is a reader that waits PeerTimeout for each byte. After a timeout it
// looks once more: what came while this process itself was stopped is there
// already, and a peer that was stopped with us gets time for a heartbeat.
type patience struct{ l *link }

func (p patience) Read(b []byte) (int, error) {
	l := p.l
	l.conn.SetReadDeadline(time.Now().Add(l.n.cfg.PeerTimeout))
	n, err := l.conn.Read(b)
	var nerr net.Error
	if n == 0 && errors.As(err, &nerr) && nerr.Timeout() {
		grace := 20 * time.Millisecond
		if !l.n.onTime() {
			grace = 2 * l.n.cfg.Heartbeat
		}
		l.conn.SetReadDeadline(time.Now().Add(grace))
		n, err = l.conn.Read(b)
	}
	if n == 0 && errors.As(err, &nerr) && nerr.Timeout() && l.n.cfg.Excused != nil && l.n.cfg.Excused(l.rank) {
		return p.Read(b)
	}
	return n, err
}

func (l *link) readAll() error {
	var buf []byte
	for {
		kind, body, err := wire.ReadMessage(patience{l}, buf, wire.MaxControlBytes)
		if err != nil {
			return err
		}
		buf = body
		c, err := wire.ParseControl(kind, body)
		if err != nil {
			l.n.cfg.Log.Warn("close control connection", "peer", l.rank, "host", l.host, "error", err)
			return err
		}
		switch {
		case c.Kind == wire.ControlHeartbeat:
		case c.Kind == wire.ControlLeave:
			l.bye.Store(true)
		default:
			l.n.dispatch(l, c)
		}
	}
}
