package schedule

import (
	"fmt"
	"maps"
	"slices"
)

// Wanted is how many more nodes should be made for a job that runs on no others.
type Wanted struct {
	ID    int64
	Nodes int
}

// WantsFresh says which of those that wait for nodes of their own should get them, when so many may be made and so many
// of everybody's are coming: the most important first, each all that it needs or none. What others who are more
// important want is theirs.
func (m *Machine) WantsFresh(pool string, may, coming int) []Wanted {
	p := m.pool(pool)
	return p.fresh.of(m.version, [2]int{may, coming}, func() []Wanted { return m.wantsFresh(p, may, coming) })
}

func (m *Machine) wantsFresh(p *pool, may, coming int) (wanted []Wanted) {
	if may <= coming {
		return nil
	}
	var all []*entry
	for l, jobs := range p.lines {
		if l.ask.For == 0 {
			continue
		}
		if m.lends(l.project, l.ask.need()) {
			all = append(all, jobs...)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, moreImportant)
	before := m.claimed(p)
	left := map[Ask]bool{} // what fits on no nodes that may be made: they only become fewer here
	for _, e := range all {
		taken, waits := before(e)
		room := may - max(taken, coming)
		if waits || room <= 0 {
			break
		}
		like, has := e.Ask, len(m.owned[e.Ask.For]) > 0
		if like.For = 0; left[like] && !has {
			continue
		}
		switch n := m.lacks(p, e.Ask, room); {
		case n > 0:
			wanted = append(wanted, Wanted{e.ID, n})
			may -= n
		case m.lacks(p, e.Ask, p.spare+m.others(p.name, e.Ask.For)) > 0:
			return wanted // the others would take them from it, one by one
		case !has:
			left[like] = true
		}
	}
	return wanted
}

// claimed answers, for one job after the other and each less important than the last, how many nodes those want that
// are more important and run on everybody's, and whether one of them waits for others to end, which may take all.
func (m *Machine) claimed(p *pool) func(*entry) (nodes int, waits bool) {
	claims, nodes, waits := m.claims(p), 0, false
	never := map[Ask]bool{}
	return func(e *entry) (int, bool) {
		for len(claims) > 0 && !waits && moreImportant(claims[0].by, e) < 0 {
			c := claims[0]
			claims, nodes = claims[1:], c.nodes
			if !c.fits && !never[c.by.Ask] {
				waits = m.could(p.name, c.by.Ask, p.spare+m.others(p.name, 0))
				never[c.by.Ask] = !waits
			}
		}
		return nodes, waits
	}
}

// vacate makes a job the head that waits for nodes of its own in a pool that may have no more: as many of
// everybody's as are to be ended for it are kept free of others.
func (w *pass) vacate(e *entry) bool {
	p := w.pool
	n := w.lacks(p, e.Ask, p.spare+w.others(p.name, e.Ask.For)) - p.spare
	if n <= 0 {
		return false
	}
	a := Ask{NP: n, Nodes: n, PerNode: 1, Whole: true}
	if !w.ever(p.name, a) {
		return false // those that were made for other jobs end with them
	}
	w.head(e, a, false)
	return true
}

// lacks is how many nodes a job needs beside those that were made for it, when so many may be made: 0 where that is
// not enough, or none is needed. No other nodes are looked at.
func (m *Machine) lacks(p *pool, a Ask, may int) (n int) {
	few := New(m.halfLife)
	for _, name := range slices.Sorted(maps.Keys(m.owned[a.For])) {
		i := m.byName[name]
		few.byName[name] = len(few.nodes)
		few.nodes, few.free = append(few.nodes, m.nodes[i]), append(few.free, m.free[i])
	}
	few.pool(p.name).like = p.like
	few.grown(few.pool(p.name), min(may, a.NP), a.For, func(first int) {
		v := slices.Clone(few.free)
		for _, one := range few.nodes[first:] {
			v = append(v, one.all())
		}
		shares, _ := few.fit(v, p.name, a)
		for _, s := range shares {
			if few.byName[s.Node] >= first {
				n++
			}
		}
	})
	m.looked += few.looked
	return n
}

// Knows says whether a job waits or runs.
func (m *Machine) Knows(id int64) bool { return m.jobs[id] != nil || m.running[id] != nil }

// neverFresh is why a job waits that runs on nodes of its own and has not got them yet.
func (m *Machine) neverFresh(e *entry) Reason {
	p := m.pool(e.Pool)
	switch {
	case p.all == 0:
		return Reason{Code: CodeNever, Text: fmt.Sprintf("pool %s makes no nodes, and it asks for some of its own: submit it to a pool that does, or without --fresh", e.Pool)}
	case m.could(e.Pool, e.Ask, p.spare+m.others(e.Pool, e.Ask.For)): // idle ones make way
		return Reason{Code: CodeNodes, Text: fmt.Sprintf("pool %s makes nodes for it alone, as soon as it may have more of its %d: it needs %s%s", e.Pool, p.all, needs(e.Ask), p.makes())}
	}
	each := count(p.like.Slots, "slot")
	return Reason{Code: CodeNever, Text: fmt.Sprintf("pool %s will never hold it: it needs %s, and the pool makes %s with %s each: ask for fewer, or let it make more", e.Pool, needs(e.Ask), count(p.all, "node"), each)}
}
