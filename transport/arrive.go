package transport

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// Begin starts an operation on the board: until the next Begin everything belongs
// to it. The zero deadline means none. A mesh's Begin does this for its board.
func (b *Board) Begin(s Stamp, deadline time.Time) {
	b.stamp, b.deadline = s, deadline
	b.parity = int(s.Seq & 1)
	b.want = s.Seq << 1
	b.base = s.Seq << 24
	b.waited = time.Time{}
}

// Arrive posts this rank's header for the present operation: its fingerprint and
// at most InlineBytes of payload.
//
// The lines of the next operation's header are asked for ahead of time, while this rank
// waits: nobody looks at them before he has seen this one.
func (b *Board) Arrive(inline []byte) {
	a := b.arrivals[b.parity&1][b.seat]
	a.print = b.stamp.Print
	copy(a.inline[:], inline)
	b.publish(&a.word, b.want, unsafe.Pointer(b.arrivals[b.parity&1^1][b.seat]))
}

// AwaitArrival waits for a seat's header, at most for budget (negative: no bound),
// and returns its payload: a view of InlineBytes that stands until the operation
// ends. ok is false when the budget was used up, with no error. A header with
// another fingerprint is a *MismatchError; the caller should still await all the
// others, so that every rank knows the same.
func (b *Board) AwaitArrival(seat int, budget time.Duration) (inline []byte, ok bool, err error) {
	a := b.arrivals[b.parity&1][seat]
	if v := atomic.LoadUint64(&a.word); int64(v-b.want) < 0 {
		if ok, err := b.await(&a.word, b.want, seat, budget); !ok {
			return nil, false, err
		}
	}
	if v := atomic.LoadUint64(&a.word); (v^b.want)>>1 != 0 || a.print != b.stamp.Print {
		theirs := Stamp{Seq: b.stamp.Seq + (v-b.want)>>1, Print: a.print}
		return nil, true, &MismatchError{Rank: b.ranks[seat], Mine: b.stamp, Theirs: theirs}
	}
	return a.inline[:], true, nil
}

// Post says that this rank has reached phase (1, 2, 3 …, at most 2²³−1) of the
// present operation: what it wrote before is there for whoever awaits it.
func (b *Board) Post(phase uint32) {
	b.publish(b.progress[b.seat], b.base|uint64(phase)<<1, unsafe.Pointer(b.progress[b.seat]))
}

// publish makes a word of this seat v, after everything that it wrote before, and
// wakes who sleeps for it. next is where this seat will write next: no pointer to a field,
// whose address the compiler would take with a read of that line, which stops the rank here
// until the line has come back from whoever read it last.
func (b *Board) publish(p *uint64, v uint64, next unsafe.Pointer) {
	if b.plain {
		if storeLoad(p, v, b.sleepers, next) != 0 {
			b.waiter.Wake(low(p))
		}
	} else if atomic.SwapUint64(p, v)&1 != 0 {
		b.waiter.Wake(low(p))
	}
}

// Await waits until a seat has posted at least phase of this operation, or is past
// it.
func (b *Board) Await(seat int, phase uint32) error {
	p := b.progress[seat]
	want := b.base | uint64(phase)<<1
	if int64(atomic.LoadUint64(p)-want) >= 0 {
		return nil
	}
	_, err := b.await(p, want, seat, -1)
	return err
}

// AwaitAll waits until every other seat has posted at least phase.
func (b *Board) AwaitAll(phase uint32) error {
	for i := 1; i < b.seats; i++ {
		seat := b.seat + i
		if seat >= b.seats {
			seat -= b.seats
		}
		if err := b.Await(seat, phase); err != nil {
			return err
		}
	}
	return nil
}
