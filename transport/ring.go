package transport

import (
	"sync/atomic"
	"unsafe"
)

// A ring carries messages from one seat to another as fragments, each with the
// stamp of its operation, so that a message that was given up halfway leaves only
// whole fragments behind, which the next operation's reader drops. Positions count
// bytes and never wrap; a fragment starts on a line of its own.
type fragment struct {
	seq, print uint64
	total      uint64 // bytes of the message
	offset     uint64 // of this fragment in it
	n          uint32 // bytes here
	_          uint32
}

const (
	line         = 64
	shortPayload = line - int(unsafe.Sizeof(fragment{})) // fits behind the header in its line
	leastBite    = 4 << 10                               // of a longer message, to keep fragments few
)

// footprint is what a fragment of n bytes takes in the ring, start where its
// payload begins.
func footprint(n int) (total, start int) {
	if n <= shortPayload {
		return line, line - shortPayload
	}
	return alignUp(line+n, line), line
}

// ring is one end of a ring: the writer's or the reader's.
type ring struct {
	h    *ringHead
	data unsafe.Pointer
	size uint64 // power of two
	pos  uint64 // this end's position
	seen uint64 // the other end's, when last looked at
}

// ringPair are this seat's two ends towards one other seat.
type ringPair struct{ out, in ring }

func (r *ring) lay(h *ringHead, size int) {
	r.h, r.size = h, uint64(size)
	r.data = unsafe.Add(unsafe.Pointer(h), unsafe.Sizeof(*h))
}

func (r *ring) at(pos uint64) unsafe.Pointer {
	return unsafe.Add(r.data, pos&(r.size-1))
}

// copyIn and copyOut move payload over the ring's edge.
func (r *ring) copyIn(pos uint64, p []byte) {
	n := min(r.size-pos&(r.size-1), uint64(len(p)))
	copy(unsafe.Slice((*byte)(r.at(pos)), n), p[:n])
	copy(unsafe.Slice((*byte)(r.data), r.size), p[n:])
}

func (r *ring) copyOut(pos uint64, p []byte) {
	n := min(r.size-pos&(r.size-1), uint64(len(p)))
	copy(p[:n], unsafe.Slice((*byte)(r.at(pos)), n))
	copy(p[n:], unsafe.Slice((*byte)(r.data), r.size))
}

// push writes the next fragment of message p, of which off bytes are written, and
// returns the bytes in it; -1 when there is no room.
func (r *ring) push(s Stamp, p []byte, off int) int {
	n := min(len(p)-off, int(r.size)/4-line)
	need, start := footprint(n)
	room := int(r.size - (r.pos - r.seen))
	if room < need {
		r.seen = atomic.LoadUint64(&r.h.read)
		room = int(r.size - (r.pos - r.seen))
		if room < need {
			if room < line+leastBite || n <= leastBite {
				return -1
			}
			n = room - line
			need, start = room, line
		}
	}
	f := (*fragment)(r.at(r.pos))
	f.seq, f.print, f.total, f.offset, f.n = s.Seq, s.Print, uint64(len(p)), uint64(off), uint32(n)
	r.copyIn(r.pos+uint64(start), p[off:off+n])
	r.pos += uint64(need)
	atomic.SwapUint64(&r.h.written, r.pos)
	return n
}

// pull reads the next fragment into message p, of which off bytes are read, and
// returns the bytes in it; -1 when there is none. Fragments of older operations are
// dropped. theirs is set when the next fragment belongs to something else.
func (r *ring) pull(s Stamp, p []byte, off int) (n int, theirs *fragment) {
	for {
		if r.pos == r.seen {
			r.seen = atomic.LoadUint64(&r.h.written)
			if r.pos == r.seen {
				return -1, nil
			}
		}
		f := (*fragment)(r.at(r.pos))
		n = int(f.n)
		need, start := footprint(n)
		if f.seq >= s.Seq {
			if f.seq != s.Seq || f.print != s.Print || f.total != uint64(len(p)) || f.offset != uint64(off) ||
				n > len(p)-off {
				return 0, f
			}
			r.copyOut(r.pos+uint64(start), p[off:off+n])
		}
		stale := f.seq < s.Seq
		r.pos += uint64(need)
		atomic.SwapUint64(&r.h.read, r.pos)
		if !stale {
			return n, nil
		}
	}
}

