package tcp

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"hora/internal/wire"
	"hora/transport"
)

// FuzzLane lets a proven peer send anything on a data connection: the receiver
// takes exactly what it expects, writes nothing beyond it, and never panics.
func FuzzLane(f *testing.F) {
	frame := func(h wire.Header, payload []byte, trailer uint64) []byte {
		var b [wire.HeaderBytes]byte
		h.Put(b[:])
		out := append(b[:], payload...)
		if h.Trailer() > 0 {
			out = wire.AppendU64(out, trailer)
		}
		return out
	}
	good := wire.Header{Kind: wire.FrameData, Len: 48, Seq: 5, Print: 6}
	old := wire.Header{Kind: wire.FrameData, Len: 5000, Seq: 4, Print: 6}
	f.Add(frame(good, make([]byte, 48), 0), uint16(48))
	f.Add(append(frame(old, make([]byte, 5000), wire.TrailerAborted), frame(good, make([]byte, 48), 0)...), uint16(48))
	f.Add(frame(wire.Header{Kind: wire.FrameData, Len: 9000, Seq: 5, Print: 6}, make([]byte, 9000),
		wire.TrailerAborted), uint16(9000))
	f.Add(frame(wire.Header{Kind: wire.FrameData, Len: 1 << 45, Seq: 5, Print: 6}, nil, 0), uint16(10))
	f.Add(frame(wire.Header{Kind: wire.FrameBye}, nil, 0), uint16(0))
	f.Fuzz(func(t *testing.T, in []byte, expect uint16) {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Skip(err)
		}
		defer unix.Close(pair[0])
		in = in[:min(len(in), 64<<10)]
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for rest := in; len(rest) > 0; {
				n, err := unix.Write(pair[1], rest)
				if err != nil {
					break
				}
				rest = rest[n:]
			}
			unix.Close(pair[1])
		}()
		l := &lane{fd: pair[0]}
		tuneFd(l.fd)
		var r receiving
		mem := bytes.Repeat([]byte{0xAA}, int(expect)+64)
		r.begin(l, transport.Stamp{Seq: 5, Print: 6}, 0, mem[:expect:expect])
		for {
			if _, err = r.pull(); err != errAgain {
				break
			}
			pollWait([]unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}, pollSlice)
		}
		for _, b := range mem[expect:] {
			if b != 0xAA {
				t.Fatal("bytes beyond the expected ones were written")
			}
		}
		unix.Shutdown(l.fd, unix.SHUT_RDWR) // frees the sender
		<-sent
		if err == nil && !bytes.Contains(in, mem[:expect]) {
			t.Fatal("received what was not sent")
		}
		if l.r > l.w || l.w > stageBytes {
			t.Fatalf("stage %d:%d", l.r, l.w)
		}
	})
}
