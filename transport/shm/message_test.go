//go:build linux

package shm

import (
	"fmt"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// socketPair is two connected unix sockets.
func socketPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "pair")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c.(*net.UnixConn)
	}
	return conn(fds[0]), conn(fds[1])
}

// TestManyDescriptors passes more than one call to the kernel takes, as a host with
// hundreds of ranks does.
func TestManyDescriptors(t *testing.T) {
	a, b := socketPair(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	for _, n := range []int{0, 1, maxPassedFDs, maxPassedFDs + 1, 2*maxPassedFDs + 100} {
		fds := make([]int, n)
		for i := range fds {
			fds[i] = int(read.Fd())
		}
		sent := make(chan error, 1)
		go func() { sent <- send(a, kindSegment, []byte("layout"), fds...) }()
		m, err := receive(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if len(m.fds) != n || m.kind != kindSegment || string(m.payload) != "layout" {
			t.Errorf("%d descriptors: kind %d, %q, %d descriptors", n, m.kind, m.payload, len(m.fds))
		}
		for _, fd := range m.fds {
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Fatalf("descriptor %d outlives exec: %v", fd, err)
			}
		}
		m.closeFDs()
	}
}

func TestMessagesAreBounded(t *testing.T) {
	for name, raw := range map[string]string{
		"kind 0":       "\x00\x00\x00\x00\x00\x00\x00\x00",
		"unknown kind": "\xff\x00\x00\x00\x00\x00\x00\x00",
		"too long":     "\x01\x00\x00\x00\xff\xff\xff\x7f",
		"cut off":      "\x01\x00\x00\x00\x05\x00\x00\x00ab",
	} {
		a, b := socketPair(t)
		if _, err := a.Write([]byte(raw)); err != nil {
			t.Fatal(err)
		}
		a.Close()
		if m, err := receive(b); err == nil {
			t.Errorf("%s: accepted as %+v", name, m)
		}
	}
}

// TestTellBeforeAnybodyListens: what is told before a link has a listener waits in its box, and
// has been heard, in order, when the listener is in place.
func TestTellBeforeAnybodyListens(t *testing.T) {
	links := openAll(t, 2, nil)
	const n = 1000
	for i := range n {
		if err := links[0].Tell(1, fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	var heard []string
	links[1].OnTell(func(from int, msg []byte) { heard = append(heard, string(msg)) })
	if len(heard) != n {
		t.Fatalf("%d of %d were heard", len(heard), n)
	}
	for i, s := range heard {
		if s != fmt.Sprint(i) {
			t.Fatalf("message %s came as number %d", s, i)
		}
	}
	links[1].Close()
	links[1].OnTell(nil)
	links[0].Close()
	links[0].OnTell(func(int, []byte) {}) // returns, though nobody hears any more
}