// class is the kind of rings that an operation uses: pairs have their own, so that
// a message that nobody has asked for yet is in nobody's way.
func class(s Stamp) int { return int(s.Seq >> 63) }

// Send gives p to another seat of the board, Recv fills p from one, Exchange does
// both at once: see Mesh. A negative seat leaves that half out.
func (b *Board) Send(to int, p []byte) error { return b.Exchange(to, p, -1, nil) }

// Recv fills p from a seat.
func (b *Board) Recv(from int, p []byte) error { return b.Exchange(-1, nil, from, p) }

// Exchange sends to one seat and receives from one (the same or another), and
// progresses both.
func (b *Board) Exchange(to int, out []byte, from int, in []byte) error {
	pairs := b.rings[class(b.stamp)]
	sent, got := 0, 0
	sending, receiving := to >= 0, from >= 0
	w := waiting{seats: [2]int{to, from}, budget: -1, polls: b.ringPolls()}
	if f := b.failed.Load(); f != nil {
		return f.err
	}
	for {
		moved := false
		if sending {
			if n := pairs[to].out.push(b.stamp, out, sent); n >= 0 {
				moved, sent = true, sent+n
				if sending = sent < len(out); !sending {
					w.seats[0] = -1
				}
				b.knock(b.control[to])
			}
		}
		if receiving {
			r := &pairs[from].in
			n, theirs := r.pull(b.stamp, in, got)
			if theirs != nil {
				b.knock(b.control[from])
				return &MismatchError{Rank: b.ranks[from], Mine: b.stamp, Theirs: Stamp{theirs.seq, theirs.print}}
			}
			if n >= 0 {
				moved, got = true, got+n
				if receiving = got < len(in); !receiving {
					w.seats[1] = -1
				}
				b.knock(b.control[from])
			}
		}
		if !sending && !receiving {
			b.endIdle(&w)
			b.countRings(to, out, from, in)
			return nil
		}
		if moved {
			w.over, w.err, w.armed = false, nil, false
			w.polls = b.ringPolls()
			continue
		}
		if w.over {
			return b.giveUp(&w)
		}
		b.idle(&w)
	}
}

func (b *Board) ringPolls() int {
	if b.spin.yield {
		return ringLooks
	}
	return b.spin.polls
}

func (b *Board) countRings(to int, out []byte, from int, in []byte) {
	sent, received := len(out), len(in)
	if to < 0 {
		sent = 0
	}
	if from < 0 {
		received = 0
	}
	count(&b.traffic, uint64(sent), uint64(received))
}

// idle is one step of waiting for a ring: polls, then yields, then a sleep behind
// the seat's door. Whoever moves a ring of this seat looks at the door afterwards,
// and this seat looks at its rings once more after it has closed the door: both
// orders are kept by exchanges, so one of the two sees the other.
func (b *Board) idle(w *waiting) {
	switch {
	case w.polls > 0:
		w.polls--
		pause(1)
	case !w.begun:
		polled := *w
		*w = b.startWait(polled.seats[0], polled.seats[1], -1)
	case w.yields > 0:
		w.yields--
		b.waiter.Yield()
	case !w.armed:
		atomic.SwapUint32(&b.me.door, 1)
		w.armed = true
	default:
		sleep := b.check(w)
		if !w.over {
			b.waiter.Wait(&b.me.door, 1, sleep)
		}
		w.armed = false
		if w.over {
			atomic.StoreUint32(&b.me.door, 0)
		}
	}
}

// endIdle opens the door again and learns from the wait.
func (b *Board) endIdle(w *waiting) {
	if !w.begun {
		return
	}
	if atomic.LoadUint32(&b.me.door) != 0 {
		atomic.StoreUint32(&b.me.door, 0)
	}
	b.endWait(w)
}
