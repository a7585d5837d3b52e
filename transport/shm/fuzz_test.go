//go:build linux

package shm

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"hora/transport"
)

// FuzzControl decodes a control message's payload as every kind: it must never
// panic, and what is accepted must encode to the same bytes.
func FuzzControl(f *testing.F) {
	f.Add(join{ranks: []int{0, 1, 5}, slotBytes: 4096, parts: 2, oversubscribed: true, cpus: []byte{3}}.encode())
	f.Add(layout{1 << 20, true, []bool{true, false}}.encode())
	f.Add(want{1, 100, true, 4096}.encode())
	f.Add(placement{1, "", []place{{0, 0, 100}, {1, 4096, 5}}}.encode())
	f.Add(placement{1, "no memory", nil}.encode())
	f.Add(verdict{7, "no", true}.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, p []byte) {
		same := func(what string, err error, encode func() []byte) {
			if err == nil && !bytes.Equal(encode(), p) {
				t.Errorf("%s: %x became %x", what, p, encode())
			}
		}
		j, err := decodeJoin(p)
		same("join", err, j.encode)
		l, err := decodeLayout(p)
		same("layout", err, l.encode)
		w, err := decodeWant(p)
		same("want", err, w.encode)
		a, err := decodePlacement(p, 2)
		same("placement", err, a.encode)
		v, err := decodeVerdict(p)
		same("verdict", err, v.encode)
	})
}

// FuzzMailbox reads a box that something has written anything into: it must end and
// stay within its memory.
func FuzzMailbox(f *testing.F) {
	f.Add(uint16(9), []byte("\x05\x00\x00\x00hello"))
	f.Add(uint16(4), []byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, written uint16, p []byte) {
		box := newMailbox(make([]byte, 256+1024))
		copy(box.data, p)
		box.head.written = uint64(written)
		var buf [transport.MaxTell]byte
		for range 1 << 16 {
			if _, ok := box.next(&buf); !ok {
				return
			}
		}
		t.Fatal("no end")
	})
}

// FuzzRights reads control data of all kinds, on the way that descriptors come. They are
// numbers alone here: nothing is opened, so nothing is closed.
func FuzzRights(f *testing.F) {
	f.Add(unix.UnixRights(5, 6))
	f.Add(append(unix.UnixRights(3), unix.UnixRights(4)...))
	f.Add(unix.UnixCredentials(&unix.Ucred{Pid: 1}))
	f.Add(unix.UnixRights(5, 6)[:17])
	f.Add([]byte("\x15\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x0000000")) // half a descriptor
	f.Fuzz(func(t *testing.T, b []byte) {
		fds, err := parseRights(b)
		if err != nil && fds != nil {
			t.Errorf("%x: descriptors %v beside %v", b, fds, err)
		}
		if 4*len(fds) > len(b) {
			t.Errorf("%x: %d descriptors", b, len(fds))
		}
	})
}
