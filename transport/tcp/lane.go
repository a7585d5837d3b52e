package tcp

import (
	"encoding/binary"
	"errors"
	"io"
	"syscall"

	"hora/internal/wire"
	"hora/transport"
)

// Sizes of one system call. ioChunk bounds how long it holds the processor and
// keeps sending and receiving in step; stageBytes is what is read beyond what the
// caller asked for; headPeek is read ahead of a payload that goes straight to the
// caller's memory.
const (
	ioChunk    = 256 << 10
	stageBytes = 16 << 10
	headPeek   = 1 << 10
)

var (
	errAgain = errors.New("lane: nothing to do now")
	errLeft  = errors.New("lane: the peer has left")
	errStamp = errors.New("lane: the next frame is not the one expected")
	errAbort = errors.New("lane: the peer gave up in the middle of a frame")

	zeros [32 << 10]byte // what an aborted frame is filled up with; read only
)

// lane is one connection of a pair, driven by whoever drives the mesh. A frame
// that was begun is always completed: from the lane's own memory if it is short,
// else with zeros and a trailer that says so.
type lane struct {
	fd   int
	pair bool // carries operations of two ranks instead of the group's

	out  [wire.HeaderBytes + wire.SmallBytes]byte // bytes that the lane owes, out[lo:hi]
	lo   int
	hi   int
	pad  uint64 // then so many zeros
	tail bool   // then TrailerAborted

	stage    [stageBytes]byte // bytes received beyond the caller's memory, stage[r:w]
	r, w     int
	head     wire.Header
	have     bool   // head is parsed and its payload has not been dealt with
	accepted bool   // the payload is on its way into the caller's memory
	skip     uint64 // bytes of a dropped frame still to come

	vec vector
}

// sending is one message on its way out.
type sending struct {
	p       []byte
	off     int // bytes of header, payload and trailer that are out
	total   int
	small   bool // everything is in the lane's own memory
	head    [wire.HeaderBytes]byte
	trailer [wire.TrailerBytes]byte
	l       *lane
}

// begin takes a message. It is not out yet.
func (s *sending) begin(l *lane, st transport.Stamp, part uint8, p []byte) {
	s.l, s.p, s.off = l, p, 0
	h := wire.Header{Kind: wire.FrameData, Part: part, Len: uint64(len(p)), Seq: st.Seq, Print: st.Print}
	s.total = wire.HeaderBytes + len(p) + h.Trailer()
	if s.small = len(p) <= wire.SmallBytes; s.small && l.owes() == 0 {
		h.Put(l.out[:])
		l.lo, l.hi = 0, wire.HeaderBytes+copy(l.out[wire.HeaderBytes:], p)
		s.off = s.total
		return
	}
	h.Put(s.head[:])
	binary.LittleEndian.PutUint64(s.trailer[:], wire.TrailerWhole)
}

// push sends what it can. nil: all is out; errAgain: the socket is full.
// progress reports whether anything moved.
func (s *sending) push() (progress bool, err error) {
	l := s.l
	if l.owes() != 0 {
		if progress, err = l.flush(); err != nil {
			return progress, err
		}
	}
	for s.off < s.total {
		if s.small { // it had to wait for an older frame's rest
			l.lo, l.hi = 0, copy(l.out[:], s.head[:])
			l.hi += copy(l.out[l.hi:], s.p)
			s.off = s.total
			moved, err := l.flush()
			return progress || moved, err
		}
		n, err := s.write()
		if err != nil {
			return progress, err
		}
		s.off += n
		progress = true
	}
	s.p = nil
	return progress, nil
}

func (s *sending) write() (int, error) {
	v := &s.l.vec
	v.reset()
	end := wire.HeaderBytes + len(s.p)
	if s.off < wire.HeaderBytes {
		v.add(s.head[s.off:])
	}
	if s.off < end {
		from := max(0, s.off-wire.HeaderBytes)
		to := min(len(s.p), from+ioChunk)
		v.add(s.p[from:to])
		if to == len(s.p) {
			v.add(s.trailer[:])
		}
	} else {
		v.add(s.trailer[s.off-end:])
	}
	return result(v.send(s.l.fd))
}

// abandon gives the caller's memory back in mid-frame: what the peer has seen the
// beginning of is filled up with zeros and marked as aborted.
func (s *sending) abandon() {
	l := s.l
	if l == nil || s.off == 0 || s.off >= s.total {
		s.p = nil
		return
	}
	end := wire.HeaderBytes + len(s.p)
	l.lo, l.hi = 0, 0
	if s.off < wire.HeaderBytes {
		l.hi = copy(l.out[:], s.head[s.off:])
	}
	if s.off < end {
		l.pad, l.tail = uint64(end-max(s.off, wire.HeaderBytes)), true
	} else {
		l.hi = copy(l.out[:], s.trailer[s.off-end:])
	}
	s.p, s.off, s.total = nil, 0, 0
}

// owes is the number of bytes that must go out before a new frame.
func (l *lane) owes() uint64 {
	n := uint64(l.hi-l.lo) + l.pad
	if l.tail {
		n++
	}
	return n
}

// flush sends what the lane owes.
func (l *lane) flush() (progress bool, err error) {
	for {
		var n int
		switch {
		case l.lo < l.hi:
			if n, err = result(sysSend(l.fd, l.out[l.lo:l.hi])); err == nil {
				l.lo += n
			}
		case l.pad > 0:
			if n, err = result(sysSend(l.fd, zeros[:min(l.pad, uint64(len(zeros)))])); err == nil {
				l.pad -= uint64(n)
			}
		case l.tail:
			binary.LittleEndian.PutUint64(l.out[:], wire.TrailerAborted)
			l.lo, l.hi, l.tail = 0, wire.TrailerBytes, false
		default:
			return progress, nil
		}
		if err != nil {
			return progress, err
		}
		progress = true
	}
}

