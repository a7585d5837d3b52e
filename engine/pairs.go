package engine

import (
	"fmt"
	"slices"
	"time"

	"hora/collective"
	"hora/internal/wire"
	"hora/tensor"
	"hora/transport"
)

// Sends and receives between two ranks have no place in the group's order: they travel
// as control messages, so that neither a send nor a collective that waits keeps others
// from going on. Messages of one sender with one tag arrive in the order of sending. A
// small one goes at once; a large one is offered, granted by the receiver when it is
// wanted, and streams under a window, so that nothing is buffered without bound.
//
// All state is guarded by Group.mu; letters are told without it, in the order of outbox.
type pairs struct {
	g        *Group
	number   uint64 // of this rank's last message
	sending  map[uint64]*message
	arrived  []*message // offered and not yet wanted, in order of arrival
	wanted   []*message // receives that nothing has come for, in order
	flowing  map[flow]*message
	eager    []int // per rank: bytes sent ahead that were not taken yet
	outbox   []letter
	flushing bool
	idle     chan struct{} // closed when nothing is queued any more; nil while nobody waits for that
	retry    *time.Timer
	gone     map[int]bool // ranks that have left; nil while none has
	sent     []uint64     // offers to each rank; nil while there were none
	heard    []uint64     // and from each
}

// message is one send or one receive on its way.
type message struct {
	op    *op // of this rank; nil for an offer that nobody wants yet
	from  int
	to    int
	id    uint64
	tag   int
	dtype tensor.DType
	bytes int
	small []byte    // of an offer that brought its data
	done  int       // bytes sent or received
	limit int       // bytes granted
	since time.Time // when it was posted
	timer *time.Timer
}

type flow struct {
	from int
	id   uint64
}

type letter struct {
	to  int
	msg []byte
}

const (
	eagerBytes  = 4 << 10   // sent with the offer
	eagerWindow = 1 << 20   // of those, in flight to one rank
	flowWindow  = 512 << 10 // granted ahead
	chunkBytes  = transport.MaxTell - 64
	tellRetry   = time.Millisecond
	deliverTime = 5 * time.Second // how long a rank that leaves tries to hand over what it sent
)

func (p *pairs) init(g *Group) {
	p.g = g
	p.sending, p.flowing = map[uint64]*message{}, map[flow]*message{}
}

// post begins o. Group.mu is held; the caller flushes after giving it up.
func (p *pairs) post(o *op) {
	g := p.g
	m := &message{op: o, tag: o.Tag, dtype: o.Type, since: time.Now()}
	if d := o.timeout(&g.cfg); d > 0 {
		m.timer = time.AfterFunc(d, func() { p.expire(m, d) })
	}
	if o.Kind == collective.RecvFrom {
		m.from, m.bytes = o.Peer, o.Recv.Len()
		p.wanted = append(p.wanted, m)
		p.match()
		if p.gone != nil {
			p.refuseGone(m)
		}
		return
	}
	if p.gone[o.Peer] {
		p.depart(m, o.Peer)
		return
	}
	p.number++
	p.tally(&p.sent, o.Peer)
	m.to, m.id, m.bytes = o.Peer, p.number, o.Send.Len()
	if p.eager == nil {
		p.eager = make([]int, g.Size())
	}
	ahead := m.bytes <= eagerBytes && p.eager[m.to]+m.bytes <= eagerWindow
	b := make([]byte, 0, 48+eagerBytes)
	b = wire.AppendU8(b, tellOffer)
	b = wire.AppendU64(b, m.id)
	b = wire.AppendI64(b, int64(m.tag))
	b = wire.AppendU8(b, uint8(m.dtype))
	b = wire.AppendU64(b, uint64(m.bytes))
	b = wire.AppendBool(b, ahead)
	if ahead {
		p.eager[m.to] += m.bytes
		b = wire.AppendBytes(b, o.Send.Bytes())
		p.put(m.to, b)
		p.close(m, nil)
		return
	}
	p.sending[m.id] = m
	p.put(m.to, b)
}

// close completes m's operation.
func (p *pairs) close(m *message, err error) {
	if m.timer != nil {
		m.timer.Stop()
	}
	if o := m.op; o != nil {
		m.op = nil
		if o.cell != nil {
			o.cell.result.source = m.from
		}
		p.g.complete(o, err)
	}
}

