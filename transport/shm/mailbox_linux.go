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

// A mailbox carries control messages from one seat to another: a ring of length and
// bytes, written by whoever tells (under the sender's mutex), read by the one
// goroutine that hears.
type mailHead struct {
	written uint64
	_       [120]byte
	read    uint64
	_       [120]byte
}

// mailbox is one as this process maps it.
type mailbox struct {
	head *mailHead
	data []byte
}

const mailHeader = 4 // a message's length goes before it

// mailboxBytes is what each of the seats² mailboxes takes; pages that no message ever
// reached take no memory. Messages between two ranks go through here as well, so a
// box should hold more than the window that the engine grants.
func mailboxBytes(seats int) int {
	switch {
	case seats <= 8:
		return 2 << 20
	case seats <= 32:
		return 512 << 10
	}
	return 64 << 10
}

func newMailbox(mem []byte) *mailbox {
	n := int(unsafe.Sizeof(mailHead{}))
	return &mailbox{(*mailHead)(unsafe.Pointer(&mem[0])), mem[n:]}
}

var errMailFull = errors.New("its mailbox is full; it has heard nothing for long")

func (m *mailbox) put(msg []byte) error {
	w, r := m.head.written, atomic.LoadUint64(&m.head.read)
	need := uint64(mailHeader + len(msg))
	if w-r+need > uint64(len(m.data)) {
		return errMailFull
	}
	var header [mailHeader]byte
	binary.LittleEndian.PutUint32(header[:], uint32(len(msg)))
	m.copyIn(w, header[:])
	m.copyIn(w+mailHeader, msg)
	atomic.StoreUint64(&m.head.written, w+need)
	return nil
}

func (m *mailbox) copyIn(pos uint64, p []byte) {
	n := copy(m.data[pos%uint64(len(m.data)):], p)
	copy(m.data, p[n:])
}

func (m *mailbox) copyOut(pos uint64, p []byte) {
	n := copy(p, m.data[pos%uint64(len(m.data)):])
	copy(p[n:], m.data)
}

// next reads one message into buf; ok is false when there is none. What makes no
// sense empties the box.
func (m *mailbox) next(buf *[transport.MaxTell]byte) (msg []byte, ok bool) {
	w, r := atomic.LoadUint64(&m.head.written), m.head.read
	if w == r {
		return nil, false
	}
	var header [mailHeader]byte
	m.copyOut(r, header[:])
	n := uint64(binary.LittleEndian.Uint32(header[:]))
	if n > transport.MaxTell || mailHeader+n > w-r {
		atomic.StoreUint64(&m.head.read, w)
		return nil, false
	}
	m.copyOut(r+mailHeader, buf[:n])
	atomic.StoreUint64(&m.head.read, r+mailHeader+n)
	return buf[:n], true
}

// post is this rank's side of all mailboxes.
type post struct {
	seat  int
	boxes [][]*mailbox
	awake []*uint32  // of each seat, in the segment: 1 while its hearer looks at its boxes
	bells []*os.File // eventfd of each seat; its own is what hear reads

	send []sync.Mutex // by seat: guards writing to its box; memory only
	buf  [transport.MaxTell]byte

	mu        sync.Mutex // guards listen and listening
	listen    func(from int, msg []byte)
	listening bool          // somebody has said who hears, if anybody; until then all stays in the boxes
	caught    chan struct{} // closed when what came before that has been handed over, or the link has ended
	catch     sync.Once
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
	if atomic.LoadUint32(p.awake[to]) != 0 {
		return nil // it looks once more before it sleeps
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	if _, err := p.bells[to].Write(one[:]); err != nil {
		return fmt.Errorf("tell: %w", err)
	}
	return nil
}

// hear hands every message to the listener until the bell is closed. Whoever tells
// puts the message first and asks then whether this rank is awake; this rank says
// that it is not and looks once more then. So one of the two sees the other.
func (p *post) hear() {
	defer p.caughtUp()
	var count [8]byte
	awake := p.awake[p.seat]
	for {
		atomic.StoreUint32(awake, 1)
		p.empty()
		atomic.StoreUint32(awake, 0)
		p.empty()
		if _, err := p.bells[p.seat].Read(count[:]); err != nil {
			return
		}
	}
}

// empty hands over what has come so far, once it is known to whom: whose box is full by then
// tries again.
func (p *post) empty() {
	p.mu.Lock()
	f, listening := p.listen, p.listening
	p.mu.Unlock()
	if !listening {
		return
	}
	defer p.caughtUp()
	for {
		quiet := true
		for from := range p.boxes {
			for {
				msg, ok := p.boxes[from][p.seat].next(&p.buf)
				if !ok {
					break
				}
				quiet = false
				if f != nil {
					f(from, msg)
				}
			}
		}
		if quiet {
			return
		}
	}
}

// onTell returns when what came before it has been heard: a loss that the listener is told of
// afterwards must not come before what the lost rank said.
func (p *post) onTell(f func(from int, msg []byte)) {
	p.mu.Lock()
	first := !p.listening
	p.listen, p.listening = f, true
	p.mu.Unlock()
	if !first {
		return
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	if _, err := p.bells[p.seat].Write(one[:]); err == nil {
		<-p.caught
	}
}

func (p *post) caughtUp() { p.catch.Do(func() { close(p.caught) }) }

// hang takes the bells, of which this rank's own is read and all are written.
func (p *post) hang(fds []int) {
	for _, fd := range fds {
		p.bells = append(p.bells, os.NewFile(uintptr(fd), "bell"))
	}
}
