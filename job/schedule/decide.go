package schedule

import (
	"container/heap"
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

// turns is a heap: those within their quota before those that borrow, within them by priority, share, age.
type turns []*turn

func (t turns) Len() int      { return len(t) }
func (t turns) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *turns) Push(x any)   { *t = append(*t, x.(*turn)) }
func (t *turns) Pop() any {
	old := *t
	x := old[len(old)-1]
	*t = old[:len(old)-1]
	return x
}

func (t turns) Less(i, j int) bool { return t[i].before(t[j]) }

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

// allowed says what a project's quota says of n more slots.
func (m *Machine) allowed(project string, n int) (ok, borrows bool) {
	q := m.quotas[project]
	if q.Slots <= 0 {
		return true, false
	}
	has := m.project(project).runs + n
	if has <= q.Slots {
		return true, false
	}
	return q.Max <= 0 || has <= q.Max, true
}

// rank fills in what decides when a turn is; false when the quota lets nothing of the line start.
func (m *Machine) rank(t *turn, now time.Time) bool {
	need := t.e.Ask.NP
	if t.e.Ask.Min > 0 {
		need = t.e.Ask.Min
	}
	ok, borrows := m.allowed(t.line.project, need)
	t.borrows, t.priority, t.share = borrows, t.line.priority, m.share(t.line.project, now)
	return ok
}

// Decide says what to do now. Time comes in; it may stand still or jump.
func (m *Machine) Decide(now time.Time) Decision {
	var d Decision
	names := make([]string, 0, len(m.pools))
	for name := range m.pools {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		m.decide(m.pools[name], now, &d)
	}
	return d
}

// pass is one walk along the queue of a pool.
type pass struct {
	*Machine
	pool  *pool
	now   time.Time
	d     *Decision
	order turns
	after rooms     // what the head leaves over at its promised start; nil until a head waits
	until time.Time // its promised start
	tried int
	no    map[Ask]bool // what did not fit: room only becomes less in a pass
}

// patience bounds how many lines of back-filling one decision tries: a queue of strange shapes must not hold it up.
const patience = 1000

func (m *Machine) decide(p *pool, now time.Time, d *Decision) {
	w := &pass{Machine: m, pool: p, now: now, d: d, no: map[Ask]bool{}}
	p.blocked = false
	for l, jobs := range p.lines {
		t := &turn{line: l, e: jobs[0]}
		if m.rank(t, now) {
			w.order = append(w.order, t)
		}
	}
	heap.Init(&w.order)
	for len(w.order) > 0 && w.tried < patience {
		if !w.step() {
			break
		}
	}
	if !p.blocked {
		m.grow(w)
	}
}

// step takes the next turn; false when no slot is left for anybody.
func (w *pass) step() bool {
	t := w.order[0]
	was := *t
	if !w.rank(t, w.now) {
		heap.Pop(&w.order)
		return true
	}
	if t.borrows != was.borrows || t.share != was.share { // somebody of the project started meanwhile
		heap.Fix(&w.order, 0)
		return true
	}
	if w.no[t.e.Ask] {
		heap.Pop(&w.order)
		return true
	}
	shares, ok := w.place(t.e)
	w.no[t.e.Ask] = !ok
	if ok {
		if slots(shares) < t.e.Ask.NP {
			ok, _ = w.allowed(t.line.project, slots(shares))
		} else if ok, _ = w.allowed(t.line.project, t.e.Ask.NP); !ok &&
			t.e.Ask.Min > 0 { // elastic, and its quota is less
			shares, ok = w.trim(shares, w.quotas[t.line.project].Max-w.project(t.line.project).runs), true
		}
	}
	if ok {
		w.begin(t, shares)
		return true
	}
	heap.Pop(&w.order)
	w.tried++
	if w.pool.blocked {
		return w.anyFree()
	}
	if !w.ever(w.pool.name, t.e.Ask) {
		return true // it blocks nobody: what it waits for are other nodes
	}
	w.block(t.e)
	clear(w.no)
	return w.anyFree()
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
		if w.nodes[i].Pool == w.pool.name && w.free[i].slots > 0 {
			return true
		}
	}
	return false
}

// place finds room for a job now. Behind a head that waits it may have what is over when the head starts, and, where it
// is surely gone by then, anything.
func (w *pass) place(e *entry) ([]Share, bool) {
	if w.after == nil {
		return w.fit(w.free, w.pool.name, e.Ask)
	}
	if e.Ask.Limit > 0 && w.until != far && !w.now.Add(e.Ask.Limit).After(w.until) {
		return w.fit(w.free, w.pool.name, e.Ask)
	}
	both := make(rooms, len(w.free))
	for i, f := range w.free {
		a := w.after[i]
		both[i] = room{min(f.slots, a.slots), min(f.memory, a.memory), min(f.gpus, a.gpus)}
	}
	return w.fit(both, w.pool.name, e.Ask)
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
	w.Withdraw(e.ID)
	w.start(e.Job, shares, w.now, w.now)
	jobs := w.pool.lines[t.line]
	if len(jobs) == 0 {
		heap.Pop(&w.order)
		return
	}
	t.e = jobs[0]
	if !w.rank(t, w.now) {
		heap.Pop(&w.order)
		return
	}
	heap.Fix(&w.order, 0)
}

// block makes e the head: it gets a promise, and room is made where somebody must give way.
func (w *pass) block(e *entry) {
	w.pool.blocked = true
	e.held = w.makeRoom(e)
	w.promise(e)
}

// promise says when e starts at the latest, and what is over then.
func (w *pass) promise(e *entry) {
	var all []*running
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
	at := func(n int) rooms {
		v := slices.Clone(w.free)
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
	low, high := 0, len(all) // the fewest that must end
	for low < high {
		mid := (low + high) / 2
		if _, ok := w.fit(at(mid), w.pool.name, e.Ask); ok {
			high = mid
		} else {
			low = mid + 1
		}
	}
	v := at(low)
	shares, _ := w.fit(v, w.pool.name, e.Ask)
	when := w.now
	for _, r := range all[:low] {
		if !r.leaving && r.ends().After(when) {
			when = r.ends()
		}
	}
	w.take(v, e.Ask, shares)
	w.after, w.until = v, when
	p := Promise{Pool: w.pool.name, ID: e.ID, At: when, Shares: shares}
	if when == far {
		p.At = time.Time{}
	}
	w.pool.promise = p
	w.d.Promises = append(w.d.Promises, p)
}

// touches says whether a running job has a part in this pool.
func (w *pass) touches(r *running) bool { return r.Pool == w.pool.name }
