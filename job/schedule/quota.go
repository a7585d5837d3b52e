package schedule

import (
	"math"
	"slices"
	"time"
)

// Within a project the quota goes to the most important job first, as slots do in a pool. Where the project has too
// many slots for it now, it keeps what it needs: those that are less important may have what is left of the quota
// beside it, or end before it can start. Else small ones would take each slot of the quota that becomes free, and it
// would wait for ever. Those that run give way to it where they can.

// need is with how many slots a job starts at least.
func (a *Ask) need() int {
	if a.Min > 0 {
		return a.Min
	}
	return a.NP
}

// holder is where a line waits.
type holder struct {
	pool *pool
	line line
}

// keeper is the job that a project keeps quota for.
type keeper struct {
	e  *entry
	at time.Time // when its quota lets it start, at the latest: far where nobody knows
	// It lacks room alone, and jobs without a time limit are in the way: jobs of other pools that end in a known time
	// may have its quota until then. When there is room sooner it stays its pool's head until they have ended.
	unknown bool
}

// keeps is the job that a project keeps quota for; nil for none. It stays the same until something of the project
// changes, or another decision begins.
func (m *Machine) keeps(name string) *keeper {
	p := m.project(name)
	if p.known != m.round {
		p.known, p.keeper = m.round, m.findKeeper(name, p)
	}
	return p.keeper
}

func (m *Machine) findKeeper(name string, p *project) *keeper {
	q := m.quotas[name]
	if q.Slots <= 0 {
		return nil
	}
	never := map[holder]bool{}
	for {
		var first *entry
		var at holder
		for h := range p.waits {
			e := h.pool.lines[h.line][0]
			if (first == nil || moreImportant(e, first) < 0) && m.lacksQuota(e, q, p) && !never[h] {
				first, at = e, h
			}
		}
		if first == nil {
			return nil
		}
		if m.holdsSometime(first) {
			return &keeper{first, m.quotaAt(name, q, first.Ask.need()), m.roomUnknown(first)}
		}
		never[at] = true
	}
}

// lacksQuota says whether a job needs quota to be kept: it could have it, and what the project has stands in the way,
// or may until there is room for it.
func (m *Machine) lacksQuota(e *entry, q Quota, p *project) bool {
	need, pool := e.Ask.need(), m.pools[e.Pool]
	switch {
	case q.Max > 0 && need > q.Max:
		return false
	case e.owns, pool.blocked && pool.promise.ID == e.ID:
		return true
	case p.runs+need <= q.Slots:
		return false
	case need <= q.Slots:
		return true
	}
	// It can only borrow, and does not while somebody within a quota waits: what is the project's own goes on.
	return m.jobs[pool.within] == nil
}

// roomUnknown says whether nobody knows when there is room for a head: those that are in its way have no time limit,
// and do not give way. What the last decision found does not count: somebody may have ended since.
func (m *Machine) roomUnknown(e *entry) bool {
	p := m.pools[e.Pool]
	return p.blocked && p.seen >= m.first && p.promise.ID == e.ID && p.promise.Shares != nil &&
		p.promise.At.IsZero() && !e.held
}

// waitsForQuota is until when a pool's head waits for its project's quota alone, where that comes back in a known time:
// jobs of other pools have it. It stays the head then.
func (m *Machine) waitsForQuota(e *entry) (until time.Time, only bool) {
	need := e.Ask.need()
	if m.pools[e.Pool].promise.ID != e.ID || m.lends(e.Project, need) {
		return time.Time{}, false
	}
	until = m.quotaAt(e.Project, m.quotas[e.Project], need)
	return until, until != far
}

// holdsSometime says whether a pool can hold a job, with the nodes that it may have and that can be made.
func (m *Machine) holdsSometime(e *entry) bool {
	p := m.pool(e.Pool)
	makes := p.all > 0 && !m.decided.Before(p.stalled)
	return m.ever(p.name, e.Ask) || makes && m.could(p.name, e.Ask, p.spare+m.others(p.name, e.Ask.For))
}

// quotaAt is when so many more slots are within a project's Max at the latest, when no other job of it starts.
func (m *Machine) quotaAt(name string, q Quota, need int) time.Time {
	over := m.project(name).runs + need - q.Max
	if q.Max <= 0 || over <= 0 {
		return time.Time{}
	}
	var all []*running
	for _, r := range m.running {
		if r.Project == name {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *running) int { return a.ends().Compare(b.ends()) })
	for _, r := range all {
		if over -= slots(r.shares); over <= 0 {
			return r.ends()
		}
	}
	return far
}

// quotaOf says how many slots a job may have now by its project's quota, and how many of them are the project's own.
func (m *Machine) quotaOf(e *entry, now time.Time) (most, own int) {
	k := m.keeperOver(e)
	if m.pools[e.Pool].promise.ID == e.ID { // it has been promised a start
		k = nil
	}
	if most, own = m.quotaBeside(e, k, now); own == math.MaxInt {
		return most, own
	}
	return min(most, m.besideHeads(e, m.project(e.Project).runs, e.ends(now))), own
}

// quotaBeside is that where somebody, or nobody, keeps quota from the job.
func (m *Machine) quotaBeside(e *entry, k *keeper, now time.Time) (most, own int) {
	q := m.quotas[e.Project]
	if q.Slots <= 0 {
		return math.MaxInt, math.MaxInt
	}
	p := m.project(e.Project)
	most, own = math.MaxInt, q.Slots-p.runs
	if q.Max > 0 {
		most = q.Max - p.runs
	}
	if k == nil || k.unknown && e.Ask.Limit > 0 && e.Pool != k.e.Pool {
		return most, own
	}
	need := k.e.Ask.need()
	if need <= q.Slots || e.Pool == k.e.Pool { // it comes after one that borrows where both want the same room
		own -= need
	}
	if q.Max > 0 && (k.at == far || e.ends(now).After(k.at)) {
		most -= need
	}
	return most, own
}

