package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"

	"hora/internal/wire"
)

// Messages of the control connection, between processes that have proved the
// secret. Each is a kind, a length and a payload; file descriptors ride along.
const (
	kindJoin    = 1 + iota // seat → leader: sizes, ranks, affinity; its bell
	kindSegment            // leader → seat: the segment's layout; memory, processes, bells
	kindMapped             // seat → leader: empty = mapped, else why not
	kindGo                 // leader → seat: empty = all have mapped, else why not
	kindWant               // seat → leader: a buffer
	kindBuffer             // leader → seat: where everybody's buffer is; its memory
	kindRelease            // seat → leader: a buffer is not used any more
	kindFree               // leader → seat: nobody uses the buffer any more
	kindsEnd
)

const (
	headerBytes  = 8
	maxPayload   = 64 << 10
	maxPassedFDs = 250 // the kernel's limit is 253 a message
)

type message struct {
	kind    uint32
	payload []byte
	fds     []int
}

func (m *message) closeFDs() {
	for _, fd := range m.fds {
		closeFD(fd)
	}
	m.fds = nil
}

// takeFD gives the i-th descriptor to the caller.
func (m *message) takeFD(i int) int {
	if i < 0 || i >= len(m.fds) {
		return -1
	}
	fd := m.fds[i]
	m.fds[i] = -1
	return fd
}

// send writes one message; its descriptors stay the caller's. More of them than fit
// into one call to the kernel go ahead in messages of the same kind that are marked
// as to be continued.
func send(conn *net.UnixConn, kind uint32, payload []byte, fds ...int) error {
	for len(fds) > maxPassedFDs {
		if err := sendOne(conn, kind|more, nil, fds[:maxPassedFDs]); err != nil {
			return err
		}
		fds = fds[maxPassedFDs:]
	}
	return sendOne(conn, kind, payload, fds)
}

const more = 1 << 31

func sendOne(conn *net.UnixConn, kind uint32, payload []byte, fds []int) error {
	if len(payload) > maxPayload {
		return fmt.Errorf("send control message: %d bytes", len(payload))
	}
	out := make([]byte, 0, headerBytes+len(payload))
	out = wire.AppendU32(out, kind)
	out = wire.AppendU32(out, uint32(len(payload)))
	out = append(out, payload...)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(out, rights, nil)
	if err == nil && n < len(out) {
		_, err = conn.Write(out[n:])
	}
	if err != nil {
		return fmt.Errorf("send control message: %w", err)
	}
	return nil
}

// receive reads one message. The descriptors belong to the caller, who has them
// closed on exec already.
func receive(conn *net.UnixConn) (message, error) {
	var all []int
	for {
		m, err := receiveOne(conn)
		all = append(all, m.fds...)
		m.fds = all
		if err != nil {
			m.closeFDs()
			return message{}, err
		}
		if m.kind&more == 0 {
			return m, nil
		}
		if len(all) > 1<<14 {
			m.closeFDs()
			return message{}, errors.New("receive control message: too many descriptors")
		}
	}
}

func receiveOne(conn *net.UnixConn) (message, error) {
	var m message
	var header [headerBytes]byte
	rights := make([]byte, unix.CmsgSpace(maxPassedFDs*4))
	n, rn, flags, _, err := conn.ReadMsgUnix(header[:], rights)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return m, err
	}
	fds, err := parseRights(rights[:rn])
	m.fds = fds
	if err != nil {
		return m, err
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return m, errors.New("receive control message: no room for its descriptors; raise ulimit -n")
	}
	if _, err := io.ReadFull(conn, header[n:]); err != nil {
		return m, fmt.Errorf("receive control message: %w", err)
	}
	m.kind = binary.LittleEndian.Uint32(header[:])
	size := binary.LittleEndian.Uint32(header[4:])
	if kind := m.kind &^ more; kind == 0 || kind >= kindsEnd || size > maxPayload {
		return m, fmt.Errorf("receive control message: kind %d with %d bytes", m.kind, size)
	}
	m.payload = make([]byte, size)
	if _, err := io.ReadFull(conn, m.payload); err != nil {
		return m, fmt.Errorf("receive control message: %w", err)
	}
	return m, nil
}

func parseRights(b []byte) (fds []int, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	list, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil, fmt.Errorf("receive descriptors: %w", err)
	}
	for i := range list {
		// no whole descriptors: the kernel sends none such, and the parser reads on behind them
		if len(list[i].Data)%4 != 0 {
			continue
		}
		got, err := unix.ParseUnixRights(&list[i])
		if err == nil {
			fds = append(fds, got...)
		}
	}
	return fds, nil
}

// join is what a seat says of itself.
type join struct {
	ranks                       []int
	slotBytes, partBytes, parts int
	oversubscribed              bool
	cpus                        []byte // affinity, a bit per processor
}

const (
	maxSeats = 1024
	maxCPUs  = 1024 // bytes of affinity
)

