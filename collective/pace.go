package collective

import (
	"math/bits"
	"time"

	"hora/internal/kernel"
)

// Whether two ranks are quicker when they read each other's memory through the system or when they copy through parts
// depends on the machine, and on some machines on the minute: no table can know. So the first seat tries both, in
// the first calls of each kind and size and again later, and its header says which way the next call takes, so that
// ranks that will go through parts need not ask the system about their memory first, which takes microseconds; both
// headers say what the last tried call took, and the slower rank's time counts. Both ways combine each element's
// operands in the seats' order, so the choice changes no bit of a result.

const (
	settling  = 10  // calls before a trial: the first ones of a size meet pages and lines that are not there yet
	tries     = 3   // calls of each way in one trial; the quickest of them counts, since the first pays for the change
	trialEach = 128 // calls from one trial to the next: were the other way twice as slow, trials would cost 2.3 %
	clearly   = 0.95
)

// way is one of the two, as an index.
type way uint8

const (
	byPeek way = iota
	byParts
)

// pace is what a rank knows of one kind of call and size. Only the first seat uses more than took and told.
type pace struct {
	took  uint32 // nanoseconds of this rank's last tried call, until a header has told it
	told  try    // how this call goes, by the headers of the one before
	ran   try    // how the call went whose times the next headers bring
	calls uint32
	now   way       // the quicker one
	best  [2]uint32 // of each way in this trial; 0: none
}

// try is how a call went, and whether its time is taken.
type try struct {
	way   way
	timed bool
}

// next goes on to another call and returns how the one after it goes.
func (p *pace) next() try {
	n := int(p.calls%trialEach) - settling
	p.calls++
	if n == 2*tries+2 { // the last try's time came with the headers of the call before
		if a, b := p.best[p.now], p.best[1-p.now]; a > 0 && b > 0 && float64(b) < clearly*float64(a) {
			p.now = 1 - p.now
		}
		p.best = [2]uint32{}
	}
	switch {
	case n >= 0 && n < tries:
		return try{1 - p.now, true}
	case n >= tries && n < 2*tries:
		return try{p.now, true}
	}
	return try{way: p.now}
}

// learn takes in what the call that ran last took on each rank; 0 where it was not timed.
func (p *pace) learn(a, b uint32) {
	if !p.ran.timed || a == 0 || b == 0 {
		return
	}
	if best := &p.best[p.ran.way]; *best == 0 || max(a, b) < *best {
		*best = max(a, b)
	}
}

// paces are a group's: by kind of call, and by the power of two that its size reaches.
type paces [4][48]pace

// paceOf returns the pace of a call's kind and size. A group that never asks has none.
func (c *Comm) paceOf(call *Call) *pace {
	if c.paces == nil {
		c.paces = new(paces)
		if kernel.ByString() { // parts are likely to be the quicker way
			for kind := range c.paces {
				for i := range c.paces[kind] {
					c.paces[kind][i].now, c.paces[kind][i].told.way = byParts, byParts
				}
			}
		}
	}
	kind := 0
	switch call.Kind {
	case Broadcast:
		kind = 1
	case Allgather:
		kind = 2
	case Alltoall:
		kind = 3
	}
	return &c.paces[kind][min(bits.Len(uint(max(c.wholeBytes(call), 0))), len(c.paces[0])-1)]
}

// tell puts into the header what this rank's last timed call took and, on the first seat, how the next one goes.
func (c *Comm) tell(h *peekHeader, call *Call) {
	p := c.paceOf(call)
	h.took, p.took = p.took, 0
	if c.seat != 0 {
		return
	}
	t := p.told
	if c.peeking.able {
		t = p.next()
	}
	h.parts, h.timed = t.way == byParts, t.timed
}

// heed takes in what the headers say of times and of the next call, and returns how this one goes.
func (c *Comm) heed(call *Call) try {
	p := c.paceOf(call)
	first, second := &c.headers[0].peek, &c.headers[1].peek
	if c.seat == 0 && (first.took|second.took) != 0 {
		p.learn(first.took, second.took)
	}
	p.ran = p.told
	p.told = try{timed: first.timed}
	if first.parts {
		p.told.way = byParts
	}
	return p.ran
}

// start begins to take a timed call's time.
func (c *Comm) start(call *Call) { c.op.timed, c.op.began = c.paceOf(call), time.Now() }

// clock notes how long a timed call was under way since its headers had come, and what it took to make this rank's.
func (c *Comm) clock() {
	c.op.timed.took = uint32(min(max(time.Since(c.op.began)+c.op.asked, 1), 4*time.Second))
	c.op.timed = nil
}
