package launch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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
	j.shun(l.name, reason)
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

// target is a slot for a rank.
type target struct {
	l    *link
	slot int
	beds int // slots of that host that are taken then
}

// homeless is a rank that waits for a slot.
type homeless struct {
	from, cause string
	since       time.Time
}

// Parked says that a rank waits for a slot, since a host is tried again later.
type Parked struct {
	Rank        int
	Host, Cause string
	Limit       time.Duration
}

func (e *Parked) String() string {
	return fmt.Sprintf("rank %d on %s: %s: no other slot is free: waiting up to %v for a host to come back", e.Rank, e.Host, e.Cause, e.Limit)
}

// move starts ranks that were on a host elsewhere. Those that find no slot wait where hosts are tried again; else, under
// continue, they are missed by nobody as long as enough are left.
func (j *job) move(ranks []int, from, cause string) bool {
	to := j.find(ranks)
	waits := j.spec.CoolMin > 0
	enough := j.left+len(to) >= max(j.spec.Min, 1)
	if j.spec.OnLoss == elastic.Replace {
		enough = len(to) == len(ranks)
	}
	if j.left == 0 || !enough && !waits {
		return false
	}
	for _, rank := range ranks {
		t, ok := to[rank]
		switch {
		case ok:
			j.event(&Moved{Rank: rank, From: from, To: t.l.name, Cause: cause})
			j.settleAt(rank, t)
			continue
		case waits:
			j.homeless[rank] = homeless{from, cause, time.Now()}
		}
		if j.spec.OnLoss == elastic.Continue {
			j.event(&Shrunk{Rank: rank, Host: from, Cause: cause, Left: j.left + len(to)})
		} else {
			j.event(&Parked{Rank: rank, Host: from, Cause: cause, Limit: j.spec.Wait})
		}
	}
	return true
}

// find looks for slots that nobody has, hosts in their order.
func (j *job) find(ranks []int) map[int]target {
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
				to[rank] = target{l, slot, max(len(taken[h.Name]), slot+1)}
				break
			}
		}
	}
	return to
}

// settleAt starts a rank on a slot, once the host can.
func (j *job) settleAt(rank int, t target) {
	s := Seat{Rank: rank, LocalRank: t.slot, LocalSize: t.beds, CrossRank: t.l.index, CrossSize: len(j.links), Host: t.l.index}
	j.left++
	j.seats[rank] = s
	j.again.began[rank], j.again.epoch[rank] = time.Now(), j.epoch.Load()
	if t.l.planned {
		t.l.sendJSON(cmdStart, j.worker(s, j.epoch.Load()+1))
		return
	}
	j.again.planned[rank] = true
	t.l.waiting = append(t.l.waiting, s)
}

// house looks again for slots for ranks that wait for one.
func (j *job) house() {
	if len(j.homeless) == 0 || j.stopped || j.complete.Load() {
		return
	}
	ranks := slices.Sorted(maps.Keys(j.homeless))
	to := j.find(ranks)
	for _, rank := range ranks {
		h := j.homeless[rank]
		t, ok := to[rank]
		switch {
		case ok:
			delete(j.homeless, rank)
			j.event(&Moved{Rank: rank, From: h.from, To: t.l.name, Cause: h.cause})
			j.settleAt(rank, t)
		case time.Since(h.since) > j.spec.Wait && j.spec.OnLoss == elastic.Replace:
			j.fail(Outcome{Kind: LostHost, Rank: -1, Host: h.from, Code: ExitTimeout, Last: fmt.Sprintf(
				"rank %d has waited %v for a slot since host %s was lost (%s): look whether its host is up, name more hosts in -H, or raise --elastic-timeout", rank, j.spec.Wait, h.from, h.cause)})
			return
		}
	}
}

// vacant is the lowest slot of a host that nobody has, -1 when there is none.
func (j *job) vacant(h Host, taken map[int]bool) int {
	if j.off[h.Name] != "" {
		if until, ok := j.until[h.Name]; !ok || time.Now().Before(until) {
			return -1
		}
		delete(j.off, h.Name)
		delete(j.until, h.Name)
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
	if j.off[host] != "" && j.until[host].IsZero() {
		return // it had given notice
	}
	j.off[host] = why
	text := "it is not used any more"
	if pause := j.black.add(spot{host, -1}, time.Now()); pause > 0 {
		j.until[host] = time.Now().Add(pause)
		text = fmt.Sprintf("it is tried again in %v", pause.Round(time.Second/10))
	}
	j.event(&Warning{Host: host, Text: fmt.Sprintf("%s: %s: %s", host, why, text)})
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
