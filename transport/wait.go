package transport

import (
	"runtime"
	"sync/atomic"
	"time"
)

const (
	slice       = 50 * time.Millisecond // longest sleep: failures are looked for in between
	probeAfter  = time.Second           // a wait this long tells the others what it waits in
	lossGrace   = 300 * time.Millisecond
	defaultSpin = 50 * time.Microsecond
	unfenced    = time.Millisecond // longest sleep for a seat that this one cannot fence: its wake-up may be lost
	minSpin     = 3 * time.Microsecond
	piece       = 128 // longest run of poll, 2–20 µs
	fewPolls    = 5   // rounds of poll of who shares a processor
	ringLooks   = 20  // and its looks at rings
	someYields  = 20
)

// spinner is how this rank waits at present. It adapts: polling is worth its time
// only while the peer runs on another processor.
type spinner struct {
	most, least int  // bounds of polls
	polls       int  // poll rounds before a sleep
	yield       bool // poll little, yield, then sleep
	fixed       bool // by configuration: never adapt
}

// calibrate measures a poll round on this processor.
func (s *spinner) calibrate(cfg BoardConfig) {
	if cfg.Oversubscribed || cfg.Spin < 0 {
		s.fixed, s.yield = true, cfg.Oversubscribed
		return
	}
	var word uint64
	best := time.Hour
	for range 5 {
		start := time.Now()
		poll(&word, 1, piece)
		best = min(best, time.Since(start))
	}
	round := max(best/piece, 1)
	spin := cfg.Spin
	if spin == 0 {
		spin = defaultSpin
	}
	s.most = max(int(spin/round), fewPolls)
	s.least = min(max(int(minSpin/round), fewPolls), s.most)
	s.polls = s.most
}

// adapt learns from a wait that polling did not end. Where the peer ran on this
// processor polling only kept it from running. Else polling is kept up, even if the
// peer was late by far: a late peer at the start of an operation says nothing of the
// waits inside it, which are short, and each sleep there costs 5 µs, or 25 where the
// processor halts under a hypervisor, against the few microseconds that giving up
// sooner would have saved.
func (s *spinner) adapt(stacked bool) {
	s.yield = stacked
	if stacked {
		s.polls = max(s.polls/2, s.least)
	} else {
		s.polls = min(s.polls*2, s.most)
	}
}

// await waits until *p has reached want, as numbers that wrap: by polling first,
// then as waiting says. budget bounds the wait (negative: not); ok is false when
// it is used up or an error ends the wait.
func (b *Board) await(p *uint64, want uint64, seat int, budget time.Duration) (ok bool, err error) {
	polls := b.spin.polls
	if b.spin.yield || budget == 0 {
		polls = fewPolls
	}
	for ; polls > 0; polls -= piece {
		if poll(p, want, min(polls, piece)) {
			return true, nil
		}
	}
	if budget == 0 {
		return false, nil
	}
	return b.awaitSlow(p, want, seat, budget)
}

func (b *Board) awaitSlow(p *uint64, want uint64, seat int, budget time.Duration) (ok bool, err error) {
	w := b.startWait(seat, -1, budget)
	return b.sleepFor(&w, p, want)
}

// sleepFor yields and sleeps until *p has reached want or check ends the wait.
func (b *Board) sleepFor(w *waiting, p *uint64, want uint64) (ok bool, err error) {
	for {
		v := atomic.LoadUint64(p)
		if int64(v-want) >= 0 {
			b.endWait(w)
			return true, nil
		}
		if w.over {
			return false, b.giveUp(w)
		}
		if w.yields > 0 {
			w.yields--
			b.waiter.Yield()
			continue
		}
		sleep := b.check(w)
		if w.over {
			continue // once more: what was posted before a loss counts
		}
		b.sleep(b.control[w.seats[0]], p, v, want, sleep)
	}
}

