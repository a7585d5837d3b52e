package launch

import (
	"fmt"
	"maps"
	"slices"

	"hora/elastic"
)

// leaving is what the launcher knows of ranks that are to commit and leave. Who asks all of them at once loses the
// state: where nobody else is in the present epoch, one rank, the keeper, is asked only when others have come.
type leaving struct {
	why    map[int]string // by rank, until its process has ended
	asked  map[int]bool
	keeper int    // -1 without one
	since  uint64 // the epoch in which there was nobody but those that leave
}

// noticed asks all workers of a host that is about to go.
func (j *job) noticed(l *link, why string) {
	if j.stopped || !j.spec.elastic() || j.off[l.name] != "" {
		return
	}
	var ranks []int
	for rank, s := range j.seats {
		if s.Host == l.index && j.alive[rank] {
			ranks = append(ranks, rank)
		}
	}
	then := "its workers commit and leave"
	j.off[l.name] = why
	if j.disc == nil && j.spec.OnLoss == elastic.Replace && j.vacancies("") < len(ranks) {
		then = "its workers stay until it is gone, since nobody else has a slot for them: name more hosts or slots in -H"
		ranks = nil
	}
	j.event(&Warning{Host: l.name, Text: fmt.Sprintf("%s is about to go: %s: %s", l.name, why, then)})
	j.ask(ranks, why)
}

// vacancies counts slots that nobody has on hosts other than but.
func (j *job) vacancies(but string) int {
	n := 0
	for _, h := range j.spec.Hosts {
		if h.Name == but {
			continue
		}
		taken := map[int]bool{}
		for s := j.vacant(h, taken); s >= 0; s = j.vacant(h, taken) {
			taken[s] = true
			n++
		}
	}
	return n
}

// ask asks ranks to commit and leave.
func (j *job) ask(ranks []int, why string) {
	for _, rank := range ranks {
		if j.alive[rank] && j.leave.why[rank] == "" {
			j.leave.why[rank] = why
		}
	}
	j.askOn()
}

// askOn asks those that have not been asked; it is called again as the job changes.
func (j *job) askOn() {
	v := &j.leave
	if len(v.why) == 0 || j.stopped || j.complete.Load() {
		return
	}
	ranks := slices.Sorted(maps.Keys(v.why))
	epoch, size := j.epoch.Load(), int(j.size.Load())
	if v.keeper < 0 && size <= len(ranks) && !v.asked[ranks[0]] {
		v.keeper, v.since = ranks[0], epoch
	}
	if v.keeper >= 0 && epoch > v.since && size > len(ranks) {
		v.keeper = -1
	}
	for _, rank := range ranks {
		if rank != v.keeper && !v.asked[rank] {
			v.asked[rank] = true
			j.server.Drain(rank, v.why[rank])
		}
	}
}

// hasLeft forgets a rank whose process has ended.
func (j *job) hasLeft(rank int) {
	delete(j.leave.why, rank)
	delete(j.leave.asked, rank)
	if j.leave.keeper == rank {
		j.leave.keeper = -1
	}
}
