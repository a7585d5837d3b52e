package launch

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"hora/elastic"
)

// shortage is a wait for workers without whom the job does not go on.
type shortage struct {
	since time.Time // zero without one
	word  patience
}

// tooFew says from time to time for whom the job waits, and ends one that has waited too long for the least number of
// workers.
func (j *job) tooFew() {
	s, now := &j.short, time.Now()
	short, limit := j.short.of(j)
	if !short {
		*s = shortage{}
		return
	}
	if s.since.IsZero() {
		s.since = now
	}
	over := now.Sub(s.since)
	switch {
	case j.spec.OnLoss == elastic.Replace: // house ends it, by the rank that has waited longest
		if s.word.due(now) {
			j.event(&Delay{fmt.Sprintf("waiting for a slot for rank %s%s; %v of %v are over", j.parked(), j.shunned(), over.Round(time.Second), limit)})
		}
	case over > limit:
		j.fail(Outcome{
			Kind: LostHost, Rank: -1, Code: ExitTimeout,
			Last: fmt.Sprintf("%d workers are left for %v, and --min-np is %d: add hosts, or lower --min-np", j.left, limit, j.spec.Min),
		})
	case s.word.due(now):
		j.event(&Delay{fmt.Sprintf("waiting for %d more workers: %d are left, and --min-np is %d%s; %v of %v are over",
			max(j.spec.Min, 1)-j.left, j.left, j.spec.Min, j.shunned(), over.Round(time.Second), limit)})
	}
}

// of says whether the job is short of workers that may still come, and how long it waits for them.
func (*shortage) of(j *job) (short bool, limit time.Duration) {
	fewer := j.left < max(j.spec.Min, 1)
	switch {
	case j.stopped || j.complete.Load():
		return false, 0
	case j.disc != nil:
		return fewer && !j.disc.closing, j.disc.Wait
	case len(j.homeless) == 0:
		return false, 0
	}
	return fewer || j.spec.OnLoss == elastic.Replace, j.spec.Wait
}

// parked lists the ranks that wait for a slot.
func (j *job) parked() string {
	var ranks []string
	for _, r := range slices.Sorted(maps.Keys(j.homeless)) {
		ranks = append(ranks, strconv.Itoa(r))
	}
	return list(ranks)
}

// shunned lists the hosts, or the slots of them, on which nothing starts, in brackets.
func (j *job) shunned() string {
	hosts := j.spec.Hosts
	if j.disc != nil {
		hosts = j.disc.hosts
	}
	now := time.Now()
	var names []string
	for _, h := range hosts {
		banned := 0
		for slot := range h.Slots {
			if j.off[h.Name] != "" || j.disc != nil && j.disc.black.bans(h.Name, slot, now) {
				banned++
			}
		}
		switch {
		case banned == h.Slots:
			names = append(names, h.Name)
		case banned > 0:
			names = append(names, fmt.Sprintf("%d slots of %s", banned, h.Name))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (not used: " + list(names) + ")"
}
