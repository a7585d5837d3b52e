package schedule

import (
	"container/heap"
	"maps"
	"slices"
	"time"
)

// turn is the first job of a line and what decides when its turn is.
type turn struct {
	line     line
	e        *entry
	borrows  bool
	priority int
	share    float64
}

// turns are those of lines with one ask, a heap: those within their quota before those that borrow, within them by
// priority, share, age.
type turns []*turn

func (t turns) Len() int           { return len(t) }
func (t turns) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t turns) Less(i, j int) bool { return t[i].before(t[j]) }
func (t *turns) Push(x any)        { *t = append(*t, x.(*turn)) }
func (t *turns) Pop() any          { return last((*[]*turn)(t)) }

// asks is a heap of what is asked for, by who is first in each. What fits nowhere is left with all who ask for it at
// once: there are far fewer asks than lines.
type asks []*turns

func (a asks) Len() int           { return len(a) }
func (a asks) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a asks) Less(i, j int) bool { return (*a[i])[0].before((*a[j])[0]) }
func (a *asks) Push(x any)        { *a = append(*a, x.(*turns)) }
func (a *asks) Pop() any          { return last((*[]*turns)(a)) }

func last[T any](all *[]T) T {
	old := *all
	x := old[len(old)-1]
	*all = old[:len(old)-1]
	return x
}

func (t *turn) before(u *turn) bool {
	switch {
	case t.borrows != u.borrows:
		return u.borrows
	case t.priority != u.priority:
		return t.priority > u.priority
	case t.share != u.share:
		return t.share < u.share
	}
	return older(t.e, u.e) < 0
}

// level reports whether only age says which of two is first.
func (t *turn) level(u *turn) bool {
	return t.borrows == u.borrows && t.priority == u.priority && t.share == u.share
}

// rank fills in what decides when a turn is; false when the quota lets nothing of the line start.
func (m *Machine) rank(t *turn, now time.Time) bool {
	most, own := m.quotaOf(t.e, now)
	need := t.e.Ask.need()
	t.borrows, t.priority = need > own, t.line.priority
	t.share = m.weigh(m.project(t.line.project), m.quotas[t.line.project], now)
	if need <= most {
		return true
	}
	_, only := m.waitsForQuota(t.e)
	if only {
		t.borrows = need > m.quotas[t.line.project].Slots
	}
	return only
}

func (w *pass) rank(t *turn) bool { return w.Machine.rank(t, w.now) }

// Decide says what to do now. Time comes in; it may stand still or jump.
func (m *Machine) Decide(now time.Time) Decision {
	var d Decision
	m.decided = now
	names := make([]string, 0, len(m.pools))
	for name := range m.pools {
		names = append(names, name)
	}
	slices.Sort(names)
	bounded := slices.Sorted(maps.Keys(m.quotas))
	m.first, m.undone, m.unfilled, m.told = m.round+1, nil, nil, nil
	for again, idle := true, false; again; {
		m.round++
		d.Promises, again = nil, false
		before := m.version
		for _, name := range names {
			again = m.decide(m.pools[name], bounded, now, &d) || again
		}
		again = again && !(idle && before == m.version) // all was walked along for nothing: once is enough
		idle = before == m.version
	}
	for _, name := range names { // once all heads are known: one that grows shrinks for none of them
		if p := m.pools[name]; !p.blocked {
			(&pass{Machine: m, pool: p, now: now, d: &d}).growRunning()
		}
	}
	m.round++
	return d
}

// pass is one walk along the queue of a pool.
type pass struct {
	*Machine
	pool  *pool
	now   time.Time
	d     *Decision
	order asks
	after rooms     // what the head leaves over at its promised start; nil until a head waits
	both  rooms     // what is free now and left over then
	until time.Time // its promised start
	tried int
	freed bool // others may start now that could not when it was their turn
	ended bool // a start in this pool was taken back: the walk knows no more who is first in its line
}

// patience bounds how many asks of back-filling one decision tries: a queue of strange shapes must not hold it up.
const patience = 1000

// decide walks along the queue of a pool, and then lets those projects make room that have bounds. It says whether all
// are to be walked along again: quota that was kept from some when it was their turn may not be any more.
func (m *Machine) decide(p *pool, bounded []string, now time.Time, d *Decision) (again bool) {
	w := &pass{Machine: m, pool: p, now: now, d: d}
	was := m.front(p)
	w.recall()
	p.blocked = false
	w.turns()
	defer p.forget()
	for _, same := range w.order {
		heap.Init(same)
	}
	heap.Init(&w.order)
	for len(w.order) > 0 && w.tried < patience {
		if !w.step() {
			break
		}
	}
	if !p.blocked {
		p.within, p.promise = 0, Promise{}
	}
	w.unfill()
	for _, name := range bounded {
		w.makeQuota(name)
	}
	return w.freed || len(m.quotas) > 0 && was != m.front(p)
}