// match brings receives and offers together, oldest first.
func (p *pairs) match() {
	for i := 0; i < len(p.wanted); i++ {
		w := p.wanted[i]
		for j, a := range p.arrived {
			if a.tag != w.tag || w.from != AnyRank && w.from != a.from {
				continue
			}
			p.arrived = append(p.arrived[:j], p.arrived[j+1:]...)
			p.wanted = append(p.wanted[:i], p.wanted[i+1:]...)
			i--
			p.deliver(w, a)
			break
		}
	}
}

// deliver receives the offered message a as w asked.
func (p *pairs) deliver(w, a *message) {
	g := p.g
	w.from, w.id = a.from, a.id
	if a.dtype != w.dtype || a.bytes != w.bytes {
		text := fmt.Sprintf("Mismatched operations: rank %d sends %d bytes of %s with tag %d and rank %d receives %d bytes of %s; give both sides one type and size.",
			g.worldRank(a.from), a.bytes, a.dtype, a.tag, g.worldRank(g.Rank()), w.bytes, w.dtype)
		b := wire.AppendU8(nil, tellRefuse)
		b = wire.AppendU64(b, a.id)
		p.put(a.from, wire.AppendString(b, text))
		p.close(w, &MismatchError{Name: w.op.Name, Text: text})
		return
	}
	if a.small != nil || a.bytes == 0 {
		copy(w.op.Recv.Bytes(), a.small)
		b := wire.AppendU8(nil, tellTaken)
		p.put(a.from, wire.AppendU64(b, uint64(a.bytes)))
		p.close(w, nil)
		return
	}
	p.flowing[flow{a.from, a.id}] = w
	p.grant(w)
}

func (p *pairs) grant(m *message) {
	m.limit = min(m.done+flowWindow, m.bytes)
	b := wire.AppendU8(nil, tellGrant)
	b = wire.AppendU64(b, m.id)
	p.put(m.from, wire.AppendU64(b, uint64(m.limit)))
}

// hear takes a message of a pair.
func (p *pairs) hear(from int, kind uint8, d *wire.Decoder) {
	g := p.g
	g.mu.Lock()
	if g.cause.Load() == nil {
		p.take(from, kind, d)
	}
	g.mu.Unlock()
	p.flush()
}

// take acts on what rank from told. What does not fit any message of ours is dropped.
func (p *pairs) take(from int, kind uint8, d *wire.Decoder) {
	const most = 1 << 50
	switch kind {
	case tellOffer:
		a := &message{
			from: from, id: d.U64(), tag: d.Int(-most, most), dtype: tensor.DType(d.U8()),
			bytes: d.Int(0, most),
		}
		if d.Bool() {
			a.small = d.Bytes(eagerBytes)
			if d.Done() != nil || len(a.small) != a.bytes {
				return
			}
			a.small = append([]byte(nil), a.small...)
		} else if d.Done() != nil {
			return
		}
		p.arrived = append(p.arrived, a)
		p.tally(&p.heard, from)
		p.match()
	case tellGrant:
		id, limit := d.U64(), d.Int(0, most)
		if m := p.sending[id]; d.Done() == nil && m != nil && m.to == from && limit <= m.bytes {
			p.stream(m, limit)
		}
	case tellChunk:
		id, at := d.U64(), d.Int(0, most)
		data := d.Bytes(chunkBytes)
		m := p.flowing[flow{from, id}]
		if d.Done() != nil || m == nil || at != m.done || at+len(data) > m.limit {
			return
		}
		copy(m.op.Recv.Bytes()[at:], data)
		m.done += len(data)
		switch {
		case m.done == m.bytes:
			delete(p.flowing, flow{from, id})
			p.close(m, nil)
		case m.limit-m.done <= flowWindow/2 && m.limit < m.bytes:
			p.grant(m)
		}
	case tellTaken:
		if n := d.Int(0, eagerBytes); d.Done() == nil && p.eager != nil {
			p.eager[from] = max(p.eager[from]-n, 0)
		}
	case tellRefuse:
		id, text := d.U64(), d.String(maxDescribedName)
		if m := p.sending[id]; d.Done() == nil && m != nil && m.to == from {
			delete(p.sending, id)
			p.close(m, &MismatchError{Name: m.op.Name, Text: text})
		}
	}
}

// stream sends what the receiver has granted.
func (p *pairs) stream(m *message, limit int) {
	data := m.op.Send.Bytes()
	for m.done < limit {
		n := min(chunkBytes, limit-m.done)
		b := make([]byte, 0, 32+n)
		b = wire.AppendU8(b, tellChunk)
		b = wire.AppendU64(b, m.id)
		b = wire.AppendI64(b, int64(m.done))
		p.put(m.to, wire.AppendBytes(b, data[m.done:m.done+n]))
		m.done += n
	}
	if m.done == m.bytes {
		delete(p.sending, m.id)
		p.close(m, nil)
	}
}