// keeperOver is for whom more important than a job its project keeps quota.
func (m *Machine) keeperOver(e *entry) *keeper {
	if k := m.keeps(e.Project); k != nil && k.e != e && moreImportant(k.e, e) < 0 {
		return k
	}
	return nil
}

// atMost is with how many slots a job begins by its project's quota: also one that has been promised a start leaves
// what it does not need to one that is more important.
func (w *pass) atMost(e *entry) int {
	most, _ := w.quotaOf(e, w.now)
	beside, _ := w.quotaBeside(e, w.keeperOver(e), w.now)
	return max(min(most, beside), e.Ask.need())
}

// besideHeads is how many slots the heads leave to another job of their project, which has so many then. Where it ends
// by a time at which a head of another pool may not have started yet, that leaves it what is not the project's own.
func (m *Machine) besideHeads(e *entry, runs int, end time.Time) int {
	return m.beside(e.Project, runs, m.headsOver(e), func(head *entry) bool {
		at := m.pools[head.Pool].promise.At
		return head.Pool != e.Pool && !at.IsZero() && !end.After(at)
	})
}

// headsOver are the heads that keep quota from another job of their project: that of its pool, and those of other pools
// that are more important. They have their promises. A head gives way to a more important one that is promised a time
// too, or the one whose pool is walked along first would have the quota.
func (m *Machine) headsOver(e *entry) []*entry {
	promised := m.pools[e.Pool].promise.ID == e.ID
	return m.heads(e.Project, func(head *entry) bool {
		switch {
		case head == e, head.Pool == e.Pool:
			return head != e
		case promised && m.pools[head.Pool].promise.At.IsZero(), e.Ask.Limit > 0 && m.roomUnknown(head):
			return false
		}
		return moreImportant(head, e) < 0
	})
}

// heads are those of pools' heads that are of a project, the most important first.
func (m *Machine) heads(project string, of func(*entry) bool) (all []*entry) {
	for _, p := range m.pools {
		if head := m.jobs[p.promise.ID]; p.blocked && head != nil && head.Project == project && of(head) {
			all = append(all, head)
		}
	}
	slices.SortFunc(all, moreImportant)
	return all
}

// beside is how many slots more some heads leave of their project's quota: where one is within the project's own it
// stays so, or it would lose its turn. Those that only some time later need more than that leave it until then.
func (m *Machine) beside(project string, runs int, heads []*entry, later func(*entry) bool) int {
	q, most := m.quotas[project], math.MaxInt
	for _, head := range heads {
		switch n := runs + head.Ask.need(); {
		case n <= q.Slots:
			runs, most = n, min(most, q.Slots-n)
		case q.Max > 0 && !later(head):
			runs, most = n, min(most, q.Max-n)
		}
	}
	return most
}

// passing says whether a job may have its quota only until a more important head of another pool needs that: when there
// is room for it that may not be so any more, and nothing is promised to it.
func (w *pass) passing(e *entry) bool {
	heads := w.heads(e.Project, func(head *entry) bool {
		return head != e && moreImportant(head, e) < 0 && !w.pools[head.Pool].promise.At.IsZero()
	})
	need := e.Ask.need()
	return w.quotas[e.Project].Slots > 0 && w.lends(e.Project, need) &&
		need > w.beside(e.Project, w.project(e.Project).runs, heads, func(*entry) bool { return false })
}

// makeQuota lets others of a project give way to the job that it keeps quota for, where that lacks nothing else to
// start in this pool: as makeRoom does, whatever pools they run in.
func (w *pass) makeQuota(name string) {
	k := w.keeps(name)
	if k == nil || k.e.Pool != w.pool.name {
		return
	}
	if w.lends(name, k.e.Ask.need()) {
		if k.e.owns { // it could have started
			k.e.owns, w.freed = false, true
			w.project(name).changed()
		}
		return
	}
	ofProject := func(r *running) bool { return r.Project == name }
	most := w.quotas[name].Max - k.e.Ask.need()
	owns := w.makeWay(&wish{e: k.e, of: ofProject, fits: func(v rooms) bool {
		if left := w.left(name); left > most || k.e.Ask.need() > w.besideHeads(k.e, left, k.e.ends(w.now)) {
			return false
		}
		_, ok := w.placeIn(v, k.e)
		return ok
	}})
	k.e.owns = k.e.owns || owns
}

// growsBy is how many slots more the running jobs of a project may have by its quota, beside what it keeps.
func (m *Machine) growsBy(name string) int {
	q := m.quotas[name]
	if q.Slots <= 0 {
		return math.MaxInt
	}
	runs, left := m.project(name).runs, math.MaxInt
	if q.Max > 0 {
		left = q.Max - runs
		if k := m.keeps(name); k != nil {
			left -= k.e.Ask.need()
		}
	}
	heads := m.heads(name, func(*entry) bool { return true })
	return min(left, m.beside(name, runs, heads, func(*entry) bool { return false }))
}

// lends says whether a project may have so many slots more.
func (m *Machine) lends(name string, n int) bool {
	q := m.quotas[name]
	return q.Slots <= 0 || q.Max <= 0 || m.project(name).runs+n <= q.Max
}

// changed notes that something of a project has changed on which depends for whom it keeps quota.
func (p *project) changed() { p.known = 0 }

// waitsIn notes where jobs of a project wait.
func (p *project) waitsIn(h holder, do bool) {
	if p.waits == nil {
		p.waits = map[holder]bool{}
	}
	if p.waits[h] = true; !do {
		delete(p.waits, h)
	}
	p.changed()
}
