package elastic

import (
	"flag"
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"hora/event"
)

var rosterSeed = flag.Int64("roster-seed", -1, "the one history of a roster to play; -1 plays many")

// TestRosterHistories steps rosters through random news and checks what must always hold.
func TestRosterHistories(t *testing.T) {
	first, last := int64(0), int64(2000)
	if *rosterSeed >= 0 {
		first, last = *rosterSeed, *rosterSeed+1
	}
	for seed := first; seed < last; seed++ {
		if err := rosterHistory(seed); err != nil {
			t.Fatalf("%v\nplay it again with: go test ./elastic -run TestRosterHistories -roster-seed %d", err, seed)
		}
	}
}

// stage is what a history knows by itself of the job that its roster speaks of.
type stage struct {
	rnd       *rand.Rand
	cfg       Supply
	r         *Roster
	now       time.Duration
	names     []Host
	runs      map[int]Spot // by rank: where its process is
	up        map[int]bool
	asked     map[int]bool
	rests     map[int]Spot // by rank: where it is promised one
	last      map[int]Spot // where it was
	bans      map[Spot]time.Duration
	noticed   map[string]bool
	listed    []Host
	finished  int
	epoch     uint64
	gaveUp    bool
	over      bool
	ending    bool
	vain      int      // how many in a row
	unreached []string // hosts that turned out to be gone when something was to start on them
}

const forGood = time.Duration(1<<62 - 1)

func rosterHistory(seed int64) error {
	rnd := rand.New(rand.NewSource(seed))
	s := &stage{
		rnd: rnd, runs: map[int]Spot{}, up: map[int]bool{}, asked: map[int]bool{}, rests: map[int]Spot{},
		last: map[int]Spot{}, bans: map[Spot]time.Duration{}, noticed: map[string]bool{},
	}
	c := &s.cfg
	*c = Supply{
		Elastic: true, OnLoss: Replace + Policy(rnd.Intn(2)), ByHost: rnd.Intn(2) == 0, Restarts: rnd.Intn(6),
		Wait: 30 * time.Second, Spread: rnd.Float64,
	}
	if rnd.Intn(2) == 0 {
		c.CoolMin, c.CoolMax = time.Duration(1+rnd.Intn(5))*time.Second, 8*time.Second
	}
	for _, name := range []string{"a", "b", "c", "d"}[:1+rnd.Intn(4)] {
		s.names = append(s.names, Host{name, 1 + rnd.Intn(3)})
	}
	c.Size = 1 + rnd.Intn(slots(s.names))
	c.Min = rnd.Intn(c.Size + 1)
	if c.Discovered = rnd.Intn(2) == 0; c.Discovered {
		c.OnLoss, c.Max = Continue, c.Size+rnd.Intn(3)
	} else {
		c.Hosts, s.listed = s.names, s.names
	}
	s.r = NewRoster(*c)
	if !c.Discovered {
		s.fill(c.Hosts, c.Size)
	}
	for range 150 {
		n := s.draw()
		if n == nil {
			continue
		}
		s.vain = 0
		if err := s.step(n); err != nil {
			return fmt.Errorf("at %v after %T%+v: %w", s.now, n, n, err)
		}
	}
	return nil
}

func (s *stage) fill(hosts []Host, size int) {
	for _, h := range hosts {
		for slot := 0; slot < h.Slots && len(s.runs) < size; slot++ {
			s.runs[len(s.runs)] = Spot{h.Name, slot}
		}
	}
}

// draw makes up a piece of news that can be true.
func (s *stage) draw() News {
	s.now += time.Duration(s.rnd.Intn(1500)) * time.Millisecond
	if wake, ok := s.r.Wake(); ok && wake < s.now {
		s.now = wake // a launcher does not come late
		return Tick{}
	}
	ranks := make([]int, 0, len(s.runs))
	for rank := range s.runs {
		ranks = append(ranks, rank)
	}
	slices.Sort(ranks)
	some := -1
	if len(ranks) > 0 {
		some = ranks[s.rnd.Intn(len(ranks))]
	}
	host := s.names[s.rnd.Intn(len(s.names))].Name
	switch pick := s.rnd.Intn(20); {
	case s.rnd.Intn(300) == 0:
		return Over{}
	case pick < 5:
		return Tick{}
	case pick < 7 && s.cfg.Discovered:
		if s.rnd.Intn(6) == 0 {
			return Unlisted{"it is broken"}
		}
		if s.rnd.Intn(20) == 0 {
			return Listing{End: true}
		}
		l := Listing{}
		for _, h := range s.names {
			if n := s.rnd.Intn(h.Slots + 2); n > 0 {
				l.Hosts = append(l.Hosts, Host{h.Name, n})
			}
		}
		return l
	case some < 0:
		return Tick{}
	case pick < 12:
		return Up{some}
	case pick < 14:
		s.epoch++
		return Opened{s.epoch, 1 + s.rnd.Intn(len(ranks))}
	case pick == 14:
		return HostLost{host, "silent"}
	case pick == 15:
		return Notice{host, "spot"}
	case pick == 16 && s.rnd.Intn(8) == 0:
		return Exit{Rank: some, How: Success}
	case pick < 18:
		return Exit{Rank: some, How: Farewell, Cause: "SIGTERM"}
	}
	return Exit{Rank: some, Cause: "exit code 3", Words: s.rnd.Intn(2) == 0, Killed: s.rnd.Intn(2) == 0}
}

