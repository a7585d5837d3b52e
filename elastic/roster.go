package elastic

import (
	"fmt"
	"slices"
	"time"

	"hora/event"
)

// Supply is how a Roster gets and keeps its workers; it is fixed for a job's life.
type Supply struct {
	Size int // workers at first; with a discovery, how many slots are waited for
	// The fewest the job goes on with, 0 means 1. The most that run: with a discovery 0 means no limit; on fixed hosts,
	// under Continue, slots that nobody has are used up to it once a worker was lost, and 0 means that they are not.
	Min, Max   int
	Hosts      []Host // filled in order; with a discovery they come as Listings
	Discovered bool
	Elastic    bool // false: the first failure ends the job
	OnLoss     Policy
	Restarts   int  // failed workers that are started again; with a discovery, or ByHost, 0 is no limit
	ByHost     bool // a failed worker takes its whole host away and not its slot alone
	// A place that was taken away is tried again after a pause from CoolMin, which doubles, to CoolMax; 0 is never.
	CoolMin, CoolMax time.Duration
	Wait             time.Duration  // for slots, hosts, or the least number of workers
	Spread           func() float64 // of the pauses; see Blacklist
}

// Roster says which worker belongs on which slot of which host: at the start, after a failure or the loss of a host,
// and as hosts come and go. It is the other machine beside Machine: that one knows which workers take part in an
// epoch, this one sees to it that there are any. News go in, orders come out; times count from the job's beginning. It
// is not safe for concurrent use.
type Roster struct {
	cfg     Supply
	now     time.Duration
	out     []Order
	hosts   []Host
	seats   []seat // by rank
	at      map[Spot]int
	left    int // ranks that are present
	ended   int // ranks whose work is done
	black   Blacklist
	noticed map[string]string // hosts that are about to go, and why
	budget  Budget
	leaving leaving
	short   shortage
	gather  pace          // before the beginning
	begun   bool          // there are workers
	asked   bool          // the discovery has answered before
	failing bool          // its last answer was an error
	closing bool          // a worker has done its work: hosts are filled no more
	losing  bool          // a worker was lost: spare slots of fixed hosts are used
	had     map[Spot]bool // somebody has had this slot
	ending  bool          // see Listing.End
	over    bool          // see Over
	epoch   uint64        // the last that opened
	opened  time.Duration // when that was heard
	size    int           // of that epoch, without those that have ended since
}

// seat is a rank's place.
type seat struct {
	is    state
	at    Spot          // the last one
	up    bool          // its process runs
	began time.Duration // when that was ordered
	epoch uint64        // the last before that
	due   time.Duration // resting: when it is started again. homeless: since when
	cause string        // homeless: why
}

type state uint8

const (
	vacant   state = iota
	seated         // its process runs or is about to
	resting        // on its slot until it is started again
	homeless       // waiting for a slot
	finished
)

func (s *seat) present() bool { return s.is == seated || s.is == resting }

// NewRoster returns the roster of a job. Where its hosts are known, ranks fill them in order and are taken for started;
// else it waits for a Listing with enough slots.
func NewRoster(cfg Supply) *Roster {
	r := &Roster{
		cfg: cfg, at: map[Spot]int{}, had: map[Spot]bool{}, noticed: map[string]string{}, leaving: newLeaving(),
		black: Blacklist{Min: cfg.CoolMin, Max: cfg.CoolMax, Spread: cfg.Spread}, budget: Budget{Limit: cfg.Restarts},
	}
	if !cfg.Discovered {
		r.begin(cfg.Hosts, cfg.Size)
	}
	return r
}

func (r *Roster) begin(hosts []Host, size int) {
	r.begun, r.hosts = true, hosts
	for _, h := range hosts {
		for slot := 0; slot < h.Slots && len(r.seats) < size; slot++ {
			r.seats = append(r.seats, seat{began: r.now})
			r.sit(len(r.seats)-1, Spot{h.Name, slot}, seated)
		}
	}
}

// Hosts returns those of the job, or with a discovery those at hand. The caller must not change them.
func (r *Roster) Hosts() []Host { return r.hosts }

// Left counts the workers that run, or are about to.
func (r *Roster) Left() int { return r.left }

// Used counts the failures that the job went on after.
func (r *Roster) Used() int { return r.budget.Used() }

// Absent says whether nobody is, or is about to be, started as a rank: neither has its process finished.
func (r *Roster) Absent(rank int) bool {
	return rank < len(r.seats) && (r.seats[rank].is == vacant || r.seats[rank].is == homeless)
}

// Seated says whether a rank has its process, or is promised one at once.
func (r *Roster) Seated(rank int) bool { return rank < len(r.seats) && r.seats[rank].is == seated }

