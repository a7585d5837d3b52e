package launch

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"hora/elastic"
	"hora/event"
)

func (s *settings) elastic() bool {
	return s.Restarts > 0 || s.OnLoss != elastic.Stop || s.Discovery != nil
}

// roster returns the job's roster at its beginning. Who adopts the job draws the same pauses.
func (s *settings) roster() *elastic.Roster {
	spread := rand.New(rand.NewChaCha8(sha256.Sum256(append([]byte("pauses "), s.Secret[:]...))))
	cfg := elastic.Supply{
		Size: s.NP, Min: s.MinNP, Max: s.MaxNP, Hosts: s.Hosts, Elastic: s.elastic(), OnLoss: s.OnLoss,
		Restarts: s.Restarts, ByHost: s.ByHost,
		CoolMin: s.BlacklistCooldown.Min, CoolMax: s.BlacklistCooldown.Max, Wait: s.ElasticTimeout,
		Spread: spread.Float64,
	}
	if d := s.Discovery; d != nil {
		cfg.Discovered, cfg.Hosts, cfg.CoolMin, cfg.CoolMax = true, nil, d.CoolMin, d.CoolMax
		if d.Wait > 0 {
			cfg.Wait = d.Wait
		}
	}
	return elastic.NewRoster(cfg)
}

// supply keeps a job in workers: it tells the roster what happens, and does what that orders.
type supply struct {
	spec      *settings
	crew      *crew
	links     *links
	meeting   *meeting
	record    *record
	holds     *holds
	admission *admission
	ending    *ending
	roster    *elastic.Roster // which worker belongs on which slot
}

// step gives the roster a piece of news and carries out what it orders. The order that ends the job is returned, nil
// while there is none.
func (s *supply) step(n elastic.News) *elastic.GiveUp { return s.stepAnd(n, func() {}) }

// stepAnd does what step does, for news that the coordinator is to hear too, by tell: after it knows who is asked to
// leave because of them, and before anything else follows. So the next epoch opens without those.
func (s *supply) stepAnd(n elastic.News, tell func()) *elastic.GiveUp {
	var end *elastic.GiveUp
	var news []elastic.News
	if s.over() {
		news = append(news, elastic.Over{})
	}
	orders := s.roster.Step(s.record.now(), append(news, s.meeting.opened(), n)...)
	s.record.ledger.tick(n, orders, s.record.now(), s.meeting)
	rest := slices.DeleteFunc(slices.Clone(orders), isAsk)
	s.carryOut(slices.DeleteFunc(orders, func(o elastic.Order) bool { return !isAsk(o) }), &end)
	tell()
	orders = rest
	for lost := s.carryOut(orders, &end); len(lost) > 0; lost = lost[1:] {
		var its *elastic.GiveUp
		lost = append(lost, s.carryOut(s.roster.Step(s.record.now(), lost[0]), &its)...)
		if its != nil && end == nil {
			its.Text = fmt.Sprintf("lost host %s: %s%s", lost[0].Host, lost[0].Cause, its.Text)
			end = its
		}
	}
	s.meeting.tellAbsent(s.roster)
	s.meeting.tellCome(s.roster)
	return end
}

// over reports whether nobody is started any more.
func (s *supply) over() bool { return s.ending.stopped || s.meeting.complete.Load() }

func isAsk(o elastic.Order) bool {
	switch o.(type) {
	case elastic.Ask, elastic.Stay:
		return true
	}
	return false
}

// heed takes news that end the job only by what the roster says of it.
func (s *supply) heed(n elastic.News) {
	end := s.step(n)
	if end == nil || s.ending.stopped {
		return
	}
	o := Outcome{Kind: LostHost, Rank: -1, Code: ExitHost, Last: end.Text}
	if end.Late {
		o.Code = ExitTimeout
	}
	s.ending.fail(o)
}

// carryOut does what the roster orders. Hosts that cannot be reached are lost; what else was ordered for them is placed
// anew when the roster knows of that.
func (s *supply) carryOut(orders []elastic.Order, end **elastic.GiveUp) (lost []elastic.HostLost) {
	for _, o := range orders {
		switch o := o.(type) {
		case elastic.Start:
			if slices.ContainsFunc(lost, func(e elastic.HostLost) bool { return e.Host == o.At.Host }) {
				continue
			}
			s.crew.another(o.Rank)
			s.meeting.anew(o.Rank)
			s.meeting.tellComing(o)
			if err := s.seat(o); err != nil {
				lost = append(lost, elastic.HostLost{Host: o.At.Host, Cause: err.Error()})
			}
		case elastic.GiveUp:
			*end = &o
		case elastic.Begin:
			s.spec.NP, s.spec.Hosts, s.crew.hosts = o.Size, o.Hosts, o.Hosts
		case elastic.Ask:
			s.meeting.server.Drain(o.Rank, s.crew.process(o.Rank), o.Cause)
		case elastic.Stay:
			s.meeting.server.Drain(o.Rank, s.crew.process(o.Rank), "")
		case elastic.Tell:
			s.record.event(o.Event)
		}
	}
	return lost
}