// front is what others' quota depends on of the head of a pool: which it is, whether it is within its quota, and
// whether nobody knows when it starts.
type front struct {
	head            int64
	within, unknown bool
	at              time.Time
}

func (m *Machine) front(p *pool) front {
	head := m.jobs[p.promise.ID]
	if !p.blocked || head == nil {
		return front{}
	}
	f := front{head: head.ID, within: m.jobs[p.within] != nil, unknown: m.roomUnknown(head)}
	if m.quotas[head.Project].Slots > 0 {
		f.at = p.promise.At
	}
	return f
}

// turns lists the lines by what they ask for. A pool keeps the memory for its next decision.
func (w *pass) turns() {
	p := w.pool
	all := slices.Grow(p.turns[:0], len(p.lines)) // turns are pointed to: it must not move
	for l, jobs := range p.lines {
		all = append(all, turn{line: l, e: jobs[0]})
		t := &all[len(all)-1]
		if !w.rank(t) {
			continue
		}
		same := p.byAsk[l.ask]
		if same == nil {
			same = &turns{}
			p.byAsk[l.ask] = same
		}
		*same = append(*same, t)
	}
	p.turns = all
	for ask, same := range p.byAsk {
		if len(*same) == 0 {
			delete(p.byAsk, ask)
			continue
		}
		w.order = append(w.order, same)
	}
}

// forget lets go of what turns has listed.
func (p *pool) forget() {
	clear(p.turns)
	for _, same := range p.byAsk {
		*same = (*same)[:0]
	}
}

// step takes the next turn; false when no slot is left for anybody.
func (w *pass) step() bool {
	t := (*w.order[0])[0]
	was := *t
	if !w.rank(t) {
		w.skip()
		return true
	}
	if t.borrows != was.borrows || t.share != was.share { // somebody of the project started meanwhile
		w.again()
		return true
	}
	if w.pool.blocked && w.undone[t.e.ID] { // it would be in somebody's way again
		w.skip()
		return true
	}
	shares, ok := w.place(t.e)
	_, only := w.waitsForQuota(t.e)
	if ok && !only {
		if most := w.atMost(t.e); slots(shares) > most { // it is elastic, and its quota is less
			shares = w.trim(shares, most)
		}
		w.begin(t, shares)
		return true
	}
	if w.tried++; ok { // it waits for quota alone: others who ask for the same may fit beside it
		w.block(t.e)
		w.noteWithin(t)
		w.skip()
		return !w.ended && w.anyFree()
	}
	if !w.pool.blocked && w.passing(t.e) {
		w.skip()
		return true
	}
	heap.Pop(&w.order) // room only becomes less in a pass
	if w.pool.blocked {
		return w.anyFree()
	}
	if !w.block(t.e) {
		return true // it blocks nobody: it waits for what those that run do not hold
	}
	w.noteWithin(t)
	return !w.ended && w.anyFree()
}

// noteWithin notes whether the head is within its project's quota.
func (w *pass) noteWithin(head *turn) {
	if w.pool.within = 0; !head.borrows {
		w.pool.within = head.e.ID
	}
}

// again puts the first turn where it belongs now.
func (w *pass) again() {
	heap.Fix(w.order[0], 0)
	heap.Fix(&w.order, 0)
}

// skip leaves the first turn out.
func (w *pass) skip() {
	if heap.Pop(w.order[0]); len(*w.order[0]) == 0 {
		heap.Pop(&w.order)
		return
	}
	heap.Fix(&w.order, 0)
}

// trim leaves n slots of a placement.
func (w *pass) trim(shares []Share, n int) []Share {
	var left []Share
	for _, s := range shares {
		if s.Slots = min(s.Slots, n); s.Slots > 0 {
			left = append(left, s)
			n -= s.Slots
		}
	}
	return left
}

func (w *pass) anyFree() bool {
	for i := range w.nodes {
		if w.nodes[i].Pool == w.pool.name && w.free[i].slots > 0 && !w.free[i].closed {
			return true
		}
	}
	return false
}

// place finds room for a job now. Behind a head that waits it may have what is over when the head starts, and, where it
// is surely gone by then, anything.
func (w *pass) place(e *entry) ([]Share, bool) { return w.placeIn(w.free, e) }

