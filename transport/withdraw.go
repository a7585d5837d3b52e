package transport

import (
	"math"
	"sync/atomic"
	"time"
)

// What an operation leaves behind when it fails.
//
// Slots, parts, arrivals and rings are the board's: nobody uses them again after a loss,
// and the memory is gone with its last mapping. Registered memory is a user's. A rank
// that has said in its header where it lies may get its error while another, which has
// seen all headers, still reads it or stores into it. Were the error handed out at once,
// its user would restore the buffer or fill it with something else, and the other's late
// stores would spoil that, or the other would reduce what was never meant for it: if
// everybody has posted the operation's last phase by then, with success.
//
// So a rank that has lent memory withdraws before it hands its error out: it publishes
// the failure, and then waits for each rank that has arrived in the operation until that
// one has posted the phase after which it touches nothing of others, has withdrawn
// itself, has left or is lost. Who arrives later finds the failure after its arrival
// (Sound) and touches nothing. That none is overlooked is Dekker's argument: one
// publishes the failure and then looks at arrivals, the other publishes its arrival and
// then looks for a failure; between the two stand exchanges, or the fence that the first
// one sends to all processors.
//
// A rank that is lost because it fell silent (stopped, not dead) may yet wake up in the
// middle of a store. Sound between pieces of a long one bounds what it can do then: of a
// write through the system (Poke), which is over before a stop takes effect, what is left is
// the moment between Sound and the call. Who
// replaces a silent rank must end its process first.

// AllPhases as Withdraw's last phase waits for others to withdraw: what phase they
// touch memory to is not known.
const AllPhases = math.MaxUint32

// Sound is nil while no rank of the board has failed, to be asked between the headers
// and the first touch of another rank's memory, and from piece to piece of it.
func (b *Board) Sound() error {
	if f := b.failed.Load(); f != nil {
		return f.err
	}
	if atomic.LoadUint32(&b.head.failure.state) == 0 {
		return nil
	}
	err := b.head.failure.settled(b.waiter)
	b.Fail(err)
	return b.Err()
}

// settled reads a record that is there or on its way. Who began it may have died; then
// the watch knows more.
func (r *record) settled(w Waiter) *PeerLostError {
	for range 1000 {
		if lost := r.read(); lost != nil {
			return lost
		}
		w.Yield()
	}
	return &PeerLostError{Rank: -1, Reason: "a rank of this host ended the group"}
}

// Withdraw ends this rank's part in the board over err, which the present operation has
// failed with: its driver touches no other rank's memory any more. It returns when no
// other rank touches this one's, which it had lent them for this operation up to the
// post of phase last (0: it had lent none), or after the peer timeout.
func (b *Board) Withdraw(err error, last uint32) {
	atomic.StoreUint32(&b.me.out, 1)
	if last == 0 {
		return
	}
	b.Fail(err)
	b.head.failure.publish(b.lostTo(err)) // also where this rank has left meanwhile
	b.head.failure.settled(b.waiter)
	if b.cfg.Fence != nil {
		b.cfg.Fence()
	}
	until := time.Now().Add(b.cfg.peerTimeout())
	for seat, c := range b.control {
		if seat == b.seat {
			continue
		}
		for b.touches(seat, last) && time.Now().Before(until) {
			p := &c.progress
			if v := atomic.LoadUint64(p); b.touches(seat, last) {
				b.waiter.Wait(low(p), uint32(v), unfenced)
			}
		}
	}
}

// touches reports that a seat has arrived in the present operation and may still be
// using memory that it found there.
func (b *Board) touches(seat int, last uint32) bool {
	c := b.control[seat]
	if int64(atomic.LoadUint64(&c.arrive[b.parity].word)&^1-b.want) < 0 {
		return false
	}
	if last != AllPhases && int64(atomic.LoadUint64(&c.progress)&^1-(b.base|uint64(last)<<1)) >= 0 {
		return false
	}
	return atomic.LoadUint32(&c.out) == 0 && !b.Left(seat) && (b.cfg.Lost == nil || !b.cfg.Lost(seat))
}
