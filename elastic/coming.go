package elastic

import "slices"

// Workers that are on their way: what is known of them before they join, and who waits for them.

// start says as what a process was started.
type start struct {
	rank    int    // -1 when nobody said
	process string // see Join
}

// is says whether two starts may be one: where a process has no name, its rank is all that is known of it.
func (s start) is(o start) bool {
	return s.rank == o.rank && (s.process == o.process || s.process == "" || o.process == "")
}

// Awaited lists, by the ranks that they were started as, members of the last epoch that have not joined again, and
// workers on their way that those who have joined are to meet. Both are empty where none are waited for.
func (m *Machine) Awaited() (behind, coming []int) {
	for _, c := range m.known {
		if !m.open && c.place >= 0 && !c.waiting {
			behind = append(behind, c.start.rank)
		}
	}
	for s := range m.coming {
		if m.open && len(m.held) > 0 || !m.open && m.meets() {
			coming = append(coming, s.rank)
		}
	}
	slices.Sort(behind)
	slices.Sort(coming)
	return behind, coming
}

// expect notes a worker that is on its way, or is waited for no longer. The worker itself may have been quicker than
// this word of it: who waited for it then would wait for nobody.
func (m *Machine) expect(e Coming) []Action {
	from := start{e.Rank, e.Process}
	if !e.Is {
		m.arrive(from)
		return append(m.tellHeld(), m.tryOpen()...)
	}
	if c := m.unannounced(from); c != nil {
		c.more, c.told = e.More, true
	} else {
		m.coming[from] = e.More
	}
	return nil
}

// arrive says whether a worker was on its way, and whether it is one more. It is on its way no longer.
func (m *Machine) arrive(from start) (more, was bool) {
	for s, is := range m.coming {
		if s.is(from) {
			more, was = more || is, true
			delete(m.coming, s)
		}
	}
	return more, was
}

// unannounced returns the youngest worker that a Coming may tell of and none has, nil where there is none. Where
// processes have no names it is no other's predecessor, since the end of that is told before.
func (m *Machine) unannounced(from start) (youngest *candidate) {
	for _, c := range m.known {
		if c.start.is(from) && !c.told && (youngest == nil || c.worker > youngest.worker) {
			youngest = c
		}
	}
	return youngest
}
