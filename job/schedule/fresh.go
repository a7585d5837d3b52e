package schedule

import (
	"fmt"
	"slices"
)

// Wanted is how many more nodes should be made for a job that runs on no others.
type Wanted struct {
	ID    int64
	Nodes int
}

// WantsFresh says which of those that wait for nodes of their own should get them, when so many may be made: the most
// important first, each all that it needs or none.
func (m *Machine) WantsFresh(pool string, may int) (wanted []Wanted) {
	p := m.pool(pool)
	var all []*entry
	for l, jobs := range p.lines {
		if l.ask.For == 0 {
			continue
		}
		if ok, _ := m.allowed(l.project, max(l.ask.Min, 1)); ok {
			all = append(all, jobs...)
		}
	}
	slices.SortFunc(all, moreImportant)
	for _, e := range all {
		n := 0
		m.grown(p, may, e.Ask.For, func(first int) {
			v := slices.Clone(m.free)
			for _, n := range m.nodes[first:] {
				v = append(v, room{n.Slots, n.Memory, n.GPUs})
			}
			shares, _ := m.fit(v, pool, e.Ask)
			for _, s := range shares {
				if m.byName[s.Node] >= first {
					n++
				}
			}
		})
		if n > 0 {
			wanted = append(wanted, Wanted{e.ID, n})
			may -= n
		}
	}
	return wanted
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
		return Reason{Code: CodeNodes, Text: fmt.Sprintf("pool %s makes nodes for it alone, as soon as it may have more of its %d: it needs %s", e.Pool, p.all, needs(e.Ask))}
	}
	each := count(p.like.Slots, "slot")
	return Reason{Code: CodeNever, Text: fmt.Sprintf("pool %s will never hold it: it needs %s, and the pool makes %s with %s each: ask for fewer, or let it make more", e.Pool, needs(e.Ask), count(p.all, "node"), each)}
}
