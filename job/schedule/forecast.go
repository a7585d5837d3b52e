package schedule

import (
	"slices"
	"time"
)

// A forecast looks at so many jobs before one, and tries so often whether one fits: it is asked for while others wait.
const (
	forecastPlaces = 32
	forecastTries  = 200
)

// Expect foretells when a job that waits starts if jobs take as long as their limits let them and start one after the
// other, as they wait: it may be earlier. False where jobs without a limit are in the way, or where it is too far off.
func (m *Machine) Expect(id int64, now time.Time) (time.Time, bool) {
	e := m.jobs[id]
	if e == nil {
		return time.Time{}, false
	}
	if is, _ := m.verdict(m.pools[e.Pool], e.Ask, nil); !is.ever {
		return time.Time{}, false
	}
	if most, _ := m.quotaOf(e, now); e.Ask.need() > most { // when the quota lets it start is not foretold
		return time.Time{}, false
	}
	if p := m.pools[e.Pool]; p.blocked && p.promise.ID == id { // which knows of room that is being made
		return p.promise.At, !p.promise.At.IsZero()
	}
	if m.place(e, now) > forecastPlaces {
		return time.Time{}, false
	}
	f := m.foresee(e.Pool, now)
	for _, one := range append(m.ahead(e, now), e) {
		if !f.start(one) {
			return time.Time{}, false
		}
	}
	return f.at, true
}

// foresee is how a pool stands now.
func (m *Machine) foresee(pool string, now time.Time) *forecast {
	f := &forecast{m: m, pool: pool, at: now, free: slices.Clone(m.free)}
	for _, r := range m.running {
		if r.Pool == pool {
			f.ends = append(f.ends, ending{r.ends(), r.ID, r.Ask, r.shares})
		}
	}
	return f
}

// ahead lists who is before a job, in order, but for those that what there is never holds.
func (m *Machine) ahead(e *entry, now time.Time) (all []*entry) {
	mine := &turn{line: lineOf(&e.Job), e: e}
	m.rank(mine, now)
	var before []*turn
	p := m.pools[e.Pool]
	for l, jobs := range p.lines {
		for i, one := range jobs {
			t := &turn{line: l, e: one}
			ranked := m.rank(t, now)
			if !t.before(mine) {
				break // those behind it are younger
			}
			if i == 0 { // the first of thousands that never fit: who asks has a small place, which leaves those out
				if m.hopeless(l, p, nil) {
					break
				}
				if is, _ := m.verdict(p, l.ask, nil); !is.ever {
					break
				}
			}
			if ranked {
				before = append(before, t)
			}
		}
	}
	slices.SortFunc(before, func(a, b *turn) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	for _, t := range before {
		all = append(all, t.e)
	}
	return all
}

// forecast is how a pool stands at some time to come.
type forecast struct {
	m     *Machine
	pool  string
	at    time.Time
	free  rooms
	ends  []ending
	last  int64 // whose end it was that made room last
	tries int
}

// ending is what will be free.
type ending struct {
	at     time.Time
	id     int64
	ask    Ask
	shares []Share
}

// start lets a job start as soon as it fits; false where that is not known.
func (f *forecast) start(e *entry) bool {
	for {
		if f.tries++; f.tries > forecastTries {
			return false
		}
		shares, ok := f.m.fit(f.free, f.pool, e.Ask)
		if ok {
			f.m.take(f.free, e.Ask, shares)
			end := far
			if e.Ask.Limit > 0 {
				end = f.at.Add(e.Ask.Limit)
			}
			f.ends = append(f.ends, ending{end, e.ID, e.Ask, shares})
			return true
		}
		if len(f.ends) == 0 {
			return false
		}
		next := 0
		for i := range f.ends {
			if c := f.ends[i].at.Compare(f.ends[next].at); c < 0 || c == 0 && f.ends[i].id < f.ends[next].id {
				next = i
			}
		}
		one := f.ends[next]
		if one.at.Equal(far) {
			return false
		}
		if f.ends = slices.Delete(f.ends, next, next+1); one.at.After(f.at) {
			f.at = one.at
		}
		f.last = one.id
		f.m.give(f.free, one.ask, one.shares)
	}
}
