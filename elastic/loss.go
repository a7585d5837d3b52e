package elastic

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"hora/event"
)

// exit deals with the end of a process.
func (r *Roster) exit(e Exit) {
	if e.Rank < 0 || e.Rank >= len(r.seats) || !r.seats[e.Rank].present() {
		return
	}
	was, asked := r.seats[e.Rank], r.leaving.why[e.Rank]
	r.rise(e.Rank)
	switch {
	case e.How == Success:
		r.seats[e.Rank].is = finished
		r.ended++
		r.closing = true
	case e.How == Excused:
	case r.over || !r.cfg.Elastic:
		r.giveUp("", false)
	case r.cfg.Discovered:
		r.outlive(&was, e)
	default:
		r.losing = true
		r.survive(&was, e, asked)
		r.fill()
	}
}

// outlive goes on without a worker on a discovered host, and starts another where there is room.
func (r *Roster) outlive(was *seat, e Exit) {
	if r.ending && r.left > 0 {
		return // the others leave as well
	}
	if e.How == Failure {
		if r.cfg.Restarts > 0 && r.budget.Left() == 0 {
			r.giveUp("", false)
			return
		}
		r.budget.used++
		at := was.at
		if r.cfg.ByHost {
			at.Slot = -1
		}
		r.ban(at, fmt.Sprintf("rank %d: %s", e.Rank, e.Cause))
	}
	if r.left == 0 {
		r.giveUp("", false) // nobody is left who has the state
		return
	}
	if e.How == Failure {
		r.tell(&event.Shrunk{Rank: e.Rank, Host: was.at.Host, Cause: e.Cause, Left: r.left})
		r.drainGone()
	}
	r.fill()
	r.tooFew()
}

// survive goes on without, or with a new process for, a worker on one of the job's fixed hosts.
func (r *Roster) survive(was *seat, e Exit, asked string) {
	host := was.at.Host
	why := r.barred(host, -1)
	if why == "" {
		why = asked
	}
	switch {
	case e.How == Farewell && why != "":
		r.move([]int{e.Rank}, host, why, "")
	case e.How == Farewell && r.cfg.OnLoss == Replace:
		r.sit(e.Rank, was.at, seated)
		r.tell(&event.Restarted{Rank: e.Rank, Host: host, Cause: e.Cause, Left: r.budget.Left()})
		r.start(e.Rank, false)
	case e.How == Failure && r.takeHost(host, e):
		r.budget.used++
		r.move([]int{e.Rank}, host, e.Cause, "")
	case e.How == Farewell || r.budget.Left() == 0:
		if r.cfg.OnLoss == Continue && r.left >= r.least() {
			r.tell(&event.Shrunk{Rank: e.Rank, Host: host, Cause: e.Cause, Left: r.left})
			return
		}
		r.giveUp("", false)
	default:
		// A worker that was killed after it had taken part is no worker that cannot start.
		worked := e.Killed && r.epoch > was.epoch
		pause, same := r.budget.Spend(e.Rank, r.now-was.began, worked, e.Cause, e.Words)
		r.sit(e.Rank, was.at, resting)
		r.seats[e.Rank].due = r.now + pause
		r.tell(&event.Restarted{Rank: e.Rank, Host: host, Cause: e.Cause, Left: r.budget.Left(), In: pause, Same: same})
		if pause == 0 {
			r.rested(e.Rank)
		}
	}
}

// takeHost takes a fixed host away since a worker failed there: its other workers commit and leave for slots of other
// hosts, and so does the failed one's rank when takeHost is true. A host without which the job would have too few
// workers stays. As with a discovery, a limit of 0 restarts is none.
func (r *Roster) takeHost(host string, e Exit) bool {
	if !r.cfg.ByHost || r.barred(host, -1) != "" || len(r.hosts) < 2 {
		return false
	}
	others := r.ranksOn(host)
	replaced := r.cfg.Restarts == 0 || r.budget.Left() > 0
	spare, wanted := r.vacancies(host), len(others)
	if replaced {
		wanted++
	}
	stays := r.left - len(others)
	enough := stays > 0 && stays+min(spare, wanted) >= r.least()
	if !enough || r.cfg.OnLoss == Replace && (!replaced || spare < wanted) {
		return false
	}
	r.ban(Spot{host, -1}, fmt.Sprintf("rank %d: %s", e.Rank, e.Cause))
	r.ask(others, "a worker failed on "+host)
	return replaced
}