func (j join) encode() []byte {
	b := wire.AppendInts(nil, j.ranks)
	b = wire.AppendI64(b, int64(j.slotBytes))
	b = wire.AppendI64(b, int64(j.partBytes))
	b = wire.AppendI64(b, int64(j.parts))
	b = wire.AppendBool(b, j.oversubscribed)
	return wire.AppendBytes(b, j.cpus)
}

func decodeJoin(p []byte) (join, error) {
	d := wire.NewDecoder(p)
	j := join{
		ranks:     d.Ints(maxSeats, 0, 1<<31-1),
		slotBytes: d.Int(0, 1<<30),
		partBytes: d.Int(0, 1<<30),
		parts:     d.Int(0, 1<<16),
	}
	j.oversubscribed = d.Bool()
	j.cpus = append([]byte(nil), d.Bytes(maxCPUs)...)
	return j, d.Done()
}

// layout is what the leader has decided.
type layout struct {
	bytes          uint64 // of the segment
	oversubscribed bool
	processes      []bool // for each seat: a pidfd comes along
}

func (l layout) encode() []byte {
	b := wire.AppendU64(nil, l.bytes)
	b = wire.AppendBool(b, l.oversubscribed)
	b = wire.AppendU32(b, uint32(len(l.processes)))
	for _, p := range l.processes {
		b = wire.AppendBool(b, p)
	}
	return b
}

func decodeLayout(p []byte) (layout, error) {
	d := wire.NewDecoder(p)
	l := layout{bytes: d.U64(), oversubscribed: d.Bool()}
	n := d.Count(maxSeats, 1)
	for range n {
		l.processes = append(l.processes, d.Bool())
	}
	return l, d.Done()
}

// want asks for the id-th buffer of the group. A seat that brings memory of its own
// sends its descriptor along, with the offset at which the buffer begins in it.
type want struct {
	id     uint32
	bytes  uint64
	adopt  bool
	offset uint64
}

const (
	maxBuffer = 1 << 46
	maxWhy    = 1024
)

func (w want) encode() []byte {
	b := wire.AppendU32(nil, w.id)
	b = wire.AppendU64(b, w.bytes)
	b = wire.AppendBool(b, w.adopt)
	return wire.AppendU64(b, w.offset)
}

func decodeWant(p []byte) (want, error) {
	d := wire.NewDecoder(p)
	w := want{id: d.U32(), bytes: d.U64(), adopt: d.Bool(), offset: d.U64()}
	if w.bytes > maxBuffer || w.offset > maxBuffer {
		d.Fail(wire.ErrLimit)
	}
	return w, d.Done()
}

// place is where one seat's buffer lies: in which of the descriptors that come
// along, from where, how long.
type place struct {
	fd            int
	offset, bytes uint64
}

// placement tells everybody where the id-th buffer of each seat is, or why there is
// none.
type placement struct {
	id     uint32
	why    string
	places []place
}

func (a placement) encode() []byte {
	b := wire.AppendU32(nil, a.id)
	b = wire.AppendString(b, a.why)
	b = wire.AppendU32(b, uint32(len(a.places)))
	for _, p := range a.places {
		b = wire.AppendU32(b, uint32(p.fd))
		b = wire.AppendU64(b, p.offset)
		b = wire.AppendU64(b, p.bytes)
	}
	return b
}

func decodePlacement(p []byte, fds int) (placement, error) {
	d := wire.NewDecoder(p)
	a := placement{id: d.U32(), why: d.String(maxWhy)}
	n := d.Count(maxSeats, 20)
	for range n {
		q := place{fd: int(d.U32()), offset: d.U64(), bytes: d.U64()}
		if q.bytes > 0 && q.fd >= fds || q.offset > maxBuffer || q.bytes > maxBuffer {
			d.Fail(wire.ErrValue)
		}
		a.places = append(a.places, q)
	}
	return a, d.Done()
}

// verdict says of the segment (id 0) or a buffer (id ≥ 1) whether it is mapped: an
// empty why = yes. It is the payload of kindMapped, kindGo, kindRelease and kindFree.
type verdict struct {
	id    uint32
	why   string
	final bool // not for want of memory: TCP would not help either
}

func (v verdict) encode() []byte {
	b := wire.AppendString(wire.AppendU32(nil, v.id), v.why[:min(len(v.why), maxWhy)])
	return wire.AppendBool(b, v.final)
}

func decodeVerdict(p []byte) (verdict, error) {
	d := wire.NewDecoder(p)
	v := verdict{id: d.U32(), why: d.String(maxWhy), final: d.Bool()}
	return v, d.Done()
}

// verdictOn is the verdict that err is.
func verdictOn(id uint32, err error) verdict {
	if err == nil {
		return verdict{id: id}
	}
	var lack *UnavailableError
	if errors.As(err, &lack) {
		return verdict{id: id, why: lack.Reason.Error()}
	}
	return verdict{id: id, why: err.Error(), final: true}
}
