package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"hora/transport"
)

// desk is where the ranks of a host agree on registered buffers: each says what it
// wants, the lowest rank makes the memory once all have, passes it to all, and lets
// it be used once all have mapped it. On the lowest rank one goroutine owns the
// state; everywhere one goroutine per control connection reads.
type desk struct {
	turn    chan struct{} // one token: who holds it is asking
	next    uint32        // id of the next buffer; owned by who holds the turn
	waiting atomic.Uint32 // id that the asking call waits for; 0: none
	replies chan message  // for that call
	inbox   chan letter   // lowest rank: what the ranks want, its own wishes too
}

type letter struct {
	seat int
	m    message
}

// kindGone is the letter that says that no more will come from a seat. It never
// travels.
const kindGone = 0

// ledger is what the desk knows.
type ledger struct {
	table map[uint32]*pending
	gone  string // why there will be no more buffers; empty while all ranks are there
}

func (l *Link) openDesk() {
	l.desk.turn = make(chan struct{}, 1)
	l.desk.turn <- struct{}{}
	l.desk.next = 1
	l.desk.replies = make(chan message, 4)
	l.desk.inbox = make(chan letter, 4)
	if l.seat == 0 {
		l.work.Add(1)
		go l.serveDesk()
	}
	for seat, conn := range l.conns {
		if conn == nil {
			continue
		}
		l.work.Add(1)
		go l.read(seat, conn)
	}
}

// read takes what the other end of a control connection sends, until it closes.
func (l *Link) read(seat int, conn *net.UnixConn) {
	defer l.work.Done()
	for {
		m, err := receive(conn)
		if err != nil {
			l.hangUp(seat)
			if l.processes[seat] == nil { // no pidfd: this is how its end shows
				l.lose(seat, "connection closed")
			}
			return
		}
		if l.seat != 0 {
			l.deliver(m)
			continue
		}
		select {
		case l.desk.inbox <- letter{seat, m}:
		case <-l.closing:
			m.closeFDs()
			return
		}
	}
}

// hangUp ends what waits for a seat that has left in order. Of a seat that is lost the
// watch knows more.
func (l *Link) hangUp(seat int) {
	switch {
	case !l.board.Left(seat):
	case l.seat == 0:
		select {
		case l.desk.inbox <- letter{seat, message{kind: kindGone}}:
		case <-l.closing:
		}
	default:
		l.miss.Do(func() { close(l.missed) })
	}
}

// toLeader sends a wish or an answer; fd (-1: none) stays the caller's.
func (l *Link) toLeader(kind uint32, payload []byte, fd int) error {
	var fds []int
	if fd >= 0 {
		fds = []int{fd}
	}
	if l.seat != 0 {
		return send(l.conns[0], kind, payload, fds...)
	}
	m := message{kind: kind, payload: payload}
	if fd >= 0 {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("keep descriptor: %w", err)
		}
		m.fds = []int{dup}
	}
	select {
	case l.desk.inbox <- letter{0, m}:
		return nil
	case <-l.closing:
		m.closeFDs()
		return transport.ErrClosed
	}
}

// deliver hands a message of the lowest rank to the call that waits for it.
func (l *Link) deliver(m message) {
	if m.kind == kindFree {
		m.closeFDs()
		if v, err := decodeVerdict(m.payload); err == nil {
			l.regions.free(v.id)
		}
		return
	}
	id := uint32(0)
	if len(m.payload) >= 4 { // every payload begins with it
		id = *(*uint32)(unsafe.Pointer(&m.payload[0]))
	}
	if id != 0 && id == l.desk.waiting.Load() {
		select {
		case l.desk.replies <- m:
			return
		default:
		}
	}
	m.closeFDs()
	if m.kind == kindBuffer { // nobody waits any more: let the others know
		l.work.Add(1)
		go func() { // not from here: this may be the goroutine that empties the inbox
			defer l.work.Done()
			l.toLeader(kindMapped, verdict{id: id, why: fmt.Sprintf("rank %d gave up waiting for it", l.cfg.Rank)}.encode(), -1)
		}()
	}
}

// release tells the lowest rank that this one does not use a buffer any more.
func (l *Link) release(id uint32) {
	l.toLeader(kindRelease, verdict{id: id}.encode(), -1) // fails only when the link ends
}