// sleep sleeps until *p, a word of c that was v, changes or time has passed.
func (b *Board) sleep(c *control, p *uint64, v, want uint64, timeout time.Duration) {
	if atomic.LoadUint32(&c.plain) == 0 {
		if v&1 != 0 || atomic.CompareAndSwapUint64(p, v, v|1) {
			b.sleepOn(low(p), uint32(v|1), timeout)
		}
		return
	}
	atomic.AddUint32(&c.sleepers, 1)
	if b.cfg.Fence != nil {
		b.cfg.Fence()
	} else {
		timeout = min(timeout, unfenced)
	}
	if v = atomic.LoadUint64(p); int64(v-want) < 0 {
		b.sleepOn(low(p), uint32(v), timeout)
	}
	atomic.AddUint32(&c.sleepers, ^uint32(0))
}

// sleepOn sleeps while *word is old, where Fail finds it.
func (b *Board) sleepOn(word *uint32, old uint32, timeout time.Duration) {
	b.asleep.Store(word)
	if b.failed.Load() == nil {
		b.waiter.Wait(word, old, timeout)
	}
	b.asleep.Store(nil)
}

// waiting is one wait that polling did not end.
type waiting struct {
	seats   [2]int    // whom it waits for; -1: nobody
	begun   bool      // polling did not end it
	start   time.Time // of the first check; zero before
	budget  time.Duration
	polls   int // rings only: polls left before it goes slow
	yields  int // yields left before it sleeps
	armed   bool
	slept   bool
	stacked bool
	explain bool // the wait is part of Explain: mismatches do not end it
	over    bool // err is final, or the budget is used up
	err     error
}

func (b *Board) startWait(seat, other int, budget time.Duration) waiting {
	w := waiting{seats: [2]int{seat, other}, begun: true, budget: budget}
	if !b.spin.fixed {
		b.locate(&w)
	}
	if b.spin.yield || w.stacked {
		w.yields = someYields
	}
	return w
}

// locate publishes where this rank runs and sees whether a peer ran there last.
func (b *Board) locate(w *waiting) {
	if b.cfg.CPU == nil {
		return
	}
	here := uint32(b.cfg.CPU() + 1)
	if b.me.cpu != here {
		atomic.StoreUint32(&b.me.cpu, here)
	}
	for _, seat := range w.seats {
		if seat >= 0 && seat != b.seat && atomic.LoadUint32(&b.control[seat].cpu) == here {
			w.stacked = true
		}
	}
}

func (b *Board) endWait(w *waiting) {
	if !b.spin.fixed && (w.slept || w.stacked != b.spin.yield) {
		b.spin.adapt(w.stacked)
	}
}

// check looks for everything that may end a wait but its own condition, and says
// how long to sleep until the next look.
func (b *Board) check(w *waiting) (sleep time.Duration) {
	w.slept = true
	now := time.Now()
	if w.start.IsZero() {
		w.start = now
	}
	if b.waited.IsZero() {
		b.waited = w.start
	}
	sleep = slice
	if err := b.failure(w, now); err != nil {
		w.end(err)
		return 0
	}
	if w.explain && b.passed(w.seats[0]) {
		w.end(nil)
		return 0
	}
	if !w.explain {
		if err := b.mismatch(now.Sub(w.start) >= probeAfter); err != nil {
			w.end(err)
			return 0
		}
		if !b.deadline.IsZero() {
			left := b.deadline.Sub(now)
			if left <= 0 {
				err := &DeadlineError{Rank: b.rankOf(w), Seq: b.stamp.Seq, After: now.Sub(b.waited)}
				w.end(err)
				return 0
			}
			sleep = min(sleep, left)
		}
	}
	if w.budget >= 0 {
		left := w.budget - now.Sub(w.start)
		if left <= 0 {
			w.end(nil)
			return 0
		}
		sleep = min(sleep, left)
	}
	return sleep
}

func (w *waiting) end(err error) { w.over, w.err = true, err }

func (b *Board) rankOf(w *waiting) int {
	for _, seat := range w.seats {
		if seat >= 0 {
			return b.ranks[seat]
		}
	}
	return b.ranks[b.seat]
}

// yielder is the Waiter of a board without one.
type yielder struct{}

func (yielder) Wait(word *uint32, old uint32, _ time.Duration) {
	if atomic.LoadUint32(word) == old {
		runtime.Gosched()
	}
}
func (yielder) Wake(*uint32) {}
func (yielder) Yield()       { runtime.Gosched() }
