package schedule

import (
	"cmp"
	"slices"
)

// makeRoom lets others give way to the head, which needs room for an ask, where that helps: elastic jobs of no higher
// priority shrink first, then preemptible ones of a lower priority are drained. Nobody is disturbed for less than a
// whole start. Who borrows gives back what is others' own, whatever its priority, and gets nothing from those who are
// within their own quota: nobody gives way who comes before the head again as soon as it waits. It reports whether room
// is on its way.
func (w *pass) makeRoom(e *entry, a Ask) bool {
	return w.makeWay(&wish{e: e, head: true, of: w.touches, fits: func(v rooms) bool {
		_, ok := w.fit(v, w.pool.name, a)
		return ok
	}})
}

// wish is what others give way for.
type wish struct {
	e       *entry              // who starts then
	head    bool                // e is the head, which lacks room; else it lacks quota
	of      func(*running) bool // those who may give way
	fits    func(rooms) bool    // whether e starts with what is free then; it sees targets, and who leaves
	borrows bool                // e would run on what is not its project's own
	keeps   bool                // e is who its project keeps quota for
}

func (w *pass) makeWay(h *wish) bool {
	v := slices.Clone(w.free)
	coming := false
	for _, r := range w.running {
		if !h.of(r) {
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
	if h.fits(v) {
		return coming
	}
	q, need := w.quotas[h.e.Project], h.e.Ask.need()
	_, own := w.Machine.quotaOf(h.e, w.now)
	k := w.Machine.keeps(h.e.Project)
	h.keeps = k != nil && k.e == h.e
	if h.borrows = need > own; !h.borrows || need > q.Slots {
		return w.disturb(v, h)
	}
	if w.disturb(slices.Clone(v), h) {
		return true
	}
	// It borrows nothing when others have ended.
	return w.disturb(v, &wish{e: h.e, head: h.head, of: h.of, fits: func(v rooms) bool {
		return w.left(h.e.Project)+need <= q.Slots && h.fits(v)
	}})
}

// left is how many slots a project has when all have shrunk that shrink, and ended that leave.
func (w *pass) left(project string) (n int) {
	for _, r := range w.running {
		if r.Project == project && !r.leaving {
			n += slots(r.target)
		}
	}
	return n
}

// disturb tells those to give way without whom the wish does not come true; false where it does not with all.
func (w *pass) disturb(v rooms, h *wish) bool {
	before := map[*running][]Share{} // the targets of those that shrink, as they were
	owed := w.owed(h)
	ok := w.shrink(v, h, before, owed)
	var drained []*running
	if !ok {
		drained, ok = w.drain(v, h, owed)
	}
	if ok {
		drained = w.spare(v, h, before, drained)
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
		if w.begins(r) {
			w.startSmaller(r)
			continue
		}
		w.tell(r, h, before[r])
		w.d.Shrink = append(w.d.Shrink, Placement{ID: r.ID, Shares: r.target})
	}
	for _, r := range drained {
		if w.begins(r) {
			w.takeBack(r)
			continue
		}
		w.tell(r, h, r.target)
		w.d.Preempt = append(w.d.Preempt, r.ID)
	}
	return true
}

// victims are those that may give way, the least important and youngest first.
func (w *pass) victims(may func(*running) bool) []*running {
	var all []*running
	for _, r := range w.running {
		if !r.leaving && may(r) {
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

// owed is how many slots each project has that are not its own. It is nil for a project without bounds, to which
// nobody owes any.
func (w *pass) owed(h *wish) map[string]int {
	if w.quotas[h.e.Project].Slots <= 0 {
		return nil
	}
	owed := map[string]int{}
	for _, r := range w.running {
		if q := w.quotas[r.Project]; q.Slots > 0 && !r.leaving {
			if _, known := owed[r.Project]; !known {
				owed[r.Project] = -q.Slots
			}
			owed[r.Project] += slots(r.target)
		}
	}
	return owed
}

// shrink takes slots of elastic jobs one at a time until the head fits: those of one node, where they are enough, the
// last node first, else of all. A job's first node keeps the job, and so a slot.
func (w *pass) shrink(v rooms, h *wish, before map[*running][]Share, owed map[string]int) bool {
	for _, r := range w.victims(func(r *running) bool { return h.of(r) && !w.stands(r) && r.Ask.Min > 0 }) {
		was := r.target
		keeps := h.leaves(r, owed)
		if slots(was) <= keeps {
			continue
		}
		before[r] = was
		for i := len(was) - 1; i >= 0 && len(was) > 1; i-- {
			if w.yield(v, r, h, i, i, keeps) {
				return true
			}
			w.give(v, r.Ask, r.target)
			r.target = was
			w.take(v, r.Ask, r.target)
		}
		if w.yield(v, r, h, len(was)-1, 0, keeps) {
			return true
		}
		if owed != nil {
			owed[r.Project] -= slots(was) - slots(r.target)
		}
	}
	return false
}

// yield takes slots of one job, of its shares from one down to another, until the head fits or so many are left.
func (w *pass) yield(v rooms, r *running, h *wish, from, to, keeps int) bool {
	for i := from; i >= to; i-- {
		least := 0
		if i == 0 {
			least = 1
		}
		for at := i; slots(r.target) > keeps && r.target[at].Slots > least; {
			target := slices.Clone(r.target)
			if target[at].Slots--; target[at].Slots == 0 {
				target = slices.Delete(target, at, at+1)
			}
			w.give(v, r.Ask, r.target)
			w.take(v, r.Ask, target)
			gone := len(target) < len(r.target)
			r.target = target
			if h.fits(v) {
				return true
			}
			if gone {
				break
			}
		}
	}
	return false
}

// leaves says how many slots an elastic job keeps at least.
func (h *wish) leaves(r *running, owed map[string]int) int {
	before, same := r.Priority > h.e.Priority, r.Project == h.e.Project
	switch {
	case !before && (same || !h.borrows):
		return r.Ask.Min
	case before && (same || h.borrows):
		return slots(r.target)
	}
	return max(r.Ask.Min, slots(r.target)-owed[r.Project]) // it gives no more than it borrows
}

// mayDrain says whether a job does not come before the wish again when it waits: it comes before one that borrows, but
// for whom its project keeps quota, and after one that does not, unless it borrows itself then. Least is what the
// smallest asks for, of each project, of those that are drained since they borrow.
func (h *wish) mayDrain(r *running, owed, least map[string]int) bool {
	lower, same := r.Priority < h.e.Priority, r.Project == h.e.Project
	switch {
	case lower && (!h.borrows || same && h.keeps):
		return true
	case !lower && (same || h.borrows):
		return false
	}
	asks := r.Ask.need()
	if n, known := least[r.Project]; known {
		asks = min(asks, n)
	}
	if asks+owed[r.Project]-slots(r.target) <= 0 {
		return false
	}
	least[r.Project] = asks
	return true
}

// drain adds preemptible jobs until the head fits.
func (w *pass) drain(v rooms, h *wish, owed map[string]int) ([]*running, bool) {
	var drained []*running
	least := map[string]int{}
	for _, r := range w.victims(func(r *running) bool { return h.of(r) && !w.stands(r) && r.Preemptible }) {
		if !h.mayDrain(r, owed, least) {
			continue
		}
		r.leaving = true
		w.give(v, r.Ask, r.target)
		if owed != nil {
			owed[r.Project] -= slots(r.target)
		}
		drained = append(drained, r)
		if h.fits(v) {
			return drained, true
		}
	}
	for _, r := range drained {
		r.leaving = false
	}
	return nil, false
}

// spare lets those go on, or keep their slots, without whom the head fits as well, the most important first.
func (w *pass) spare(v rooms, h *wish, before map[*running][]Share, drained []*running) []*running {
	for i := len(drained) - 1; i >= 0; i-- {
		r := drained[i]
		w.take(v, r.Ask, r.target)
		if r.leaving = false; h.fits(v) {
			drained = slices.Delete(drained, i, i+1)
			continue
		}
		r.leaving = true
		w.give(v, r.Ask, r.target)
		if before[r] != nil { // it goes whole
			r.target = before[r]
		}
	}
	for _, r := range slices.Backward(w.victims(func(r *running) bool {
		return before[r] != nil
	})) {
		least := r.target
		w.give(v, r.Ask, least)
		w.take(v, r.Ask, before[r])
		if r.target = before[r]; h.fits(v) {
			continue
		}
		r.target = least
		w.give(v, r.Ask, before[r])
		w.take(v, r.Ask, least)
	}
	return drained
}

// growRunning gives elastic jobs what nobody waits for, the oldest first.
func (w *pass) growRunning() {
	m := w.Machine
	all := w.victims(func(r *running) bool {
		return w.touches(r) && r.Ask.Min > 0 && slots(r.shares) < r.Ask.NP && slots(r.target) == slots(r.shares)
	})
	for _, r := range slices.Backward(all) {
		want := min(r.Ask.NP-slots(r.shares), m.growsBy(r.Project))
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
