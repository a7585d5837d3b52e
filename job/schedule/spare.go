package schedule

import (
	"cmp"
	"slices"
	"strconv"
)

// SetSpare says that a pool may have so many more nodes than it has now, all of them like one.
func (m *Machine) SetSpare(pool string, n int, like Node) {
	p := m.pool(pool)
	p.spare, p.like = max(n, 0), like
}

// grown lets f see the pool with all the nodes that may come, the free room on those there are, and how many those are.
func (m *Machine) grown(p *pool, f func(first int)) {
	first := len(m.nodes)
	for i := range p.spare {
		n := p.like
		n.Name, n.Pool, n.Closed = "\x00"+strconv.Itoa(i), p.name, false
		m.byName[n.Name] = len(m.nodes)
		m.nodes = append(m.nodes, n)
	}
	f(first)
	for _, n := range m.nodes[first:] {
		delete(m.byName, n.Name)
	}
	m.nodes = m.nodes[:first]
}

// could says whether an ask fits when nothing else runs and all nodes that may come are there.
func (m *Machine) could(pool string, a Ask) (ok bool) {
	m.grown(m.pool(pool), func(int) { ok = m.ever(pool, a) })
	return ok
}

// wantsAtOnce bounds how many jobs Wants looks at.
const wantsAtOnce = 1000

// Wants counts the nodes that a pool should get for those who wait: none for what fits on free slots, or for what no
// node will ever hold.
func (m *Machine) Wants(pool string) int {
	p := m.pool(pool)
	if p.spare == 0 || len(p.lines) == 0 {
		return 0
	}
	var all []*entry
	for l, jobs := range p.lines {
		for _, e := range jobs[:min(len(jobs), wantsAtOnce)] {
			if ok, _ := m.allowed(l.project, max(e.Ask.Min, 1)); ok {
				all = append(all, e)
			}
		}
	}
	slices.SortFunc(all, func(a, b *entry) int {
		if c := cmp.Compare(b.Priority, a.Priority); c != 0 {
			return c
		}
		return older(a, b)
	})
	most := -1
	m.grown(p, func(first int) {
		v := slices.Clone(m.free)
		for _, n := range m.nodes[first:] {
			v = append(v, room{n.Slots, n.Memory, n.GPUs})
		}
		for _, e := range all[:min(len(all), wantsAtOnce)] {
			shares, ok := m.fit(v, pool, e.Ask)
			if !ok {
				continue
			}
			m.take(v, e.Ask, shares)
			for _, s := range shares {
				most = max(most, m.byName[s.Node]-first)
			}
		}
	})
	return most + 1
}
