package rendezvous

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A frame is a length (4 bytes, little endian, of all that follows), a kind (1 byte) and a body of unsigned varints
// and length-prefixed strings. Frames flow only after the secret is proved.

const (
	maxFrame  = 64 << 20 // the largest value of the key-value store, with its key
	maxAddrs  = 64
	frameHead = 5
)

type kind uint8

const (
	kindHello kind = 1 + iota
	kindJoin
	kindMembers
	kindPut
	kindGet
	kindLookup
	kindAdd
	kindDelete
	kindCancel
	kindLeave
	kindBeat
)

const (
	kindEpoch kind = 32 + iota
	kindList
	kindValue
	kindNumber
	kindFail
	kindNotice
)

var errShort = errors.New("message is cut short")

// builder makes one frame.
type builder struct{ b []byte }

func frame(k kind, sizeHint int) *builder {
	b := make([]byte, frameHead, frameHead+sizeHint)
	b[4] = byte(k)
	return &builder{b}
}

func (w *builder) uint(v uint64) *builder { w.b = binary.AppendUvarint(w.b, v); return w }
func (w *builder) int(v int) *builder     { w.b = binary.AppendVarint(w.b, int64(v)); return w }
func (w *builder) str(s string) *builder {
	w.b = binary.AppendUvarint(w.b, uint64(len(s)))
	w.b = append(w.b, s...)
	return w
}

func (w *builder) bytes(p []byte) *builder {
	w.b = binary.AppendUvarint(w.b, uint64(len(p)))
	w.b = append(w.b, p...)
	return w
}

// done completes the frame's head and returns it.
func (w *builder) done() []byte {
	binary.LittleEndian.PutUint32(w.b, uint32(len(w.b)-4))
	return w.b
}

// reader decodes one frame's body. The first fault sticks.
type reader struct {
	b   []byte
	err error
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int {
	v, n := binary.Varint(r.b)
	if n <= 0 || v != int64(int(v)) {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

// bytes returns a part of the frame, not a copy.
func (r *reader) bytes() []byte {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	p := r.b[:n:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) str() string { return string(r.bytes()) }

func (r *reader) fail() {
	if r.err == nil {
		r.err = errShort
	}
	r.b = nil
}

// end reports the first fault, or left-over bytes.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		return fmt.Errorf("message has %d bytes too many", len(r.b))
	}
	return r.err
}

func appendMember(w *builder, m *Member) {
	w.int(m.Rank).int(m.LocalRank).int(m.LocalSize).int(m.CrossRank).int(m.CrossSize)
	w.str(m.Host).str(m.HostID).str(m.Unix)
	w.uint(uint64(len(m.Addrs)))
	for _, a := range m.Addrs {
		w.str(a)
	}
	w.int(m.Pid)
}

func (r *reader) member() Member {
	m := Member{Rank: r.int(), LocalRank: r.int(), LocalSize: r.int(), CrossRank: r.int(), CrossSize: r.int()}
	m.Host, m.HostID, m.Unix = r.str(), r.str(), r.str()
	n := r.uint()
	if n > maxAddrs {
		r.fail()
		return m
	}
	for range n {
		m.Addrs = append(m.Addrs, r.str())
	}
	m.Pid = r.int()
	return m
}

// members decodes a list whose length was announced. Each member takes at least ten bytes, which bounds the list by
// the frame that carries it.
func (r *reader) members() []Member {
	n := r.uint()
	if n > uint64(len(r.b))/10 {
		r.fail()
		return nil
	}
	ms := make([]Member, 0, n)
	for range n {
		ms = append(ms, r.member())
	}
	return ms
}

func (n *Notice) frame() []byte {
	w := frame(kindNotice, 32+len(n.Host)+len(n.Reason))
	return w.uint(uint64(n.Kind)).uint(n.Epoch).int(n.Rank).str(n.Host).str(n.Reason).done()
}

func (r *reader) notice() Notice {
	return Notice{Kind: NoticeKind(r.uint()), Epoch: r.uint(), Rank: r.int(), Host: r.str(), Reason: r.str()}
}

// readFrame reads one frame. The body is fresh memory that the caller owns; it grows with what really arrives, so
// that a length alone reserves nothing.
func readFrame(rd io.Reader, head *[frameHead]byte) (kind, []byte, error) {
	if _, err := io.ReadFull(rd, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[:4])
	if n < 1 || n > maxFrame {
		return 0, nil, fmt.Errorf("message of %d bytes is outside 1 to %d", n, maxFrame)
	}
	n--
	const step = 64 << 10
	body := make([]byte, min(n, step))
	if _, err := io.ReadFull(rd, body); err != nil {
		return 0, nil, noEOF(err)
	}
	for have := uint32(len(body)); have < n; have = uint32(len(body)) {
		more := min(n-have, have) // doubles
		body = append(body, make([]byte, more)...)
		if _, err := io.ReadFull(rd, body[have:]); err != nil {
			return 0, nil, noEOF(err)
		}
	}
	return kind(head[4]), body, nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
