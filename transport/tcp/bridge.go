package tcp

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// bridge carries a data connection's bytes between TLS and a socket pair, so that
// the data path is the same with and without encryption.
type bridge struct {
	outer, inner net.Conn
	flushed      chan struct{} // everything from inner is out
	once         sync.Once
}

// socket turns a proven connection into a raw descriptor. A plain connection is the
// descriptor itself; any other gets a bridge with two goroutines of the mesh.
func (m *Mesh) socket(conn net.Conn) (int, *bridge, error) {
	bytes := max(0, m.cfg.SocketBytes)
	if m.n.cert == nil {
		fd, err := rawFd(conn, bytes)
		return fd, nil, err
	}
	m.mu.Lock()
	if m.closing {
		m.mu.Unlock()
		conn.Close()
		return -1, nil, net.ErrClosed
	}
	m.pumps.Add(2)
	m.mu.Unlock()
	fd, b, err := newBridge(conn, bytes)
	if err != nil {
		m.pumps.Add(-2)
		conn.Close()
		return -1, nil, err
	}
	go func() { defer m.pumps.Done(); b.pump(b.outer, b.inner) }()
	go func() { defer m.pumps.Done(); b.pump(b.inner, b.outer); close(b.flushed) }()
	return fd, b, nil
}

func newBridge(conn net.Conn, bytes int) (int, *bridge, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return -1, nil, fmt.Errorf("make socket pair: %w", err)
	}
	for _, fd := range pair {
		unix.CloseOnExec(fd)
		if bytes > 0 {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, bytes)
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
		}
	}
	f := os.NewFile(uintptr(pair[1]), "bridge")
	inner, err := net.FileConn(f)
	f.Close()
	if err != nil {
		unix.Close(pair[0])
		return -1, nil, fmt.Errorf("make socket pair: %w", err)
	}
	tuneFd(pair[0])
	return pair[0], &bridge{outer: conn, inner: inner, flushed: make(chan struct{})}, nil
}

// pump copies one direction; at its end the other side learns that no more comes.
func (b *bridge) pump(from, to net.Conn) {
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 64<<10))
	if err != nil {
		b.close() // broken, not ended: both directions go
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// finish lets what the mesh has sent go out, within a bound, and ends both pumps.
func (b *bridge) finish() {
	select {
	case <-b.flushed:
	case <-time.After(lingerTime):
	}
	b.close()
}

func (b *bridge) close() {
	b.once.Do(func() {
		b.outer.Close()
		b.inner.Close()
	})
}