// Holds says whether a rank has its process on a host, or is promised one there.
func (r *Roster) Holds(host string) bool { return !r.over && len(r.ranksOn(host)) > 0 }

// Asked says whether a rank has been, or is to be, asked to leave.
func (r *Roster) Asked(rank int) bool { return r.leaving.why[rank] != "" }

// Wake returns the time at which the roster next wants a Tick, if it cannot wait for the next of those that come
// anyway.
func (r *Roster) Wake() (at time.Duration, ok bool) {
	if r.over {
		return 0, false
	}
	if !r.begun {
		return r.cfg.Wait, true
	}
	for i := range r.seats {
		if s := &r.seats[i]; s.is == resting && (!ok || s.due < at) {
			at, ok = s.due, true
		}
	}
	return at, ok
}

// Step takes news in, oldest first, and returns what follows from them, in order. Nobody is asked to leave before all
// of them are known. After a GiveUp nothing follows, but for another GiveUp with each further loss.
func (r *Roster) Step(now time.Duration, news ...News) []Order {
	r.now = now
	for _, n := range news {
		r.take(n)
	}
	r.askOn()
	out := r.out
	r.out = nil
	return out
}

func (r *Roster) take(n News) {
	switch n := n.(type) {
	case Listing:
		r.listing(n)
	case Unlisted:
		r.unlisted(n)
	case Up:
		if n.Rank < len(r.seats) && r.seats[n.Rank].is == seated {
			r.seats[n.Rank].up = true
		}
	case Exit:
		r.exit(n)
	case HostLost:
		r.hostLost(n)
	case Notice:
		r.notice(n)
	case Opened:
		if n.Epoch != r.epoch {
			r.epoch, r.size, r.opened = n.Epoch, n.Size, r.now
		}
	case Over:
		r.over = true
	case Tick:
		r.tick()
	}
}

func (r *Roster) say(o Order) { r.out = append(r.out, o) }

func (r *Roster) tell(e event.Event) { r.say(Tell{e}) }

// found tells of other hosts than before.
func (r *Roster) found() {
	hosts := make([]event.Host, len(r.hosts))
	for i, h := range r.hosts {
		hosts[i] = event.Host{Name: h.Name, Slots: h.Slots}
	}
	r.tell(&event.Hosts{Hosts: hosts})
}

// giveUp ends the job. That a place is used no more says nothing then: the job ends by the same cause.
func (r *Roster) giveUp(text string, late bool) {
	r.over = true
	r.out = slices.DeleteFunc(r.out, func(o Order) bool {
		tell, _ := o.(Tell)
		_, ban := tell.Event.(*event.Banned)
		return ban
	})
	r.say(GiveUp{text, late})
}

func (r *Roster) tick() {
	if r.over {
		return
	}
	if !r.begun {
		r.await()
		return
	}
	for rank := range r.seats {
		if s := &r.seats[rank]; s.is == resting && s.due <= r.now {
			r.rested(rank)
		}
	}
	r.house()
	r.fill()
	r.tooFew()
}

// least returns how many workers the job needs, not counting those that have finished.
func (r *Roster) least() int { return max(r.cfg.Min-r.ended, 1) }

// sit gives a rank a slot.
func (r *Roster) sit(rank int, at Spot, is state) {
	s := &r.seats[rank]
	s.is, s.at, s.up = is, at, false
	r.at[at], r.had[at] = rank, true
	r.left++
}

// rise takes it away.
func (r *Roster) rise(rank int) {
	s := &r.seats[rank]
	if s.present() {
		delete(r.at, s.at)
		r.left--
	}
	if s.up && s.epoch < r.epoch {
		r.size-- // who asks the others to leave counts on it no more
	}
	s.is, s.up = vacant, false
	r.leaving.forget(rank)
}

// start orders the process of a rank that has a slot.
func (r *Roster) start(rank int, more bool) {
	s := &r.seats[rank]
	s.is, s.began, s.epoch = seated, r.now, r.epoch
	r.say(Start{Rank: rank, At: s.at, Beds: max(len(r.ranksOn(s.at.Host)), s.at.Slot+1), New: more})
}