// hostLost deals with the loss of all workers of a host, which costs no restart.
func (r *Roster) hostLost(e HostLost) {
	ranks := r.ranksOn(e.Host)
	for _, rank := range ranks {
		r.rise(rank)
	}
	if r.over || !r.cfg.Elastic {
		r.giveUp("", false)
		return
	}
	if r.cfg.Discovered {
		if r.left == 0 {
			r.giveUp(noState, false)
			return
		}
		r.ban(Spot{e.Host, -1}, e.Cause)
		r.fill()
		r.tooFew()
		return
	}
	// A host that had given notice, or is given up already, is no news.
	if r.barred(e.Host, -1) == "" || r.cfg.CoolMin > 0 && r.noticed[e.Host] == "" {
		r.ban(Spot{e.Host, -1}, e.Cause)
	}
	if len(ranks) > 0 {
		r.losing = true
		r.move(ranks, e.Host, e.Cause, r.whyNot(ranks))
		r.fill()
	}
}

const noState = ": nobody is left who has the state"

// whyNot says after a host's loss why the job ends by it, and what to do.
func (r *Roster) whyNot(ranks []int) string {
	switch {
	case r.left == 0:
		return noState
	case r.cfg.OnLoss == Continue:
		return fmt.Sprintf(": %s left and --min-np is %d: name more hosts in -H, or lower --min-np", are(r.left, "worker"), max(r.cfg.Min, 1))
	}
	return fmt.Sprintf(": rank %s finds no other slot: name more hosts or slots in -H, or let the others go on with --on-loss continue", numbers(ranks, len(ranks)))
}

func numbers(ranks []int, limit int) string {
	var names []string
	for _, rank := range ranks {
		names = append(names, strconv.Itoa(rank))
	}
	if len(names) > limit {
		return list(names)
	}
	return strings.Join(names, ", ")
}

// move starts ranks that were on a host elsewhere. Those that find no slot wait where hosts are tried again; else,
// under continue, they are missed by nobody as long as enough are left. The job ends, for the reason given, when it
// cannot go on.
func (r *Roster) move(ranks []int, from, cause, end string) {
	to := r.find(ranks)
	waits := r.cfg.CoolMin > 0
	enough := r.left+len(to) >= r.least()
	if r.cfg.OnLoss == Replace {
		enough = len(to) == len(ranks)
	}
	if r.left == 0 || !enough && !waits {
		r.giveUp(end, false)
		return
	}
	left := r.left + len(to)
	for _, rank := range ranks {
		at, ok := to[rank]
		switch {
		case ok:
			r.settle(rank, at, from, cause)
			continue
		case waits:
			s := &r.seats[rank]
			s.is, s.at.Host, s.cause, s.due = homeless, from, cause, r.now
		}
		if r.cfg.OnLoss == Continue {
			r.tell(&event.Shrunk{Rank: rank, Host: from, Cause: cause, Left: left})
		} else {
			r.tell(&event.Parked{Rank: rank, Host: from, Cause: cause, Limit: r.cfg.Wait})
		}
	}
}

// find looks for slots that nobody has, hosts in their order.
func (r *Roster) find(ranks []int) map[int]Spot {
	to, taken := map[int]Spot{}, map[Spot]bool{}
	for _, rank := range ranks {
		for _, h := range r.hosts {
			if slot := r.free(h, taken); slot >= 0 {
				to[rank] = Spot{h.Name, slot}
				taken[to[rank]] = true
				break
			}
		}
	}
	return to
}

// settle starts a rank on another slot.
func (r *Roster) settle(rank int, at Spot, from, cause string) {
	r.tell(&event.Moved{Rank: rank, From: from, To: at.Host, Cause: cause})
	r.sit(rank, at, seated)
	r.start(rank, false)
}

// rested starts a rank whose pause is over: elsewhere, where there is a slot, if its host is to be used no more.
func (r *Roster) rested(rank int) {
	host := r.seats[rank].at.Host
	if why := r.barred(host, -1); why != "" {
		if at, ok := r.find([]int{rank})[rank]; ok {
			r.rise(rank)
			r.settle(rank, at, host, why)
			return
		}
	}
	r.start(rank, false)
}

// vacancies counts slots that nobody has on hosts other than but.
func (r *Roster) vacancies(but string) int {
	taken := map[Spot]bool{}
	for _, h := range r.hosts {
		for slot := r.free(h, taken); h.Name != but && slot >= 0; slot = r.free(h, taken) {
			taken[Spot{h.Name, slot}] = true
		}
	}
	return len(taken)
}

// awaiting lists the ranks that wait for a slot.
func (r *Roster) awaiting() []int {
	ranks := map[int]bool{}
	for rank := range r.seats {
		if r.seats[rank].is == homeless {
			ranks[rank] = true
		}
	}
	return slices.Sorted(maps.Keys(ranks))
}