// receiving is one message on its way in.
type receiving struct {
	p    []byte
	off  int
	want wire.Header
	l    *lane
}

func (r *receiving) begin(l *lane, st transport.Stamp, part uint8, p []byte) {
	r.l, r.p, r.off = l, p, 0
	r.want = wire.Header{Kind: wire.FrameData, Part: part, Len: uint64(len(p)), Seq: st.Seq, Print: st.Print}
}

// pull receives what it can. nil: p is full; errAgain: nothing more has come;
// errStamp: another frame is next, in l.head. It never reads into p before the
// header has been compared, nor beyond p.
func (r *receiving) pull() (progress bool, err error) {
	l := r.l
	for {
		switch {
		case l.skip > 0:
			n, err := l.drop()
			if err != nil {
				return progress, err
			}
			progress = progress || n
		case l.accepted:
			moved, err := r.payload()
			if err != nil {
				return progress || moved, err
			}
			r.p = nil
			return true, nil
		case l.have:
			if err := r.judge(); err != nil {
				return progress, err
			}
		default:
			if l.w-l.r < wire.HeaderBytes {
				if err := l.fill(r.ahead()); err != nil {
					return progress, err
				}
				progress = true
				continue
			}
			if l.head, err = wire.ParseHeader(l.stage[l.r:l.w]); err != nil {
				return progress, err
			}
			l.r += wire.HeaderBytes
			l.have = true
		}
	}
}

// ahead is how much to read where a header is expected.
func (r *receiving) ahead() int {
	if len(r.p)+wire.HeaderBytes > stageBytes {
		return headPeek
	}
	return stageBytes
}

// judge compares the frame that is next with the one that is expected.
func (r *receiving) judge() error {
	l := r.l
	switch {
	case l.head.Kind == wire.FrameBye:
		return errLeft
	case l.head.Seq&transport.PairSeq != r.want.Seq&transport.PairSeq:
		return wire.ErrFrame
	case l.head.Seq < r.want.Seq: // left over from an operation that failed
		l.have = false
		l.skip = l.head.Len + uint64(l.head.Trailer())
		return nil
	case l.head != r.want:
		return errStamp
	}
	l.accepted = true
	return nil
}

// payload fills p, first from what is staged, then straight from the socket.
func (r *receiving) payload() (progress bool, err error) {
	l := r.l
	for {
		if l.r < l.w && r.off < len(r.p) {
			n := copy(r.p[r.off:], l.stage[l.r:l.w])
			l.r += n
			r.off += n
			progress = true
		}
		tail := r.want.Trailer()
		if r.off == len(r.p) && l.w-l.r >= tail {
			break
		}
		if r.off == len(r.p) {
			if err := l.fill(stageBytes); err != nil {
				return progress, err
			}
			progress = true
			continue
		}
		l.r, l.w = 0, 0
		rest := r.p[r.off:min(len(r.p), r.off+ioChunk)]
		l.vec.reset()
		l.vec.add(rest)
		if r.off+len(rest) == len(r.p) {
			l.vec.add(l.stage[:headPeek])
		}
		n, err := receivedBytes(l.vec.recv(l.fd))
		if err != nil {
			return progress, err
		}
		progress = true
		l.w = max(0, n-len(rest))
		r.off += n - l.w
	}
	whole := true
	if r.want.Trailer() > 0 {
		switch binary.LittleEndian.Uint64(l.stage[l.r:]) {
		case wire.TrailerWhole:
		case wire.TrailerAborted:
			whole = false
		default:
			return progress, wire.ErrFrame
		}
		l.r += wire.TrailerBytes
	}
	l.have, l.accepted = false, false
	if !whole {
		return true, errAbort
	}
	return true, nil
}

// abandon gives the caller's memory back in mid-frame: the rest will be dropped.
func (r *receiving) abandon() {
	l := r.l
	if l != nil && l.accepted {
		l.skip = l.head.Len - uint64(r.off) + uint64(l.head.Trailer())
		l.have, l.accepted = false, false
	}
	r.p = nil
}

// drop consumes bytes of a dropped frame.
func (l *lane) drop() (progress bool, err error) {
	if l.r == l.w {
		if err := l.fill(stageBytes); err != nil {
			return false, err
		}
	}
	n := min(uint64(l.w-l.r), l.skip)
	l.r += int(n)
	l.skip -= n
	return true, nil
}

// fill reads at most limit bytes into the stage, which must have room.
func (l *lane) fill(limit int) error {
	if l.r == l.w {
		l.r, l.w = 0, 0
	} else if l.r > 0 && stageBytes-l.w < wire.HeaderBytes+wire.TrailerBytes {
		l.w = copy(l.stage[:], l.stage[l.r:l.w])
		l.r = 0
	}
	n, err := receivedBytes(sysRecv(l.fd, l.stage[l.w:min(stageBytes, l.w+limit)]))
	l.w += n
	return err
}

// result turns what a call returned into errAgain or a lasting error.
func result(n int, e syscall.Errno) (int, error) {
	switch e {
	case 0:
		return n, nil
	case syscall.EAGAIN, syscall.EINTR, syscall.ENOBUFS:
		return 0, errAgain
	}
	return 0, e
}

// receivedBytes is result for receiving, where nothing means the end.
func receivedBytes(n int, e syscall.Errno) (int, error) {
	n, err := result(n, e)
	if err == nil && n == 0 {
		return 0, io.EOF
	}
	return n, err
}
