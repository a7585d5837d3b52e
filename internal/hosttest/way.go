package hosttest

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Way is what a Switch does to packets from one host to another. The zero Way passes all at once.
type Way struct {
	Delay time.Duration
	Rate  int64   // bits a second; 0 does not limit
	Loss  float64 // share of packets that vanish, from 0 to 1
	Cut   bool    // all vanish, without a word
}

// queueTime is how much may wait before a limited way, as in a router with a small buffer.
const queueTime = 100 * time.Millisecond

// way is one directed pair. Its packets keep their order.
type way struct {
	deliver func(p []byte)
	stop    <-chan struct{}

	mu   sync.Mutex // guards what follows
	set  Way
	dice *rand.Rand // by seed: the k-th packet that is put to the dice always fares alike
	free time.Time  // when the link has sent what it has taken
	last time.Time  // when the last packet of the queue arrives

	queue        chan late
	passed, lost atomic.Int64
}

// late is a packet that arrives at a time.
type late struct {
	at time.Time
	p  []byte
}

func newWay(seed uint64, from, to int, stop <-chan struct{}, deliver func([]byte)) *way {
	return &way{
		deliver: deliver, stop: stop, dice: rand.New(rand.NewPCG(seed, uint64(from)<<32|uint64(to))),
		queue: make(chan late, 1<<14),
	}
}

func (w *way) change(to Way) {
	w.mu.Lock()
	w.set = to
	w.mu.Unlock()
}

// send takes a packet, which may be used again when it returns.
func (w *way) send(p []byte, now time.Time) {
	at, ok := w.fate(len(p), now)
	switch {
	case !ok:
		w.lost.Add(1)
	case at.IsZero():
		w.passed.Add(1)
		w.deliver(p)
	default:
		select {
		case w.queue <- late{at, append([]byte(nil), p...)}:
			w.passed.Add(1)
		default:
			w.lost.Add(1)
		}
	}
}

// fate says when a packet arrives, zero for at once, or that it is lost.
func (w *way) fate(bytes int, now time.Time) (at time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.set.Cut || w.set.Loss > 0 && w.dice.Float64() < w.set.Loss {
		return at, false
	}
	at = now
	if w.set.Rate > 0 {
		if w.free.Before(now) {
			w.free = now
		}
		if w.free.Sub(now) > queueTime {
			return at, false
		}
		w.free = w.free.Add(time.Duration(float64(bytes) * 8e9 / float64(w.set.Rate)))
		at = w.free
	}
	at = at.Add(w.set.Delay)
	if at.Before(w.last) { // none overtakes another
		at = w.last
	}
	if !at.After(now) {
		return time.Time{}, true
	}
	w.last = at
	return at, true
}

// run delivers what was delayed, until the switch ends.
func (w *way) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-w.stop:
			return
		case l := <-w.queue:
			if d := time.Until(l.at); d > 0 {
				timer.Reset(d)
				select {
				case <-w.stop:
					return
				case <-timer.C:
				}
			}
			w.deliver(l.p)
		}
	}
}