// alarm returns a channel that hears when the roster wants a Tick before the next ping.
func (s *supply) alarm() <-chan time.Time {
	at, ok := s.roster.Wake()
	if !ok || s.over() {
		return nil
	}
	return time.After(at - s.record.now())
}

// seat gives a rank its seat on a host, and starts its process at once or when that host has answered.
func (s *supply) seat(o elastic.Start) error {
	l, err := s.hostLink(o.At.Host)
	if err != nil || l == nil {
		return err
	}
	c := s.crew
	for o.Rank >= len(c.seats) {
		c.seats, c.alive = append(c.seats, Seat{Host: -1}), append(c.alive, false)
	}
	if err := s.links.out.grow(len(c.seats)); err != nil {
		s.ending.stopFor(Outcome{Kind: Trouble, Rank: -1, Code: ExitLogs, Last: err.Error()})
		return nil
	}
	seat := Seat{
		Rank: o.Rank, LocalRank: o.At.Slot, LocalSize: o.Beds, CrossRank: l.index, CrossSize: len(s.links.all),
		Host: l.index, Slot: o.At.Slot,
	}
	for rank, at := range c.seats { // of other agents of the same machine
		if rank != o.Rank && at.Host >= 0 && at.Host != l.index && s.roster.Seated(rank) &&
			s.links.all[at.Host].called == l.called {
			if seat.LocalSize++; at.Host < l.index {
				seat.LocalRank++
			}
		}
	}
	if was := c.seats[o.Rank]; !o.New && was.Host == seat.Host && was.Slot == seat.Slot {
		seat = was // where the last one was
	}
	c.seats[o.Rank] = seat
	if l.planned {
		s.admission.start(l, seat, o.New)
	} else {
		l.waiting = append(l.waiting, awaited{seat, o.New})
	}
	return nil
}

// hostLink returns the agent's link of a host, started when there is none; nil while the last one is being ended, since
// the loss of that host is about to be known.
func (s *supply) hostLink(name string) (*link, error) {
	if l := s.links.present(name); l != nil {
		if l.cause != "" {
			return nil, nil
		}
		return l, nil
	}
	l := &link{index: len(s.links.all), name: name, called: s.spec.Reach.Called(name), born: time.Now()}
	slots := 0
	for _, h := range s.roster.Hosts() {
		if h.Name == name {
			slots = h.Slots
		}
	}
	if err := s.links.add(l); err != nil {
		return nil, err
	}
	s.crew.hosts = append(s.crew.hosts[:l.index:l.index], Host{Name: name, Slots: slots})
	return l, nil
}

// hostLost ends the job, or goes on without the host.
func (s *supply) hostLost(l *link, reason string) {
	s.record.story.hostLost(l.called, reason)
	goesOn, then := s.outliveHost(l, reason)
	if goesOn {
		return
	}
	for _, seat := range s.crew.seats {
		if seat.Host == l.index && (s.crew.alive[seat.Rank] || !l.planned) {
			s.meeting.server.Exited(seat.Rank, "", l.called, reason)
		}
	}
	s.ending.fail(Outcome{
		Kind: LostHost, Rank: -1, Host: l.called, Code: ExitHost,
		Last: fmt.Sprintf("lost host %s: %s%s", l.called, reason, then),
	})
}

// outliveHost says whether the job goes on without a host whose agent is gone, or else what that means for it.
func (s *supply) outliveHost(l *link, reason string) (bool, string) {
	if l.lost {
		return true, "" // that has been dealt with
	}
	done := s.meeting.complete.Load() // what was to be done there has been
	if !done && (s.ending.stopped || !s.spec.elastic()) {
		return false, ""
	}
	l.lost = true
	l.waiting = nil
	if done {
		s.record.event(&event.Warning{Host: l.called, Text: fmt.Sprintf("%s: %s: the work is done, and its workers are not waited for", l.called, reason)})
	}
	s.bury(l, reason)
	end := s.step(elastic.HostLost{Host: l.name, Cause: reason})
	if done {
		s.ending.idle(s.roster)
	}
	if end == nil || done {
		return true, ""
	}
	return false, end.Text
}

// bury takes the workers of a lost host for ended.
func (s *supply) bury(l *link, reason string) {
	c := s.crew
	for rank, seat := range c.seats {
		if seat.Host != l.index {
			continue
		}
		if c.alive[rank] {
			c.alive[rank] = false
			s.holds.forget(rank)
			s.meeting.server.Exited(rank, "", l.called, reason)
			s.record.event(&event.Exited{Rank: rank, Host: l.called, Cause: reason})
		}
		delete(c.begun, rank)
		delete(c.condemn, rank)
		s.meeting.drained.Delete(rank)
	}
}