// step takes the news, checks what is ordered, and carries that out.
func (s *stage) step(n News) error {
	used := s.r.Used()
	switch n := n.(type) {
	case Up:
		s.up[n.Rank] = true
	case Exit:
		if !s.asked[n.Rank] && s.r.Asked(n.Rank) && s.up[n.Rank] && n.How == Farewell {
			return s.quit(n) // the keeper of the state does not leave by itself here
		}
		s.gone(n.Rank)
		if n.How == Success {
			s.finished++
		}
	case HostLost:
		s.lose(n.Host)
	case Notice:
		s.noticed[n.Host] = true
	case Listing:
		s.ending = s.ending || n.End
		if s.ending {
			break
		}
		s.listed = n.Hosts
		for name := range s.noticed {
			if !slices.ContainsFunc(n.Hosts, func(h Host) bool { return h.Name == name }) && s.begun() {
				delete(s.noticed, name)
			}
		}
	case Over:
		s.over = true
	}
	orders := s.r.Step(s.now, n)
	if spent := s.r.Used() - used; spent != 0 {
		e, ok := n.(Exit)
		if !ok || e.How != Failure || spent != 1 {
			return fmt.Errorf("the restart budget went down by %d", spent)
		}
	}
	if c := &s.cfg; c.Restarts > 0 && s.r.Used() > c.Restarts {
		return fmt.Errorf("%d restarts of %d are used", s.r.Used(), c.Restarts)
	}
	if len(orders) > 40 {
		return fmt.Errorf("%d orders", len(orders))
	}
	for _, o := range orders {
		if err := s.carryOut(o); err != nil {
			return fmt.Errorf("%T%+v: %w", o, o, err)
		}
	}
	if err := s.shunned(n); err != nil {
		return err
	}
	if err := s.settled(); err != nil || len(s.unreached) == 0 {
		return err
	}
	if s.vain++; s.vain > 20 {
		return fmt.Errorf("%d hosts in a row were not reached", s.vain)
	}
	host := s.unreached[0]
	s.unreached = s.unreached[1:]
	if err := s.step(HostLost{host, "no route"}); err != nil {
		return fmt.Errorf("then %s is not reached: %w", host, err)
	}
	return nil
}

// shunned checks that a place that failed is not used for a while.
func (s *stage) shunned(n News) error {
	var at Spot
	switch n := n.(type) {
	case HostLost:
		at = Spot{n.Host, -1}
	case Exit:
		if n.How != Failure || !s.cfg.Discovered {
			return nil
		}
		if at = s.last[n.Rank]; s.cfg.ByHost {
			at.Slot = -1
		}
	default:
		return nil
	}
	if s.gaveUp || s.over || s.ending || !s.begun() || s.noticed[at.Host] || s.now < s.bans[at] {
		return nil
	}
	return fmt.Errorf("%v may be used again at once", at)
}

// quit is a farewell that is none after all: the same process fails.
func (s *stage) quit(e Exit) error {
	return s.step(Exit{Rank: e.Rank, Cause: "exit code 4"})
}

func (s *stage) begun() bool {
	return !s.cfg.Discovered || len(s.runs)+len(s.rests) > 0 || s.finished > 0
}

func (s *stage) gone(rank int) {
	if at, runs := s.runs[rank]; runs {
		s.last[rank] = at
	}
	delete(s.runs, rank)
	delete(s.rests, rank)
	delete(s.up, rank)
	delete(s.asked, rank)
}

func (s *stage) lose(host string) {
	for rank, at := range s.runs {
		if at.Host == host {
			s.gone(rank)
		}
	}
	for rank, at := range s.rests {
		if at.Host == host {
			delete(s.rests, rank)
		}
	}
}

func (s *stage) carryOut(o Order) error {
	switch o := o.(type) {
	case Begin:
		if o.Size > max(s.cfg.Max, s.cfg.Size) {
			return fmt.Errorf("more than %d", s.cfg.Max)
		}
		s.fill(o.Hosts, o.Size)
	case Start:
		return s.start(o)
	case Ask:
		if _, runs := s.runs[o.Rank]; !runs || !s.up[o.Rank] || s.asked[o.Rank] {
			return fmt.Errorf("it runs: %v, is up: %v, has been asked: %v", runs, s.up[o.Rank], s.asked[o.Rank])
		}
		s.asked[o.Rank] = true
	case Stay:
		if !s.up[o.Rank] || !s.asked[o.Rank] {
			return fmt.Errorf("it is up: %v, has been asked: %v", s.up[o.Rank], s.asked[o.Rank])
		}
		delete(s.asked, o.Rank)
	case Tell:
		return s.hear(o.Event)
	case GiveUp:
		s.gaveUp = true
	}
	return nil
}