// ask gets one buffer agreed on, mapped and registered.
func (l *Link) ask(ctx context.Context, w want, own unsafe.Pointer, fd int) (*Buffer, error) {
	select {
	case <-l.desk.turn:
	case <-ctx.Done():
		return nil, fmt.Errorf("make shared buffer: %w", context.Cause(ctx))
	case <-l.closing:
		return nil, fmt.Errorf("make shared buffer: %w", transport.ErrClosed)
	}
	defer func() { l.desk.turn <- struct{}{} }()
	w.id = l.desk.next
	l.desk.next++
	l.desk.waiting.Store(w.id)
	defer l.drain()
	if err := l.toLeader(kindWant, w.encode(), fd); err != nil {
		return nil, fmt.Errorf("make shared buffer: %w", err)
	}
	m, err := l.reply(ctx, kindBuffer)
	if err != nil {
		return nil, err
	}
	a, err := decodePlacement(m.payload, len(m.fds))
	if err == nil && a.why != "" {
		m.closeFDs()
		return nil, unavailable("make buffer: %s", a.why)
	}
	var region *mapping
	if err == nil {
		region, err = l.mapBuffer(a, m.fds, own)
	}
	m.closeFDs()
	if e := l.toLeader(kindMapped, verdictOn(w.id, err).encode(), -1); e != nil {
		err = errors.Join(err, e)
	}
	if err == nil {
		err = l.verdict(ctx)
	}
	if err != nil {
		if region != nil {
			region.unmap(true, true)
			l.release(w.id)
		}
		return nil, err
	}
	for seat := range region.parts { // everybody's pages are there by now
		if mem := region.parts[seat].mem; mem != nil && seat != l.seat {
			populate(mem)
		}
	}
	l.regions.add(region)
	once := make(chan struct{}, 1)
	once <- struct{}{}
	return &Buffer{l, region, once}, nil
}

// verdict waits for the lowest rank's word that all ranks have mapped the buffer.
func (l *Link) verdict(ctx context.Context) error {
	m, err := l.reply(ctx, kindGo)
	if err != nil {
		return err
	}
	m.closeFDs()
	v, err := decodeVerdict(m.payload)
	if err != nil {
		return fmt.Errorf("make shared buffer: %w", err)
	}
	if v.why != "" {
		return unavailable("map buffer: %s", v.why)
	}
	return nil
}

func (l *Link) reply(ctx context.Context, kind uint32) (message, error) {
	select {
	case m := <-l.desk.replies:
		if m.kind != kind {
			m.closeFDs()
			return m, fmt.Errorf("make shared buffer: message of kind %d, expected %d", m.kind, kind)
		}
		return m, nil
	case <-l.missed: // every rank is needed for this
		if err := l.failure(); err != nil {
			return message{}, fmt.Errorf("make shared buffer: %w", err)
		}
		return message{}, errors.New("make shared buffer: a rank of this host has left")
	case <-l.failed:
		return message{}, fmt.Errorf("make shared buffer: %w", l.board.Err())
	case <-l.closing:
		return message{}, fmt.Errorf("make shared buffer: %w", transport.ErrClosed)
	case <-ctx.Done():
		return message{}, fmt.Errorf("make shared buffer: wait for all ranks of host %s: %w", l.cfg.Host, context.Cause(ctx))
	}
}

func (l *Link) drain() {
	l.desk.waiting.Store(0)
	for {
		select {
		case m := <-l.desk.replies:
			m.closeFDs()
		default:
			return
		}
	}
}

// pending is one buffer that the desk has not seen the end of.
type pending struct {
	wants    []*want
	fds      []int // of who brings memory; by seat, -1: none
	got      int
	mapped   int
	released int
	why      string
}

// serveDesk is the lowest rank's side; it owns the table of buffers.
func (l *Link) serveDesk() {
	defer l.work.Done()
	book := ledger{table: map[uint32]*pending{}}
	defer func() {
		for _, p := range book.table {
			p.closeFDs()
		}
		for {
			select {
			case in := <-l.desk.inbox:
				in.m.closeFDs()
			default:
				return
			}
		}
	}()
	for {
		select {
		case in := <-l.desk.inbox:
			if err := l.serve(&book, in); err != nil {
				l.cfg.Log.Warn("a control message made no sense", "rank", l.cfg.Ranks[in.seat], "err", err)
			}
			in.m.closeFDs()
		case <-l.closing:
			return
		}
	}
}

