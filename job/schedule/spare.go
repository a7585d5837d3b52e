package schedule

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// SetSpare says that a pool may have so many more nodes than it has now, all of them like one, and how many in all.
func (m *Machine) SetSpare(pool string, n, all int, like Node) {
	p := m.pool(pool)
	if n, all = max(n, 0), max(all, 0); p.spare != n || p.all != all || p.like != like {
		p.spare, p.all, p.like = n, all, like
		m.version++
		p.shape++
	}
}

// Stall says that a pool's further nodes do not come before some time, since making them fails, and why: nothing is
// kept for those that need them meanwhile. Why is empty when one has been made.
func (m *Machine) Stall(pool string, until time.Time, why string) {
	p := m.pool(pool)
	p.stalled, p.failed = until, why
}

// Await says that a pool makes no further node now, since others may come that are not of its making; empty where it
// does.
func (m *Machine) Await(pool, others string) { m.pool(pool).awaits = others }

// makes says how the making of a pool's nodes stands, where none is made now, or the last one was not.
func (p *pool) makes() string {
	if p.awaits != "" {
		return "; none is made now: " + p.awaits
	}
	if p.failed == "" {
		return ""
	}
	return "; making one has failed, and is tried again: " + p.failed
}

// grow makes a job the head that needs more nodes than there are, and that the pool may have: what it needs of those
// that are there is kept for it, or a stream of small jobs would leave it waiting for ever.
func (w *pass) grow(e *entry) bool {
	p, blocks := w.pool, false
	w.grown(p, p.spare, 0, func(first int) {
		if blocks = w.ever(p.name, e.Ask); !blocks {
			return
		}
		free := w.free
		for _, n := range w.nodes[first:] {
			w.free = append(w.free, n.all())
		}
		w.head(e, e.Ask, false)
		w.free, w.after = free, w.after[:first]
	})
	return blocks
}

// remembered is an answer for as long as nothing changes that it depends on.
type remembered[T any] struct {
	version uint64 // of the machine
	asked   [2]int
	is      T
	known   bool
}

// of answers what was answered last, or anew where something has changed since.
func (r *remembered[T]) of(version uint64, asked [2]int, anew func() T) T {
	if !r.known || r.version != version || r.asked != asked {
		*r = remembered[T]{version, asked, anew(), true}
	}
	return r.is
}

// grown lets f see the pool with more nodes for one job, or for everybody, and how many there are without them.
func (m *Machine) grown(p *pool, more int, owner int64, f func(first int)) {
	first := len(m.nodes)
	m.looked += max(more, 0)
	for i := range more {
		n := p.like
		n.Name, n.Pool, n.Closed, n.For = "\x00"+strconv.Itoa(i), p.name, false, owner
		m.byName[n.Name] = len(m.nodes)
		m.nodes = append(m.nodes, n)
	}
	f(first)
	for _, n := range m.nodes[first:] {
		delete(m.byName, n.Name)
	}
	m.nodes = m.nodes[:first]
}

// could says whether an ask fits when nothing else runs and so many more nodes are there.
func (m *Machine) could(pool string, a Ask, more int) (ok bool) {
	m.grown(m.pool(pool), more, a.For, func(int) { ok = m.ever(pool, a) })
	return ok
}

// others counts the nodes that a pool has and that others than an owner's job run on: they end, and make room for more.
func (m *Machine) others(pool string, owner int64) (n int) {
	for i := range m.nodes {
		if m.nodes[i].Pool == pool && m.nodes[i].For != owner {
			n++
		}
	}
	return n
}

func moreImportant(a, b *entry) int {
	if c := cmp.Compare(b.Priority, a.Priority); c != 0 {
		return c
	}
	return older(a, b)
}

// wantsAtOnce bounds how many jobs Wants looks at.
const wantsAtOnce = 1000

// Wants counts the nodes that a pool should get for those who wait: none for what fits on free slots, or for what no
// node will ever hold, or waits for nodes of its own.
func (m *Machine) Wants(pool string) int {
	p := m.pool(pool)
	if p.spare == 0 || len(p.lines) == 0 {
		return 0
	}
	all := m.claims(p)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].nodes
}

// claim is what one who waits wants of the nodes of everybody's that may be made.
type claim struct {
	by    *entry
	nodes int  // that it and all who are more important want
	fits  bool // with those
}

// claims are those of a pool, the most important first.
func (m *Machine) claims(p *pool) []claim {
	return p.claims.of(m.version, [2]int{}, func() []claim { return m.claim(p) })
}

func (m *Machine) claim(p *pool) (claims []claim) {
	var all []*entry
	for l, jobs := range p.lines {
		if l.ask.For != 0 {
			continue // WantsFresh counts theirs
		}
		for _, e := range jobs[:min(len(jobs), wantsAtOnce)] {
			if m.lends(l.project, e.Ask.need()) {
				all = append(all, e)
			}
		}
	}
	slices.SortFunc(all, moreImportant)
	used := map[string]bool{} // those that are placed on need not be the first ones
	m.grown(p, p.spare, 0, func(first int) {
		v := slices.Clone(m.free)
		for _, n := range m.nodes[first:] {
			v = append(v, n.all())
		}
		left := map[Ask]bool{} // what fits nowhere: room only becomes less here
		for _, e := range all[:min(len(all), wantsAtOnce)] {
			var shares []Share
			fits := !left[e.Ask]
			if fits {
				if shares, fits = m.fit(v, p.name, e.Ask); fits {
					m.take(v, e.Ask, shares)
				} else {
					left[e.Ask] = true
				}
			}
			for _, s := range shares {
				if m.byName[s.Node] >= first {
					used[s.Node] = true
				}
			}
			claims = append(claims, claim{e, len(used), fits})
		}
	})
	return claims
}