// hear checks what is told.
func (s *stage) hear(e event.Event) error {
	switch e := e.(type) {
	case *event.Banned:
		at := Spot{e.Host, e.Slot}
		s.bans[at] = s.now + e.For
		if e.For == 0 {
			s.bans[at] = forGood
		}
		if (e.For == 0) != (s.cfg.CoolMin == 0) || e.For > max(s.cfg.CoolMin, s.cfg.CoolMax) {
			return fmt.Errorf("for cool-downs from %v to %v", s.cfg.CoolMin, s.cfg.CoolMax)
		}
	case *event.Restarted:
		if e.In > lastPause {
			return fmt.Errorf("a pause of %v", e.In)
		}
	case *event.Shrunk:
		if e.Left > s.r.Left() { // room may have been filled since
			return fmt.Errorf("%d are left", s.r.Left())
		}
	}
	return nil
}

// start checks that a slot is free, there, and not to be shunned; now and then its host cannot be reached.
func (s *stage) start(o Start) error {
	if s.over || s.gaveUp || s.ending {
		return fmt.Errorf("the job is over")
	}
	for rank, at := range s.runs {
		if at == o.At || rank == o.Rank {
			return fmt.Errorf("rank %d runs on %v", rank, at)
		}
	}
	i := slices.IndexFunc(s.listed, func(h Host) bool { return h.Name == o.At.Host })
	if i < 0 || o.At.Slot >= s.listed[i].Slots {
		return fmt.Errorf("there is no such slot in %v", s.listed)
	}
	for _, at := range [2]Spot{{o.At.Host, -1}, o.At} {
		if until, banned := s.bans[at]; banned && s.now < until && s.moved(o) {
			return fmt.Errorf("%v is banned until %v", at, until)
		}
	}
	if s.noticed[o.At.Host] && s.moved(o) {
		return fmt.Errorf("%s is about to go", o.At.Host)
	}
	delete(s.rests, o.Rank)
	s.runs[o.Rank] = o.At
	if s.cfg.Discovered && len(s.runs) > s.cfg.Max {
		return fmt.Errorf("%d run, and the most is %d", len(s.runs), s.cfg.Max)
	}
	if s.rnd.Intn(12) == 0 && !slices.Contains(s.unreached, o.At.Host) {
		s.unreached = append(s.unreached, o.At.Host)
	}
	return nil
}

// moved says whether a start is on another slot than the rank had before: that one may be used again although its host
// is about to go, where there is no other.
func (s *stage) moved(o Start) bool {
	if at, was := s.last[o.Rank]; !was || at != o.At || o.New {
		return true
	}
	for _, h := range s.listed {
		for slot := range h.Slots {
			if s.free(Spot{h.Name, slot}) {
				return true // there is another
			}
		}
	}
	return false
}

// free says whether something may start on a slot.
func (s *stage) free(at Spot) bool {
	for _, o := range s.runs {
		if o == at {
			return false
		}
	}
	for _, o := range s.rests {
		if o == at {
			return false
		}
	}
	return !s.noticed[at.Host] && s.now >= s.bans[at] && s.now >= s.bans[Spot{at.Host, -1}]
}

// settled checks what holds after every step.
func (s *stage) settled() error {
	s.rests = map[int]Spot{}
	present, parked := 0, 0
	for rank := range s.r.seats {
		seat := &s.r.seats[rank]
		at, runs := s.runs[rank]
		switch {
		case seat.is == seated && (!runs || at != seat.at):
			return fmt.Errorf("rank %d is on %v, and its process on %v (%v)", rank, seat.at, at, runs)
		case seat.is != seated && runs && !s.gaveUp:
			return fmt.Errorf("rank %d runs on %v and is in state %d", rank, at, seat.is)
		case seat.is == resting:
			s.rests[rank] = seat.at
		}
		if seat.present() {
			present++
		}
		if seat.is == homeless {
			parked++
		}
	}
	if present != s.r.Left() || present != len(s.r.at) {
		return fmt.Errorf("%d ranks are present, %d counted, on %d slots", present, s.r.Left(), len(s.r.at))
	}
	if s.gaveUp || s.over || !s.r.begun {
		return nil
	}
	leaving, asked := 0, 0
	for rank := range s.up {
		if s.ending && !s.asked[rank] {
			return fmt.Errorf("the job is to end, and rank %d has not been asked to leave", rank)
		}
		if s.r.Asked(rank) {
			leaving++
		}
		if s.asked[rank] {
			asked++
		}
	}
	if !s.ending && asked > 0 && asked >= leaving && asked >= s.r.size {
		return fmt.Errorf("all %d that have the state are asked to leave", s.r.size)
	}
	if present == 0 && s.finished == 0 {
		return fmt.Errorf("nobody is left, and the job is not given up")
	}
	if s.cfg.OnLoss == Replace && present+parked+s.finished != s.cfg.Size {
		return fmt.Errorf("%d ranks are present, %d wait and %d have finished, of %d", present, parked, s.finished, s.cfg.Size)
	}
	return nil
}
