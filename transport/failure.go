package transport

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// record is the first failure that any rank of the board has given up over, for
// all the others to read. It is written once.
type record struct {
	state           uint32 // 0 none, 1 being written, 2 there
	rank            int32
	hostLen, whyLen uint32
	host            [128]byte
	why             [512]byte
}

func (r *record) publish(e *PeerLostError) {
	if !atomic.CompareAndSwapUint32(&r.state, 0, 1) {
		return
	}
	r.rank = int32(e.Rank)
	r.hostLen = uint32(copy(r.host[:], e.Host))
	r.whyLen = uint32(copy(r.why[:], e.Reason))
	atomic.StoreUint32(&r.state, 2)
}

func (r *record) read() *PeerLostError {
	if atomic.LoadUint32(&r.state) != 2 {
		return nil
	}
	host := r.host[:min(int(r.hostLen), len(r.host))]
	why := r.why[:min(int(r.whyLen), len(r.why))]
	return &PeerLostError{Rank: int(r.rank), Host: string(host), Reason: string(why)}
}

type failure struct{ err error }

// notifier calls each listener once, when there is something to say.
type notifier struct {
	mu   sync.Mutex // guards the fields; never held while a listener runs
	err  error
	list []func(error)
}

func (n *notifier) add(f func(error)) {
	n.mu.Lock()
	err := n.err
	if err == nil {
		n.list = append(n.list, f)
	}
	n.mu.Unlock()
	if err != nil {
		f(err)
	}
}

func (n *notifier) tell(err error) {
	n.mu.Lock()
	if n.err != nil {
		n.mu.Unlock()
		return
	}
	list := n.list
	n.err, n.list = err, nil
	n.mu.Unlock()
	for _, f := range list {
		f(err)
	}
}

// OnFail has f called once, from any goroutine, when the board has failed; at once
// if it already has.
func (b *Board) OnFail(f func(error)) { b.onFail.add(f) }

// Fail ends every present and later wait on the board with err, and those of the
// other seats with an error that says the same of this rank. The first failure
// stands. This rank's own wait ends at once, those of other seats within 50 ms.
func (b *Board) Fail(err error) {
	if err == nil || !b.failed.CompareAndSwap(nil, &failure{err}) {
		return
	}
	b.head.failure.publish(b.lostTo(err))
	b.ringDoors()
	if word := b.asleep.Load(); word != nil {
		b.waiter.Wake(word)
	}
	b.onFail.tell(err)
}

// lostTo is err as the other seats are told it.
func (b *Board) lostTo(err error) *PeerLostError {
	var lost *PeerLostError
	if errors.As(err, &lost) {
		return lost
	}
	me := &PeerLostError{Rank: b.ranks[b.seat], Host: b.cfg.Host}
	var late *DeadlineError
	switch {
	case errors.Is(err, ErrClosed):
		me.Reason = ReasonLeft
	case errors.As(err, &late):
		me.Reason = ReasonLate(late)
	default:
		me.Reason = "ended the group: " + err.Error()
	}
	return me
}

// Leave says that this rank posts nothing more. Who waits for it from now on gets
// a *PeerLostError with ReasonLeft; what it has posted stands. Its own waits fail
// with ErrClosed.
func (b *Board) Leave() {
	b.failed.CompareAndSwap(nil, &failure{ErrClosed})
	atomic.StoreUint32(&b.me.left, 1)
	b.ringDoors()
}

// Err is why the board has failed on this rank; nil while it has not.
func (b *Board) Err() error {
	if f := b.failed.Load(); f != nil {
		return f.err
	}
	return nil
}

// Left reports whether a seat has left in order.
func (b *Board) Left(seat int) bool { return atomic.LoadUint32(&b.control[seat].left) != 0 }

// failure is the reason, if any, why a wait should end now.
func (b *Board) failure(w *waiting, now time.Time) error {
	if f := b.failed.Load(); f != nil {
		return f.err
	}
	if lost := b.head.failure.read(); lost != nil {
		return lost
	}
	for _, seat := range w.seats {
		if seat >= 0 && seat != b.seat && b.Left(seat) {
			return &PeerLostError{Rank: b.ranks[seat], Host: b.cfg.Host, Reason: ReasonLeft}
		}
	}
	if b.cfg.Failure == nil {
		return nil
	}
	err := b.cfg.Failure()
	if err == nil {
		return nil // before lost, which is allocated
	}
	var lost *PeerLostError
	if !errors.As(err, &lost) {
		return err
	}
	for _, seat := range w.seats {
		if seat >= 0 && b.ranks[seat] == lost.Rank {
			return err
		}
	}
	// Somebody else is lost. Whom this rank waits for may have all that it needs
	// (a process that ends after its last operation is no harm), so give it a
	// moment; if it does wait for the lost rank it will say so on the board.
	if b.lostAt.IsZero() {
		b.lostAt = now
	}
	if w.explain || now.Sub(b.lostAt) < lossGrace {
		return nil
	}
	return err
}

// giveUp is how a wait returns its final error: losses and deadlines end the board,
// a mismatch does not.
func (b *Board) giveUp(w *waiting) error {
	var mismatch *MismatchError
	if w.err == nil || w.explain || errors.As(w.err, &mismatch) {
		return w.err
	}
	b.Fail(w.err)
	return w.err
}

// ringDoors wakes everybody who sleeps for a ring.
func (b *Board) ringDoors() {
	for _, c := range b.control {
		b.knock(c)
	}
}

// knock wakes a seat that sleeps for its rings.
func (b *Board) knock(c *control) {
	if atomic.LoadUint32(&c.door) != 0 && atomic.SwapUint32(&c.door, 0) != 0 {
		b.waiter.Wake(&c.door)
	}
}

var _ [pageBytes - unsafe.Sizeof(head{})]byte // the head fits its page