// put queues a letter. Group.mu is held.
func (p *pairs) put(to int, msg []byte) {
	p.outbox = append(p.outbox, letter{to, msg})
}

// flush tells what is queued, in order. One goroutine at a time does it; what others
// queue meanwhile goes along. Group.mu is not held.
func (p *pairs) flush() {
	g := p.g
	g.mu.Lock()
	if p.flushing {
		g.mu.Unlock()
		return
	}
	p.flushing = true
	for len(p.outbox) > 0 && g.cause.Load() == nil {
		l := p.outbox[0]
		p.outbox = p.outbox[1:]
		g.mu.Unlock()
		sent := true
		if l.to == g.Rank() {
			d := wire.NewDecoder(l.msg[1:])
			p.hearMyself(l.msg[0], &d)
		} else {
			sent = g.tell(l.to, l.msg)
		}
		g.mu.Lock()
		if !sent {
			p.outbox = append([]letter{l}, p.outbox...)
			p.later()
			break
		}
	}
	if len(p.outbox) == 0 {
		p.outbox = nil
		p.rest()
	}
	p.flushing = false
	g.mu.Unlock()
}

// rest tells who waits for it that nothing is queued. Group.mu is held.
func (p *pairs) rest() {
	if p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}

// deliverAll waits until what is queued has been told: the sends that it belongs to have ended
// well.
func (p *pairs) deliverAll(limit time.Duration) {
	g := p.g
	g.mu.Lock()
	if len(p.outbox) == 0 && !p.flushing || g.cause.Load() != nil {
		g.mu.Unlock()
		return
	}
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle
	g.mu.Unlock()
	p.flush()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	}
}

// hearMyself hears a message to this very rank; the flush under way sends answers.
func (p *pairs) hearMyself(kind uint8, d *wire.Decoder) {
	g := p.g
	g.mu.Lock()
	p.take(g.Rank(), kind, d)
	g.mu.Unlock()
}

// later tries again when the link's queue was full. Group.mu is held.
func (p *pairs) later() {
	if p.retry == nil {
		p.retry = time.AfterFunc(tellRetry, p.flush)
		return
	}
	p.retry.Reset(tellRetry)
}

// expire gives up on a message that took too long. A receive that nothing has come for
// is forgotten; otherwise the other side may still use the buffer's contents or fill it,
// so the group ends.
func (p *pairs) expire(m *message, after time.Duration) {
	g := p.g
	g.mu.Lock()
	o := m.op
	if o == nil {
		g.mu.Unlock()
		return
	}
	peer := m.to
	if o.Kind == collective.RecvFrom {
		peer = m.from
	}
	late := g.translate(&transport.DeadlineError{Rank: peer, After: after})
	if i := slices.Index(p.wanted, m); i >= 0 {
		p.wanted = slices.Delete(p.wanted, i, i+1)
		p.close(m, &OperationError{Name: o.Name, Kind: o.Kind.String(), Err: late})
		g.mu.Unlock()
		return
	}
	g.mu.Unlock()
	g.Fail(late)
}

// fail completes everything with the group's error.
func (p *pairs) fail() {
	g := p.g
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range p.sending {
		p.close(m, g.failure(&m.op.Request))
	}
	for _, m := range p.flowing {
		p.close(m, g.failure(&m.op.Request))
	}
	for _, m := range p.wanted {
		p.close(m, g.failure(&m.op.Request))
	}
	clear(p.sending)
	clear(p.flowing)
	p.wanted, p.arrived, p.outbox = nil, nil, nil
	p.rest()
	if p.retry != nil {
		p.retry.Stop()
	}
}

// idleOps lists the receives of cell e that nothing has come for, after those in list.
// mu is held.
func (p *pairs) idleOps(e *cell, list []*op) []*op {
	for _, m := range p.wanted {
		if m.op.cell == e {
			list = append(list, m.op)
		}
	}
	return list
}

// remove forgets the receive o. mu is held.
func (p *pairs) remove(o *op) {
	for i, m := range p.wanted {
		if m.op == o {
			if m.timer != nil {
				m.timer.Stop()
			}
			m.op = nil
			p.wanted = append(p.wanted[:i], p.wanted[i+1:]...)
			return
		}
	}
}
