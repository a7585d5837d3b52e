package transport

import (
	"bytes"
	"sync/atomic"
	"time"
	"unsafe"
)

// The low bits of head.mismatch are the seat.
const seatBits = 10

// mismatch is the reason, if any, to believe that the present operation fails to
// match: somebody explains it, or, once this rank has waited for long, somebody
// waits in the same operation with another fingerprint.
func (b *Board) mismatch(probe bool) error {
	seq := b.stamp.Seq
	if seq&PairSeq != 0 {
		return nil
	}
	m := atomic.LoadUint64(&b.head.mismatch)
	if seat := int(m & (1<<seatBits - 1)); m>>seatBits == seq<<seatBits>>seatBits && seat != b.seat {
		if s, ok := b.seen(seat); ok && s.Print != b.stamp.Print {
			return &MismatchError{Rank: b.ranks[seat], Mine: b.stamp, Theirs: s}
		}
		return &MismatchError{Rank: -1, Mine: b.stamp, Theirs: Stamp{Seq: seq}}
	}
	if !probe {
		return nil
	}
	if p := &b.me.probe; atomic.LoadUint64(&p.seq) != seq || atomic.LoadUint64(&p.print) != b.stamp.Print {
		atomic.AddUint64(&p.version, 1)
		atomic.StoreUint64(&p.seq, seq)
		atomic.StoreUint64(&p.print, b.stamp.Print)
		atomic.AddUint64(&p.version, 1)
	}
	for seat := range b.seats {
		if s, ok := b.seen(seat); ok && s.Print != b.stamp.Print {
			return &MismatchError{Rank: b.ranks[seat], Mine: b.stamp, Theirs: s}
		}
	}
	return nil
}

// seen is a seat's fingerprint of the present operation, where it has published
// one: its header, or its probe.
func (b *Board) seen(seat int) (Stamp, bool) {
	c := b.control[seat]
	// No one can post over this operation's header before this rank is done with it.
	if a := &c.arrive[b.parity]; atomic.LoadUint64(&a.word)>>1 == b.want>>1 {
		return Stamp{b.stamp.Seq, a.print}, true
	}
	version := atomic.LoadUint64(&c.probe.version)
	s := Stamp{atomic.LoadUint64(&c.probe.seq), atomic.LoadUint64(&c.probe.print)}
	ok := s.Seq == b.stamp.Seq && version&1 == 0 && version == atomic.LoadUint64(&c.probe.version)
	return s, ok
}

// arrived reports whether a seat has posted its header of the present operation or of a
// later one.
func (b *Board) arrived(seat int) bool {
	return int64(atomic.LoadUint64(&b.control[seat].arrive[b.parity].word)&^1-b.want) >= 0
}

// CatchUp waits, before a rank posts anything of an operation, for seats that had not
// even come to an earlier one when this rank was done with explaining that: they may
// still read what it has posted for the one before, in the memory of the same parity. It
// costs nothing otherwise. budget and ok are AwaitArrival's.
func (b *Board) CatchUp(budget time.Duration) (ok bool, err error) {
	if b.behind == 0 {
		return true, nil
	}
	for seat := range b.seats {
		if seat == b.seat {
			continue
		}
		p, want := &b.control[seat].arrive[b.behind&1].word, b.behind<<1
		if int64(atomic.LoadUint64(p)-want) >= 0 {
			continue
		}
		if ok, err := b.await(p, want, seat, budget); !ok {
			return false, err
		}
	}
	b.behind = 0
	return true, nil
}

// passed reports whether a seat has arrived in a later operation: it had all that it
// needed of this one and has nothing to explain.
func (b *Board) passed(seat int) bool {
	for i := range b.control[seat].arrive {
		word := atomic.LoadUint64(&b.control[seat].arrive[i].word)
		if int64(word&^1-b.want) > 0 {
			return true
		}
	}
	return false
}

// Explain exchanges descriptions of the present operation, which failed to match,
// in seat order; nil stands for a seat that was lost, left, is past this operation or
// did not come to it within the peer timeout. See Mesh.Explain. An operation that only two
// ranks know of is not explained: the result has nothing but mine.
func (b *Board) Explain(mine []byte) ([][]byte, error) {
	mine = bytes.Clone(mine[:min(len(mine), MaxDescription)])
	out := make([][]byte, b.seats)
	out[b.seat] = mine
	if b.stamp.Seq&PairSeq != 0 {
		return out, nil
	}
	d := &b.describe[b.seat][b.parity]
	d.n = uint32(copy(d.text[:], mine))
	b.publish(&d.word, b.want, unsafe.Pointer(d))
	b.announce()
	until := time.Now().Add(b.cfg.peerTimeout())
	for seat := range b.seats {
		if seat == b.seat {
			continue
		}
		d := &b.describe[seat][b.parity]
		ok, err := b.awaitDescription(d, seat, max(time.Until(until), 0))
		if f := b.failed.Load(); !ok && f != nil {
			return out, f.err
		}
		if ok && err == nil {
			out[seat] = bytes.Clone(d.text[:min(d.n, MaxDescription)])
		} else if !b.arrived(seat) {
			b.behind = b.stamp.Seq
		}
	}
	return out, nil
}

// announce makes the present operation the one that is being explained.
func (b *Board) announce() {
	next := b.stamp.Seq<<seatBits | uint64(b.seat)
	for {
		m := atomic.LoadUint64(&b.head.mismatch)
		if m>>seatBits >= next>>seatBits {
			return
		}
		if atomic.CompareAndSwapUint64(&b.head.mismatch, m, next) {
			b.ringDoors()
			return
		}
	}
}

func (b *Board) awaitDescription(d *description, seat int, budget time.Duration) (bool, error) {
	w := b.startWait(seat, -1, budget)
	w.explain = true
	return b.sleepFor(&w, &d.word, b.want)
}
