//go:build linux

package tcp

import (
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMultipathIsOff asks the kernel which protocol the sockets of both ends speak: Go
// listens with MPTCP where the kernel has it unless told otherwise.
func TestMultipathIsOff(t *testing.T) {
	speaks := func(what string, fd int) {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
		if err != nil || got != unix.IPPROTO_TCP {
			t.Errorf("%s speaks protocol %d, want %d: %v", what, got, unix.IPPROTO_TCP, err)
		}
	}
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	rc, err := l.lns[0].(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := rc.Control(func(fd uintptr) { speaks("a listener", int(fd)) }); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, 2, nil)
	meshes := w.open(1, nil)
	must(t, each(meshes, func(m *Mesh) error { return ring(m, 1, 1000) }))
	lanes := 0
	for _, m := range meshes {
		m.mu.Lock()
		for _, l := range m.ready {
			if l != nil && l.fd >= 0 {
				lanes++
				speaks("a connection", l.fd)
			}
		}
		m.mu.Unlock()
	}
	if lanes < 2 {
		t.Errorf("%d connections were looked at", lanes)
	}
}

// TestOneLinePerBadConnection has strangers come one after the other: each is one line of
// the log, which says from where it came and why it was refused.
func TestOneLinePerBadConnection(t *testing.T) {
	w := newWorld(t, 1, nil)
	for i, text := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x00\x01", strings.Repeat("x", 1<<12), ""} {
		c := stranger(t, w.peers[0])
		if text == "" { // who says nothing is refused nothing
			c.(*net.TCPConn).CloseWrite()
			shut(t, text, c, 1<<10)
			continue
		}
		from := "hello of " + c.LocalAddr().String()
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		// It may have been closed by then: the first bytes were enough.
		if err := c.(*net.TCPConn).CloseWrite(); err != nil && !errors.Is(err, unix.ENOTCONN) {
			t.Fatal(err)
		}
		shut(t, text, c, 1<<10)
		// The line may follow the connection's end by a moment.
		for end := time.Now().Add(10 * time.Second); strings.Count(w.log.String(), "\n") <= i && time.Now().Before(end); {
			runtime.Gosched()
		}
		lines := strings.Split(strings.TrimSuffix(w.log.String(), "\n"), "\n")
		if len(lines) != i+1 || !strings.Contains(lines[i], "refused a connection") || !strings.Contains(lines[i], from) {
			t.Fatalf("connection %d, %s: the log is\n%s", i, from, w.log)
		}
	}
	w.close() // nothing is added at the end
	if n := strings.Count(w.log.String(), "\n"); n != 3 {
		t.Errorf("%d lines for 3 connections:\n%s", n, w.log)
	}
}
