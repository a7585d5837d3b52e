package launch

import (
	"fmt"
	"slices"
	"strings"

	"hora/elastic"
)

// Moved says that a rank whose host is gone, or about to go, starts on another.
type Moved struct {
	Rank     int
	From, To string
	Cause    string
}

func (e *Moved) String() string {
	return fmt.Sprintf("rank %d on %s: %s: starting it on %s", e.Rank, e.From, e.Cause, e.To)
}

// moveOff deals with the loss of a host in a job without a discovery: its ranks go to slots that nobody has, which costs
// no restart. It is false when the job cannot go on.
func (j *job) moveOff(l *link, reason string) bool {
	j.off[l.name] = reason
	l.waiting = nil
	var ranks []int
	for rank, s := range j.seats {
		if s.Host != l.index || !j.present(rank) {
			continue
		}
		ranks = append(ranks, rank)
		j.left--
		if j.alive[rank] {
			j.alive[rank] = false
			j.server.Exited(rank, l.name, reason)
			j.event(&Exited{Rank: rank, Host: l.name, Cause: reason})
		}
		delete(j.begun, rank)
		delete(j.condemn, rank)
		delete(j.again.planned, rank)
		j.hasLeft(rank)
		j.drained.Delete(rank)
	}
	if len(ranks) == 0 {
		return true // nothing was there any more
	}
	return j.move(ranks, l.name, reason)
}

// holds says whether some rank has its process, or is promised one, at an agent.
func (j *job) holds(l *link) bool {
	return !j.stopped && !j.complete.Load() && slices.ContainsFunc(j.seats, func(s Seat) bool { return s.Host == l.index && j.present(s.Rank) })
}

// present says whether a rank has a process, or is promised one.
func (j *job) present(rank int) bool {
	_, begun := j.begun[rank]
	return begun || j.again.planned[rank]
}

// move starts ranks that were on a host elsewhere. Under continue those that find no slot are missed by nobody as long as
// enough are left.
func (j *job) move(ranks []int, from, cause string) bool {
	type target struct {
		l    *link
		slot int
	}
	to := map[int]target{}
	taken := map[string]map[int]bool{}
	for _, rank := range ranks {
		for _, h := range j.spec.Hosts {
			slot := j.vacant(h, taken[h.Name])
			if slot < 0 {
				continue
			}
			if l := j.hostLink(h); l != nil {
				if taken[h.Name] == nil {
					taken[h.Name] = map[int]bool{}
				}
				taken[h.Name][slot] = true
				to[rank] = target{l, slot}
				break
			}
		}
	}
	if left := j.left + len(to); left < max(j.spec.Min, 1) || j.spec.OnLoss == elastic.Replace && len(to) < len(ranks) || j.left == 0 {
		return false
	}
	for _, rank := range ranks {
		t, ok := to[rank]
		if !ok {
			j.event(&Shrunk{Rank: rank, Host: from, Cause: cause, Left: j.left + len(to)})
			continue
		}
		j.left++
		j.seats[rank] = Seat{Rank: rank, LocalRank: t.slot, LocalSize: max(len(taken[t.l.name]), t.slot+1), CrossRank: t.l.index, CrossSize: len(j.links), Host: t.l.index}
		j.event(&Moved{Rank: rank, From: from, To: t.l.name, Cause: cause})
		if t.l.planned {
			t.l.sendJSON(cmdStart, j.worker(j.seats[rank], j.epoch.Load()+1))
		} else {
			j.again.planned[rank] = true
			t.l.waiting = append(t.l.waiting, j.seats[rank])
		}
	}
	return true
}

// vacant is the lowest slot of a host that nobody has, -1 when there is none.
func (j *job) vacant(h Host, taken map[int]bool) int {
	if j.off[h.Name] != "" {
		return -1
	}
	used := map[int]bool{}
	for rank, s := range j.seats {
		if j.links[s.Host].name == h.Name && j.present(rank) {
			used[s.LocalRank] = true
		}
	}
	for slot := range h.Slots {
		if !used[slot] && !taken[slot] {
			return slot
		}
	}
	return -1
}

// shun keeps workers away from a host that cannot be reached or has failed as a whole.
func (j *job) shun(host, why string) {
	if j.disc != nil {
		j.ban(host, -1, why)
		return
	}
	j.off[host] = why
	j.event(&Warning{Host: host, Text: fmt.Sprintf("%s: %s: it is not used any more", host, why)})
}

// whyNot says after a host's loss why an elastic job ends by it, and what to do.
func (j *job) whyNot(l *link) string {
	if !j.spec.elastic() || j.disc != nil || j.stopped {
		return ""
	}
	var ranks []string
	for rank, s := range j.seats {
		if s.Host == l.index {
			ranks = append(ranks, fmt.Sprint(rank))
		}
	}
	switch {
	case j.left == 0:
		return ": nobody is left who has the state"
	case j.spec.OnLoss == elastic.Continue:
		return fmt.Sprintf(": %d workers are left and --min-np is %d: name more hosts in -H, or lower --min-np", j.left, max(j.spec.Min, 1))
	}
	return fmt.Sprintf(": rank %s finds no other slot: name more hosts or slots in -H, or let the others go on with --on-loss continue", strings.Join(ranks, ", "))
}