// ranksOn lists those that are present on a host.
func (r *Roster) ranksOn(host string) (ranks []int) {
	for rank := range r.seats {
		if s := &r.seats[rank]; s.present() && s.at.Host == host {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// barred returns why nothing may start on a slot, or with -1 on a host, "" when something may.
func (r *Roster) barred(host string, slot int) string {
	if why := r.noticed[host]; why != "" {
		return why
	}
	return r.black.Why(host, slot, r.now)
}

// free returns the lowest slot of a host that nobody has and something may start on, -1 when there is none.
func (r *Roster) free(h Host, taken map[Spot]bool) int {
	for slot := range h.Slots {
		at := Spot{h.Name, slot}
		if _, busy := r.at[at]; !busy && !taken[at] && r.barred(h.Name, slot) == "" {
			return slot
		}
	}
	return -1
}

// ban takes a place away because of a failure there.
func (r *Roster) ban(at Spot, why string) {
	r.tell(&event.Banned{Host: at.Host, Slot: at.Slot, Cause: why, For: r.black.Ban(at, why, r.now)})
}

// slots counts those of hosts.
func slots(hosts []Host) (n int) {
	for _, h := range hosts {
		n += h.Slots
	}
	return n
}

// pace is one wait: who waits for long is told for what, after firstWord, and again after lastWord at most.
type pace struct {
	waits              bool
	began, told, pause time.Duration
}

const (
	firstWord = 2 * time.Second
	lastWord  = 30 * time.Second
)

// due says whether it is time for a word. The first call begins the wait.
func (p *pace) due(now time.Duration) bool {
	if !p.waits {
		*p = pace{true, now, now, firstWord}
	}
	if now-p.told < p.pause {
		return false
	}
	p.told, p.pause = now, min(2*p.pause, lastWord)
	return true
}

// await waits for enough slots to begin with.
func (r *Roster) await() {
	n := slots(r.hosts)
	switch {
	case r.now >= r.cfg.Wait:
		r.giveUp(fmt.Sprintf("wait for hosts: %d slots were found in %v, and -np is %d: add hosts, or lower -np", n, r.cfg.Wait, r.cfg.Size), true)
	case r.gather.due(r.now):
		r.tell(&event.Delay{Text: fmt.Sprintf("waiting for hosts: there are %d of %d slots", n, r.cfg.Size), Over: r.now, Limit: r.cfg.Wait})
	}
}

// listing takes an answer of the discovery in: workers on what is gone are asked to leave, and what is new is filled.
func (r *Roster) listing(e Listing) {
	for i, h := range e.Hosts {
		if slices.ContainsFunc(e.Hosts[:i], func(o Host) bool { return o.Name == h.Name }) {
			r.unlisted(Unlisted{fmt.Sprintf("the discovery lists host %s twice: let it name each host once, with all its slots", h.Name)})
			return
		}
	}
	r.asked, r.failing = true, false
	if r.over || r.ending {
		return
	}
	if e.End {
		r.end()
		return
	}
	before := r.hosts
	r.hosts = e.Hosts
	if !r.begun {
		if n := slots(r.hosts); n >= r.cfg.Size {
			if r.cfg.Max > 0 {
				n = min(n, r.cfg.Max)
			}
			r.begin(r.hosts, n)
			r.say(Begin{n, r.hosts})
			return
		}
		r.await()
		return
	}
	if !slices.Equal(before, r.hosts) {
		r.found()
	}
	for name := range r.noticed {
		if !slices.ContainsFunc(r.hosts, func(h Host) bool { return h.Name == name }) {
			delete(r.noticed, name) // what comes back under its name is another
		}
	}
	r.drainGone()
	r.fill()
	r.tooFew()
}

// unlisted takes a failure in. The first answer of all must be a good one.
func (r *Roster) unlisted(e Unlisted) {
	first := !r.asked
	r.asked = true
	switch {
	case r.over:
	case first:
		r.giveUp(e.Cause, false)
	case !r.begun:
		r.await()
	default:
		if !r.failing {
			r.tell(&event.Warning{Text: e.Cause + "; going on with the hosts known so far"})
		}
		r.failing = true
		r.fill()
		r.tooFew()
	}
}

// fill starts workers on free slots, as the lowest ranks that nobody has: on discovered hosts always, on fixed ones
// where the job has lost some and may have that many, but not where somebody has failed, who may do so for ever, unless
// the place is tried again. Ranks that wait for a slot come first.
func (r *Roster) fill() {
	spare := r.losing && r.cfg.OnLoss == Continue && r.cfg.Max > 0
	if r.over || r.closing || r.ending || !r.cfg.Discovered && !spare {
		return
	}
	wait := len(r.awaiting())
	for _, h := range r.hosts {
		for slot := range h.Slots {
			if r.cfg.Max > 0 && r.left+wait >= r.cfg.Max {
				return
			}
			at := Spot{h.Name, slot}
			if _, busy := r.at[at]; busy || r.barred(h.Name, slot) != "" {
				continue
			}
			if !r.cfg.Discovered && r.had[at] && !r.black.Knows(h.Name, slot) {
				continue
			}
			rank := slices.IndexFunc(r.seats, func(s seat) bool { return s.is == vacant })
			if rank < 0 {
				rank = len(r.seats)
				r.seats = append(r.seats, seat{})
			}
			r.sit(rank, at, seated)
			r.start(rank, true)
		}
	}
}
