package schedule

import (
	"cmp"
	"math"
	"slices"
)

// room is what is free on a node.
type room struct {
	slots  int
	memory int64
	gpus   int
	closed bool // nothing starts there
}

// all is what a node has when it is open and nothing runs there.
func (n *Node) all() room { return room{slots: n.Slots, memory: n.Memory, gpus: n.GPUs} }

func (r *room) take(a Ask, n int) {
	r.slots -= n
	r.memory -= int64(n) * a.Memory
	r.gpus -= n * a.GPUs
}

// rooms is what is free on each node, now or at some later time.
type rooms []room

func (m *Machine) take(v rooms, a Ask, shares []Share) { m.move(v, a, shares, 1) }

func (m *Machine) give(v rooms, a Ask, shares []Share) { m.move(v, a, shares, -1) }

func (m *Machine) move(v rooms, a Ask, shares []Share, sign int) {
	for _, s := range shares {
		i, known := m.byName[s.Node]
		if !known {
			continue
		}
		v[i].take(a, sign*s.Slots)
		if a.Whole {
			v[i].slots -= sign * (m.nodes[i].Slots - s.Slots)
		}
	}
}

// holds says how many processes fit on a node.
func (m *Machine) holds(v rooms, i int, a Ask) int {
	r, n := v[i], m.nodes[i]
	switch {
	case r.closed || n.For != a.For || a.Node != "" && a.Node != n.Name || a.Whole && r.slots < n.Slots:
		return 0
	case r.slots <= 0:
		return 0
	}
	fits := r.slots
	if a.Memory > 0 && n.Memory > 0 {
		fits = int(min(int64(fits), r.memory/a.Memory))
	}
	if a.GPUs > 0 {
		fits = min(fits, r.gpus/a.GPUs)
	}
	return max(fits, 0)
}

// part is a node and what it holds of an ask.
type part struct{ node, holds int }

// fit places a whole gang, on as few nodes as possible and where the least is left over; an elastic job gets fewer
// processes, down to its Min, where more do not fit. What fits is always found: the asks are such that a node's count
// is all that matters.
func (m *Machine) fit(v rooms, pool string, a Ask) ([]Share, bool) {
	best, total, enough := part{-1, math.MaxInt}, 0, 0
	largest := part{-1, 0}
	need := a.NP
	if a.Nodes > 0 {
		need = a.PerNode
	}
	m.looked += len(m.nodes)
	for i := range m.nodes {
		if m.nodes[i].Pool != pool {
			continue
		}
		h := m.holds(v, i, a)
		if a.Min == 0 || !m.nodes[i].Alone {
			total += h
		}
		if h > largest.holds {
			largest = part{i, h}
		}
		if h >= need {
			enough++
			if h < best.holds {
				best = part{i, h}
			}
		}
	}
	switch {
	case a.Nodes > 0 && enough < a.Nodes:
		return nil, false
	case a.Nodes > 1:
		return m.spread(v, pool, a), true
	case best.node >= 0:
		return []Share{{m.nodes[best.node].Name, need}}, true
	case total >= need:
		return m.fill(v, pool, a, need), true
	case a.Min > 0 && largest.holds >= max(total, a.Min):
		return []Share{{m.nodes[largest.node].Name, largest.holds}}, true
	case a.Min > 0 && total >= a.Min:
		return m.fill(v, pool, a, total), true
	}
	return nil, false
}

// parts lists the nodes of a pool that hold something, those that hold the most first.
func (m *Machine) parts(v rooms, pool string, a Ask) []part {
	var all []part
	m.looked += len(m.nodes)
	for i := range m.nodes {
		if m.nodes[i].Pool == pool {
			if h := m.holds(v, i, a); h > 0 {
				all = append(all, part{i, h})
			}
		}
	}
	slices.SortFunc(all, func(x, y part) int {
		if c := cmp.Compare(y.holds, x.holds); c != 0 {
			return c
		}
		return cmp.Compare(x.node, y.node)
	})
	return all
}

// spread takes the smallest nodes that hold PerNode.
func (m *Machine) spread(v rooms, pool string, a Ask) []Share {
	all := m.parts(v, pool, a)
	for len(all) > 0 && all[len(all)-1].holds < a.PerNode {
		all = all[:len(all)-1]
	}
	var shares []Share
	for _, p := range all[len(all)-a.Nodes:] {
		shares = append(shares, Share{m.nodes[p.node].Name, a.PerNode})
	}
	return shares
}

// fill takes the fullest nodes that make need, and for the rest the smallest that is enough.
func (m *Machine) fill(v rooms, pool string, a Ask, need int) []Share {
	all := m.parts(v, pool, a)
	if a.Min > 0 {
		all = slices.DeleteFunc(all, func(p part) bool { return m.nodes[p.node].Alone })
	}
	var shares []Share
	for len(all) > 0 && need > 0 {
		at := 0
		if all[0].holds >= need {
			for at+1 < len(all) && all[at+1].holds >= need {
				at++
			}
		}
		n := min(all[at].holds, need)
		shares = append(shares, Share{m.nodes[all[at].node].Name, n})
		need -= n
		all = slices.Delete(all, at, at+1)
	}
	return shares
}

// empty is every node of the machine with nothing on it.
func (m *Machine) empty() rooms {
	v := make(rooms, len(m.nodes))
	for i := range m.nodes {
		v[i] = m.nodes[i].all()
	}
	return v
}

// open lets closed nodes be open: they come back, or are taken away soon.
func (v rooms) open() {
	for i := range v {
		v[i].closed = false
	}
}

// shut says whether some of the nodes of shares are closed now.
func (m *Machine) shut(shares []Share) bool {
	return slices.ContainsFunc(shares, func(s Share) bool {
		return m.Away(s.Node)
	})
}

// ever says whether an ask fits when nothing else runs and all nodes are open.
func (m *Machine) ever(pool string, a Ask) bool {
	_, ok := m.fit(m.empty(), pool, a)
	return ok
}
