package elastic

import (
	"fmt"
	"time"

	"hora/event"
)

// shortage is a wait for workers without whom the job does not go on.
type shortage struct {
	waits bool
	since time.Duration
	word  pace
}

// tooFew says from time to time for whom the job waits, and ends one that has waited too long for the least number of
// workers.
func (r *Roster) tooFew() {
	s := &r.short
	homeless := r.awaiting()
	fewer := r.left < r.least()
	switch {
	case r.over, r.ending, r.cfg.Discovered && (!fewer || r.closing), !r.cfg.Discovered &&
		(len(homeless) == 0 || !fewer && r.cfg.OnLoss != Replace):
		*s = shortage{}
		return
	case r.cfg.Discovered && r.spent():
		r.giveUp(fmt.Sprintf("%s left, --min-np is %d, and workers have failed on every slot of %s, none of which is tried again: see why they failed, or have slots tried again after a pause with --blacklist-cooldown-range",
			are(r.left, "worker"), r.cfg.Min, r.named()), false)
		return
	case !s.waits:
		s.waits, s.since = true, r.now
	}
	over, limit := r.now-s.since, r.cfg.Wait
	switch {
	case r.cfg.OnLoss == Replace: // house ends it, by the rank that has waited longest
		if s.word.due(r.now) {
			r.tell(&event.Delay{Text: fmt.Sprintf("waiting for a slot for rank %s%s", numbers(homeless, 4), r.unused()), Over: over, Limit: limit})
		}
	case over > limit:
		r.giveUp(fmt.Sprintf("%s left for %v, and --min-np is %d: add hosts, or lower --min-np", are(r.left, "worker"), limit, r.cfg.Min), true)
	case s.word.due(r.now):
		r.tell(&event.Delay{Text: fmt.Sprintf("waiting for %s: %s left, and --min-np is %d%s",
			event.Counted(r.least()-r.left, "more worker"), are(r.left, "worker"), r.cfg.Min, r.unused()), Over: over, Limit: limit})
	}
}

// house looks again for slots for ranks that wait for one.
func (r *Roster) house() {
	ranks := r.awaiting()
	if len(ranks) == 0 || r.over {
		return
	}
	to := r.find(ranks)
	for _, rank := range ranks {
		s := r.seats[rank]
		at, ok := to[rank]
		switch {
		case ok:
			r.settle(rank, at, s.at.Host, s.cause)
		case r.now-s.due > r.cfg.Wait && r.cfg.OnLoss == Replace:
			r.giveUp(fmt.Sprintf("rank %d has waited %v for a slot since host %s was lost (%s): look whether its host is up, name more hosts in -H, or raise --elastic-timeout",
				rank, r.cfg.Wait, s.at.Host, s.cause), true)
			return
		}
	}
}

// spent reports that every slot of the hosts that are there was given up for good.
func (r *Roster) spent() bool {
	for _, h := range r.hosts {
		for slot := range h.Slots {
			if !r.black.Final(h.Name, slot) {
				return false
			}
		}
	}
	return slots(r.hosts) > 0
}

// named lists the hosts.
func (r *Roster) named() string {
	var names []string
	for _, h := range r.hosts {
		names = append(names, h.Name)
	}
	return list(names)
}

// unused lists the hosts, or the slots of them, on which nothing starts, in brackets.
func (r *Roster) unused() string {
	var names []string
	for _, h := range r.hosts {
		n := 0
		for slot := range h.Slots {
			if r.barred(h.Name, slot) != "" {
				n++
			}
		}
		switch {
		case n == h.Slots:
			names = append(names, h.Name)
		case n > 0:
			names = append(names, event.Counted(n, "slot")+" of "+h.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (not used: " + list(names) + ")"
}