// placeIn finds it where other room is free.
func (w *pass) placeIn(free rooms, e *entry) ([]Share, bool) {
	if w.after == nil || w.pool.promise.ID == e.ID {
		return w.fit(free, w.pool.name, e.Ask)
	}
	if e.Ask.Limit > 0 && w.until != far && !w.now.Add(e.Ask.Limit).After(w.until) {
		return w.fit(free, w.pool.name, e.Ask)
	}
	w.both = slices.Grow(w.both[:0], len(free))[:len(free)]
	for i, f := range free {
		a := w.after[i]
		w.both[i] = room{min(f.slots, a.slots), min(f.memory, a.memory), min(f.gpus, a.gpus), f.closed}
	}
	return w.fit(w.both, w.pool.name, e.Ask)
}

// begin starts the first job of a line and lets the next one come.
func (w *pass) begin(t *turn, shares []Share) {
	e := t.e
	p := Placement{ID: e.ID, Shares: shares}
	if w.pool.blocked {
		p.Behind = w.pool.promise.ID
	}
	w.d.Start = append(w.d.Start, p)
	if w.after != nil && (e.Ask.Limit <= 0 || w.until == far || w.now.Add(e.Ask.Limit).After(w.until)) {
		w.take(w.after, e.Ask, shares)
	}
	w.freed = w.freed || w.keeps(e.Project) != nil // it was its quota, or that is free at another time now
	w.Withdraw(e.ID)
	w.start(e.Job, shares, w.now, w.now)
	jobs := w.pool.lines[t.line]
	if len(jobs) == 0 {
		w.skip()
		return
	}
	t.e = jobs[0]
	if !w.rank(t) {
		w.skip()
		return
	}
	w.again()
}

// block makes e the head, where those that run hold what it waits for: it gets a promise, and room is made where
// somebody must give way.
func (w *pass) block(e *entry) bool {
	switch {
	case w.ever(w.pool.name, e.Ask):
		w.head(e, e.Ask, true)
	case w.now.Before(w.pool.stalled):
		return false
	case e.Ask.For != 0:
		return w.vacate(e)
	default:
		return w.grow(e)
	}
	return true
}

// head makes e the head that waits for room for an ask: its own, or the nodes that are ended for it. When that is there
// it starts, or waits for nodes that are made then.
func (w *pass) head(e *entry, a Ask, starts bool) {
	w.pool.blocked = true
	e.held = w.makeRoom(e, a)
	w.promise(e, a, starts)
	w.project(e.Project).changed() // it keeps its quota from now on
}

// promise says when e starts at the latest, and what is over then. Nodes that are closed count as open where the others
// do not do: what is kept on those for one who needs both must not go while they are away. When they are back nobody
// knows.
func (w *pass) promise(e *entry, a Ask, starts bool) {
	all := w.inOrderOfEnd()
	away := false
	at := func(n int) rooms {
		v := rooms(slices.Clone(w.free))
		if away {
			v.open()
		}
		for i, r := range all {
			switch {
			case i < n:
				w.give(v, r.Ask, r.shares)
			case len(r.target) != len(r.shares) || slots(r.target) != slots(r.shares): // it shrinks at its next commit
				w.give(v, r.Ask, r.shares)
				w.take(v, r.Ask, r.target)
			}
		}
		return v
	}
	if _, ok := w.fit(at(len(all)), w.pool.name, a); !ok {
		away = true // the open ones will never do
	}
	low, high := 0, len(all) // the fewest that must end
	for low < high {
		mid := (low + high) / 2
		if _, ok := w.fit(at(mid), w.pool.name, a); ok {
			high = mid
		} else {
			low = mid + 1
		}
	}
	v := at(low)
	shares, _ := w.fit(v, w.pool.name, a)
	when := w.now
	for _, r := range all[:low] {
		if !r.leaving && r.ends().After(when) {
			when = r.ends()
		}
	}
	if until, only := w.waitsForQuota(e); only && until.After(when) {
		when = until
	}
	w.take(v, a, shares)
	w.after, w.until = v, when
	p := Promise{Pool: w.pool.name, ID: e.ID}
	if starts {
		p.Shares = shares
		if when != far && !w.shut(shares) {
			p.At = when
		}
	}
	w.pool.promise, w.pool.seen = p, w.round
	w.d.Promises = append(w.d.Promises, p)
}

// inOrderOfEnd lists those that run in this pool.
func (w *pass) inOrderOfEnd() (all []*running) {
	for _, r := range w.running {
		if w.touches(r) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *running) int {
		if a.leaving != b.leaving {
			if a.leaving {
				return -1
			}
			return 1
		}
		if c := a.ends().Compare(b.ends()); c != 0 {
			return c
		}
		return older(&entry{Job: a.Job}, &entry{Job: b.Job})
	})
	return all
}

// touches says whether a running job has a part in this pool.
func (w *pass) touches(r *running) bool { return r.Pool == w.pool.name }
