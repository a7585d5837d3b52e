package schedule

// verdict is whether a pool ever holds what is asked for, when nothing else runs: with the nodes that it has, and
// never, whichever may yet come.
type verdict struct{ ever, never bool }

// verdicts are a pool's, for as long as its nodes and those that may come are the same. Whether they are open makes no
// difference. To find one looks at each node of the machine, and a queue may have as many asks as jobs.
type verdicts struct {
	shape uint64 // of the pool, for which they hold
	nodes int    // that it has
	of    map[Ask]verdict
}

// verdictsAtOnce bounds how many are found to tell one place: a job of which none is known yet counts as one that may
// start, and they are known when it is asked for again.
const verdictsAtOnce = 64

// judged are the verdicts of a pool as it is now.
func (m *Machine) judged(p *pool) *verdicts {
	v := &p.judged
	if v.of == nil || v.shape != p.shape || len(v.of) > 4*len(p.lines)+1024 {
		*v = verdicts{shape: p.shape, of: map[Ask]verdict{}}
		for i := range m.nodes {
			if m.nodes[i].Pool == p.name {
				v.nodes++
			}
		}
	}
	return v
}

// verdict is that on an ask; false where it would have to be found, and may not be any more.
func (m *Machine) verdict(p *pool, a Ask, may *int) (is verdict, known bool) {
	a.Limit = 0
	v := m.judged(p)
	if is, known = v.of[a]; known {
		return is, true
	}
	if may != nil {
		if *may <= 0 {
			return verdict{}, false
		}
		*may--
	}
	is.ever = m.ever(p.name, a)
	is.never = !is.ever && !m.could(p.name, a, p.spare+m.others(p.name, 0))
	v.of[a] = is
	return is, true
}

// hopeless reports of those who wait in a line whether their reason is CodeNever.
func (m *Machine) hopeless(l line, p *pool, may *int) bool {
	if q := m.quotas[l.project]; q.Slots > 0 && q.Max > 0 && l.ask.need() > q.Max {
		return true
	}
	if l.ask.For != 0 || m.judged(p).nodes == 0 && p.spare == 0 {
		return false // what it is made for, or what the pool waits for, may yet come
	}
	is, known := m.verdict(p, l.ask, may)
	return known && is.never
}
