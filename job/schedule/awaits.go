package schedule

import (
	"fmt"
	"slices"
	"time"
)

// untilPlaces is up to which place it is said of a job whose end makes room for it: reasons are asked for by hundreds.
const untilPlaces = 8

// until adds to why a job has too little room who is waited for: the job whose end leaves enough, those before it
// served first. The head is alone in that; the last decision has seen to it that nobody is before it.
func (m *Machine) until(e *entry, head bool, place int, now time.Time) string {
	var before []*entry
	switch {
	case head || place == 1:
	case place > untilPlaces:
		return ""
	default:
		before = m.ahead(e, now)
	}
	f, known := m.foresee(e.Pool, now), true
	for _, one := range append(slices.Clone(before), e) {
		known = known && f.start(one)
	}
	if r := m.running[f.last]; known && r != nil {
		return fmt.Sprintf("; job %d ends in %s at the latest", r.ID, about(r.ends().Sub(now)))
	}
	if len(before) > 0 {
		return fmt.Sprintf("; job %d is before it", before[0].ID)
	}
	var endless []int64
	for _, r := range m.running {
		if r.Pool == e.Pool && r.ends().Equal(far) {
			endless = append(endless, r.ID)
		}
	}
	slices.Sort(endless)
	switch len(endless) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("; job %d runs without a time limit", endless[0])
	case 2:
		return fmt.Sprintf("; jobs %d and %d run without a time limit", endless[0], endless[1])
	}
	return fmt.Sprintf("; %d jobs run without a time limit, job %d among them", len(endless), endless[0])
}

// undecided says of a job for which there is room whether the next decision starts it: those before it, which have
// come since the last one too, are served first.
func (m *Machine) undecided(e *entry, place int, now time.Time) (code, text string) {
	if place == 1 {
		return CodeNext, "starts at once"
	}
	if place > forecastPlaces {
		return CodeTurn, "others have come just before it, and whether it starts too is decided in a moment"
	}
	free := slices.Clone(m.free)
	for _, one := range m.ahead(e, now) {
		shares, fits := m.fit(free, one.Pool, one.Ask)
		if !fits {
			return CodeTurn, fmt.Sprintf("job %d, which needs %s, is before it, and whether it starts too is decided in a moment", one.ID, needs(one.Ask))
		}
		m.take(free, one.Ask, shares)
		if _, fits := m.fit(free, e.Pool, e.Ask); !fits {
			return CodeSlots, fmt.Sprintf("needs %s, and job %d, which starts before it, takes what is free", needs(e.Ask), one.ID)
		}
	}
	return CodeNext, "starts at once"
}
