package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"hora/transport"
)

// mailbox carries control messages from one seat to another: a ring of length and
// bytes, written by whoever tells (under the sender's mutex), read by the one
// goroutine that hears.
type mailbox struct {
	written uint64
	_       [120]byte
	read    uint64
	_       [120]byte
	data    [mailboxData]byte
}

const (
	mailboxBytes = 48 << 10
	mailboxData  = mailboxBytes - 256
	mailHeader   = 4
)

var (
	_ [mailboxBytes - unsafe.Sizeof(mailbox{})]byte
	_ [mailboxData - transport.MaxTell - 2*mailHeader]byte
)

var errMailFull = errors.New("its mailbox is full; it has heard nothing for long")

func (m *mailbox) put(msg []byte) error {
	w, r := m.written, atomic.LoadUint64(&m.read)
	need := uint64(mailHeader + len(msg))
	if w-r+need > mailboxData {
		return errMailFull
	}
	var header [mailHeader]byte
	binary.LittleEndian.PutUint32(header[:], uint32(len(msg)))
	m.copyIn(w, header[:])
	m.copyIn(w+mailHeader, msg)
	atomic.StoreUint64(&m.written, w+need)
	return nil
}

func (m *mailbox) copyIn(pos uint64, p []byte) {
	n := copy(m.data[pos%mailboxData:], p)
	copy(m.data[:], p[n:])
}

func (m *mailbox) copyOut(pos uint64, p []byte) {
	n := copy(p, m.data[pos%mailboxData:])
	copy(p[n:], m.data[:])
}

// next reads one message into buf; ok is false when there is none. What makes no
// sense empties the box.
func (m *mailbox) next(buf *[transport.MaxTell]byte) (msg []byte, ok bool) {
	w, r := atomic.LoadUint64(&m.written), m.read
	if w == r {
		return nil, false
	}
	var header [mailHeader]byte
	m.copyOut(r, header[:])
	n := uint64(binary.LittleEndian.Uint32(header[:]))
	if n > transport.MaxTell || mailHeader+n > w-r {
		atomic.StoreUint64(&m.read, w)
		return nil, false
	}
	m.copyOut(r+mailHeader, buf[:n])
	atomic.StoreUint64(&m.read, r+mailHeader+n)
	return buf[:n], true
}

// post is this rank's side of all mailboxes.
type post struct {
	seat  int
	boxes [][]*mailbox
	bells []*os.File // eventfd of each seat; its own is what hear reads

	send []sync.Mutex // by seat: guards writing to its box; memory only
	buf  [transport.MaxTell]byte

	mu     sync.Mutex // guards listen
	listen func(from int, msg []byte)
}

func (p *post) tell(to int, msg []byte) error {
	if len(msg) > transport.MaxTell {
		return fmt.Errorf("tell: %d bytes, at most %d", len(msg), transport.MaxTell)
	}
	p.send[to].Lock()
	err := p.boxes[p.seat][to].put(msg)
	p.send[to].Unlock()
	if err != nil {
		return fmt.Errorf("tell: %w", err)
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	if _, err := p.bells[to].Write(one[:]); err != nil {
		return fmt.Errorf("tell: %w", err)
	}
	return nil
}

// hear hands every message to the listener until the bell is closed.
func (p *post) hear() {
	var count [8]byte
	for {
		if _, err := p.bells[p.seat].Read(count[:]); err != nil {
			return
		}
		p.mu.Lock()
		f := p.listen
		p.mu.Unlock()
		for from := range p.boxes {
			for {
				msg, ok := p.boxes[from][p.seat].next(&p.buf)
				if !ok {
					break
				}
				if f != nil {
					f(from, msg)
				}
			}
		}
	}
}

func (p *post) onTell(f func(from int, msg []byte)) {
	p.mu.Lock()
	p.listen = f
	p.mu.Unlock()
}

// hang takes the bells, of which this rank's own is read and all are written.
func (p *post) hang(fds []int) {
	for _, fd := range fds {
		p.bells = append(p.bells, os.NewFile(uintptr(fd), "bell"))
	}
}
