package elastic

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"hora/event"
)

// leaving is what a Roster knows of ranks that are to commit and leave. Who lets all of them go at once loses the
// state: where nobody else is in the present epoch, one rank, the keeper, is asked only when others have come; and
// where the others have been lost since it was asked, that is taken back until then.
type leaving struct {
	why    map[int]string // by rank, until its process has ended
	asked  map[int]bool
	keeper int    // -1 without one
	since  uint64 // the epoch in which there was nobody but those that leave
}

// handingOver is how long a keeper stays in the epoch in which others get the state from it: one that is asked while it
// still joins leaves without a word.
const handingOver = time.Second

func newLeaving() leaving { return leaving{why: map[int]string{}, asked: map[int]bool{}, keeper: -1} }

// forget drops a rank whose process has ended, or that may stay after all.
func (v *leaving) forget(rank int) {
	delete(v.why, rank)
	delete(v.asked, rank)
	if v.keeper == rank {
		v.keeper = -1
	}
}

// notice asks all workers of a host that is about to go.
func (r *Roster) notice(e Notice) {
	if r.over || !r.cfg.Elastic || r.noticed[e.Host] != "" {
		return
	}
	if e.Cause == "" {
		e.Cause = "notice"
	}
	ranks := r.ranksOn(e.Host)
	then := "its workers commit and leave"
	r.noticed[e.Host] = e.Cause
	if !r.cfg.Discovered && r.cfg.OnLoss == Replace && r.vacancies("") < len(ranks) {
		then = "its workers stay until it is gone, since nobody else has a slot for them: name more hosts or slots in -H"
		ranks = nil
	}
	r.tell(&event.Warning{Host: e.Host, Text: fmt.Sprintf("%s is about to go: %s: %s", e.Host, e.Cause, then)})
	r.ask(ranks, e.Cause)
}

// drainGone asks workers to leave whose slot, or whose whole host, is not to be used any more. Where a failure took the
// host away, its other workers stay until the job has enough without them. Who has not been asked yet stays when its
// slot has come back.
func (r *Roster) drainGone() {
	if r.ending {
		return
	}
	have := map[string]int{}
	for _, h := range r.hosts {
		have[h.Name] = h.Slots
	}
	on := map[string]int{}
	for i := range r.seats {
		if r.seats[i].present() {
			on[r.seats[i].at.Host]++
		}
	}
	for rank := range r.seats {
		s := &r.seats[rank]
		host := s.at.Host
		switch {
		case !s.present():
		case r.cfg.ByHost && r.black.Why(host, -1, r.now) != "" && r.left-on[host] >= r.least():
			r.leaving.why[rank] = "a worker failed on " + host
		case s.at.Slot >= have[host]:
			r.leaving.why[rank] = fmt.Sprintf("%s has %s from now on", host, event.Counted(have[host], "slot"))
		case r.barred(host, -1) == "" && !r.leaving.asked[rank]:
			r.leaving.forget(rank)
		}
	}
}

// end has all ranks leave at their next commit. None of them is kept for others who come.
func (r *Roster) end() {
	if !r.begun {
		r.giveUp("the job was told to end before it had begun", false)
		return
	}
	r.ending = true
	for rank := range r.seats {
		if r.seats[rank].present() {
			r.leaving.why[rank] = ToEnd
		}
	}
}

// ask has ranks asked to commit and leave.
func (r *Roster) ask(ranks []int, why string) {
	for _, rank := range ranks {
		if r.leaving.why[rank] == "" {
			r.leaving.why[rank] = why
		}
	}
}

// askOn asks those that have not been asked, once their processes run; it is called at the end of every Step.
func (r *Roster) askOn() {
	v := &r.leaving
	if len(v.why) == 0 || r.over {
		return
	}
	ranks := slices.DeleteFunc(slices.Sorted(maps.Keys(v.why)), func(rank int) bool { return !r.seats[rank].up })
	if len(ranks) == 0 {
		return
	}
	if r.ending {
		v.keeper = -1
	} else if v.keeper < 0 && r.size <= len(ranks) {
		i := max(slices.IndexFunc(ranks, func(rank int) bool { return !v.asked[rank] }), 0)
		v.keeper, v.since = ranks[i], r.epoch
		if v.asked[v.keeper] {
			delete(v.asked, v.keeper)
			r.say(Stay{Rank: v.keeper})
		}
	}
	if v.keeper >= 0 && r.epoch > v.since && r.size > len(ranks) && r.now-r.opened >= handingOver {
		v.keeper = -1
	}
	for _, rank := range ranks {
		if rank != v.keeper && !v.asked[rank] {
			v.asked[rank] = true
			r.say(Ask{Rank: rank, Cause: v.why[rank]})
		}
	}
}