func (l *Link) serve(book *ledger, in letter) error {
	table := book.table
	switch in.m.kind {
	case kindGone:
		l.close(book, in.seat)
		return nil
	case kindWant:
		w, err := decodeWant(in.m.payload)
		if err != nil {
			return err
		}
		if book.gone != "" {
			l.toSeat(in.seat, kindBuffer, placement{id: w.id, why: book.gone}.encode())
			return nil
		}
		p := table[w.id]
		if p == nil {
			p = &pending{wants: make([]*want, l.seats), fds: make([]int, l.seats)}
			for i := range p.fds {
				p.fds[i] = -1
			}
			table[w.id] = p
		}
		if p.wants[in.seat] != nil {
			return fmt.Errorf("buffer %d is wanted twice", w.id)
		}
		p.wants[in.seat], p.fds[in.seat] = &w, in.m.takeFD(0)
		if p.got++; p.got == l.seats {
			if !l.place(w.id, p) {
				delete(table, w.id)
			}
		}
		return nil
	}
	v, err := decodeVerdict(in.m.payload)
	if err != nil {
		return err
	}
	p := table[v.id]
	if p == nil {
		return nil // it failed; its last answers are still coming
	}
	switch in.m.kind {
	case kindMapped:
		if v.why != "" && p.why == "" {
			p.why = v.why
		}
		if p.mapped++; p.mapped == l.seats {
			l.toAll(kindGo, verdict{id: v.id, why: p.why}.encode())
			if p.why != "" {
				delete(table, v.id)
			}
		}
	case kindRelease:
		if p.released++; p.released == l.seats {
			l.toAll(kindFree, verdict{id: v.id}.encode())
			delete(table, v.id)
		}
	default:
		return fmt.Errorf("kind %d", in.m.kind)
	}
	return nil
}

// close ends what a rank that has gone would have to agree to, now and later.
func (l *Link) close(book *ledger, seat int) {
	book.gone = fmt.Sprintf("rank %d has left", l.cfg.Ranks[seat])
	for id, p := range book.table {
		switch {
		case p.got < l.seats:
			l.toAll(kindBuffer, placement{id: id, why: book.gone}.encode())
		case p.mapped < l.seats:
			l.toAll(kindGo, verdict{id: id, why: book.gone}.encode())
		default:
			continue // in use; its releases are still counted
		}
		p.closeFDs()
		delete(book.table, id)
	}
}

func (p *pending) closeFDs() {
	for i, fd := range p.fds {
		closeFD(fd)
		p.fds[i] = -1
	}
}

// bufferAlign keeps parts apart by a page, or by what a large page needs.
func bufferAlign(n uint64) uint64 {
	const large = 2 << 20
	if n >= large {
		return large
	}
	return pageBytes
}

// place makes the memory that nobody brings and tells everybody where all parts are.
func (l *Link) place(id uint32, p *pending) bool {
	defer p.closeFDs()
	a := placement{id: id, places: make([]place, l.seats)}
	var fds []int
	size := uint64(0)
	for seat, w := range p.wants {
		switch {
		case !w.adopt:
			align := bufferAlign(w.bytes)
			size = (size + align - 1) / align * align
			a.places[seat] = place{0, size, w.bytes}
			size += w.bytes
		case p.fds[seat] < 0:
			a.why = fmt.Sprintf("rank %d could not give its memory", l.cfg.Ranks[seat])
		}
	}
	if size > 0 && a.why == "" {
		size = (size + pageBytes - 1) &^ (pageBytes - 1)
		fd, err := newMemory("hora buffer", int(size), 0)
		if err == nil {
			err = checkLimits(int(size), int(size))
		}
		if err != nil {
			a.why = err.Error()
		}
		defer closeFD(fd)
		fds = append(fds, fd)
	}
	for seat, w := range p.wants {
		if w.adopt && a.why == "" {
			a.places[seat] = place{len(fds), w.offset, w.bytes}
			fds = append(fds, p.fds[seat])
		}
	}
	if a.why != "" {
		a.places, fds = nil, nil
	}
	l.toAll(kindBuffer, a.encode(), fds...)
	return a.why == ""
}

// toAll sends to every rank, this one last.
func (l *Link) toAll(kind uint32, payload []byte, fds ...int) {
	for seat := l.seats - 1; seat >= 0; seat-- {
		l.toSeat(seat, kind, payload, fds...)
	}
}

// toSeat sends to a rank, or delivers to this one.
func (l *Link) toSeat(seat int, kind uint32, payload []byte, fds ...int) {
	if conn := l.conns[seat]; conn != nil {
		if err := send(conn, kind, payload, fds...); err != nil {
			l.cfg.Log.Debug("a rank cannot be told about a buffer", "rank", l.cfg.Ranks[seat], "err", err)
		}
		return
	}
	m := message{kind: kind, payload: payload}
	for _, fd := range fds {
		if dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			m.fds = append(m.fds, dup)
		}
	}
	l.deliver(m)
}
