package schedule

import (
	"cmp"
	"slices"
)

// makeRoom lets others give way to the head, which needs room for an ask, where that helps: elastic jobs of no higher
// priority shrink first, then preemptible ones of a lower priority are drained. Nobody is disturbed for less than a
// whole start. It reports whether room is on its way.
func (w *pass) makeRoom(e *entry, a Ask) bool {
	v := slices.Clone(w.free)
	coming := false
	for _, r := range w.running {
		if !w.touches(r) {
			continue
		}
		switch {
		case r.leaving:
			w.give(v, r.Ask, r.shares)
			coming = true
		case slots(r.target) != slots(r.shares):
			w.give(v, r.Ask, r.shares)
			w.take(v, r.Ask, r.target)
			coming = true
		}
	}
	if _, ok := w.fit(v, w.pool.name, a); ok {
		return coming
	}
	before := map[*running][]Share{} // the targets of those that shrink, as they were
	ok := w.shrink(v, e, a, before)
	var drained []*running
	if !ok {
		drained, ok = w.drain(v, e, a)
	}
	if ok {
		drained = w.spare(v, a, before, drained)
	}
	for r, target := range before {
		if !ok {
			r.target = target
		}
	}
	if !ok {
		return false
	}
	var shrunk []*running
	for r, target := range before {
		if slots(r.target) != slots(target) {
			shrunk = append(shrunk, r)
		}
	}
	slices.SortFunc(shrunk, func(a, b *running) int { return cmp.Compare(a.ID, b.ID) })
	for _, r := range shrunk {
		w.d.Shrink = append(w.d.Shrink, Placement{ID: r.ID, Shares: r.target})
	}
	for _, r := range drained {
		r.leaving = true
		w.d.Preempt = append(w.d.Preempt, r.ID)
	}
	return true
}

// victims are those of the pool that may give way, the least important and youngest first.
func (w *pass) victims(may func(*running) bool) []*running {
	var all []*running
	for _, r := range w.running {
		if w.touches(r) && !r.leaving && may(r) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *running) int {
		if c := cmp.Compare(a.Priority, b.Priority); c != 0 {
			return c
		}
		if c := b.started.Compare(a.started); c != 0 {
			return c
		}
		return cmp.Compare(b.ID, a.ID)
	})
	return all
}

// shrink takes slots of elastic jobs one at a time until the head fits: those of one node, where they are enough, the
// last node first, else of all. A job's first node keeps the job, and so a slot.
func (w *pass) shrink(v rooms, e *entry, a Ask, before map[*running][]Share) bool {
	for _, r := range w.victims(func(r *running) bool { return r.Ask.Min > 0 && r.Priority <= e.Priority }) {
		if slots(r.target) <= r.Ask.Min {
			continue
		}
		was := r.target
		before[r] = was
		for i := len(was) - 1; i >= 0 && len(was) > 1; i-- {
			if w.yield(v, r, a, i, i) {
				return true
			}
			w.give(v, r.Ask, r.target)
			r.target = was
			w.take(v, r.Ask, r.target)
		}
		if w.yield(v, r, a, len(was)-1, 0) {
			return true
		}
	}
	return false
}

// yield takes slots of one job, of its shares from one down to another, until the head fits.
func (w *pass) yield(v rooms, r *running, a Ask, from, to int) bool {
	for i := from; i >= to; i-- {
		least := 0
		if i == 0 {
			least = 1
		}
		for at := i; slots(r.target) > r.Ask.Min && r.target[at].Slots > least; {
			target := slices.Clone(r.target)
			if target[at].Slots--; target[at].Slots == 0 {
				target = slices.Delete(target, at, at+1)
			}
			w.give(v, r.Ask, r.target)
			w.take(v, r.Ask, target)
			gone := len(target) < len(r.target)
			r.target = target
			if _, ok := w.fit(v, w.pool.name, a); ok {
				return true
			}
			if gone {
				break
			}
		}
	}
	return false
}

// drain adds preemptible jobs until the head fits.
func (w *pass) drain(v rooms, e *entry, a Ask) ([]*running, bool) {
	var drained []*running
	for _, r := range w.victims(func(r *running) bool { return r.Preemptible && r.Priority < e.Priority }) {
		w.give(v, r.Ask, r.target)
		drained = append(drained, r)
		if _, ok := w.fit(v, w.pool.name, a); ok {
			return drained, true
		}
	}
	return nil, false
}

// spare lets those go on, or keep their slots, without whom the head fits as well, the most important first.
func (w *pass) spare(v rooms, a Ask, before map[*running][]Share, drained []*running) []*running {
	for i := len(drained) - 1; i >= 0; i-- {
		r := drained[i]
		w.take(v, r.Ask, r.target)
		if _, ok := w.fit(v, w.pool.name, a); ok {
			drained = slices.Delete(drained, i, i+1)
			continue
		}
		w.give(v, r.Ask, r.target)
		if before[r] != nil { // it goes whole
			r.target = before[r]
		}
	}
	for _, r := range slices.Backward(w.victims(func(r *running) bool {
		return before[r] != nil &&
			!slices.Contains(drained, r)
	})) {
		w.give(v, r.Ask, r.target)
		w.take(v, r.Ask, before[r])
		if _, ok := w.fit(v, w.pool.name, a); ok {
			r.target = before[r]
			continue
		}
		w.give(v, r.Ask, before[r])
		w.take(v, r.Ask, r.target)
	}
	return drained
}

// growRunning gives elastic jobs what nobody waits for, the oldest first.
func (w *pass) growRunning() {
	m := w.Machine
	all := w.victims(func(r *running) bool {
		return r.Ask.Min > 0 && slots(r.shares) < r.Ask.NP && slots(r.target) == slots(r.shares)
	})
	for _, r := range slices.Backward(all) {
		want := r.Ask.NP - slots(r.shares)
		if q := m.quotas[r.Project]; q.Max > 0 {
			want = min(want, q.Max-m.project(r.Project).runs)
		}
		shares := slices.Clone(r.shares)
		for _, p := range m.parts(m.free, w.pool.name, r.Ask) {
			name := m.nodes[p.node].Name
			if !m.mayGrow(r, &m.nodes[p.node]) {
				continue
			}
			n := min(p.holds, want)
			if n <= 0 {
				break
			}
			want -= n
			if at := slices.IndexFunc(shares, func(s Share) bool { return s.Node == name }); at >= 0 {
				shares[at].Slots += n
			} else {
				shares = append(shares, Share{name, n})
			}
		}
		if slots(shares) > slots(r.shares) {
			m.resize(r, shares, w.now)
			w.d.Grow = append(w.d.Grow, Placement{ID: r.ID, Shares: shares})
		}
	}
}

// mayGrow says whether a running job may have more slots of a node.
func (m *Machine) mayGrow(r *running, n *Node) bool {
	first := r.shares[0].Node
	if n.Name == first {
		return true
	}
	i, known := m.byName[first]
	return !r.stays && !r.avoids[n.Name] && !n.Alone && known && !m.nodes[i].Alone
}
