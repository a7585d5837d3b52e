package launch

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"hora/elastic"
	"hora/event"
	"hora/launch/protocol"
	"hora/launch/reach"
)

func (s *settings) elastic() bool {
	return s.Restarts > 0 || s.OnLoss != elastic.Stop || s.Discovery != nil
}

// supply returns the job's roster at its beginning. Who adopts the job draws the same pauses.
func (s *settings) supply() *elastic.Roster {
	spread := rand.New(rand.NewChaCha8(sha256.Sum256(append([]byte("pauses "), s.Secret[:]...))))
	cfg := elastic.Supply{
		Size: s.NP, Min: s.Min, Max: s.Max, Hosts: s.Hosts, Elastic: s.elastic(), OnLoss: s.OnLoss,
		Restarts: s.Restarts, ByHost: s.ByHost,
		CoolMin: s.CoolMin, CoolMax: s.CoolMax, Wait: s.Wait, Spread: spread.Float64,
	}
	if d := s.Discovery; d != nil {
		cfg.Discovered, cfg.Hosts, cfg.CoolMin, cfg.CoolMax = true, nil, d.CoolMin, d.CoolMax
		if d.Wait > 0 {
			cfg.Wait = d.Wait
		}
	}
	return elastic.NewRoster(cfg)
}

// step gives the roster a piece of news and carries out what it orders. It returns the order that ends the job, nil
// while there is none.
func (j *job) step(n elastic.News) *elastic.GiveUp { return j.stepAnd(n, func() {}) }

// stepAnd does what step does, for news that the coordinator is to hear too, by tell: after it knows who is asked to
// leave because of them, and before anything else follows. So the next epoch opens without those.
func (j *job) stepAnd(n elastic.News, tell func()) *elastic.GiveUp {
	var end *elastic.GiveUp
	var news []elastic.News
	if j.stopped || j.complete.Load() {
		news = append(news, elastic.Over{})
	}
	orders := j.roster.Step(j.ledger.now(j.began), append(news, j.opened(), n)...)
	j.ledger.tick(j, n, orders)
	rest := slices.DeleteFunc(slices.Clone(orders), isAsk)
	j.carryOut(slices.DeleteFunc(orders, func(o elastic.Order) bool { return !isAsk(o) }), &end)
	tell()
	orders = rest
	for lost := j.carryOut(orders, &end); len(lost) > 0; lost = lost[1:] {
		var its *elastic.GiveUp
		lost = append(lost, j.carryOut(j.roster.Step(j.ledger.now(j.began), lost[0]), &its)...)
		if its != nil && end == nil {
			its.Text = fmt.Sprintf("lost host %s: %s%s", lost[0].Host, lost[0].Cause, its.Text)
			end = its
		}
	}
	j.tellAbsent(j.roster, j.spec.OnLoss, len(j.alive))
	j.tellCome(j.roster)
	return end
}

func isAsk(o elastic.Order) bool {
	switch o.(type) {
	case elastic.Ask, elastic.Stay:
		return true
	}
	return false
}

// tellAbsent tells the coordinator without whom the first epoch opens, when that changes.
func (m *meeting) tellAbsent(r *elastic.Roster, onLoss elastic.Policy, ranks int) {
	if m.server == nil || onLoss != elastic.Continue || m.epoch.Load() > 0 {
		return
	}
	for rank := range ranks {
		if is := r.Absent(rank); is != m.absent[rank] {
			m.absent[rank] = is
			m.server.Absent(rank, is)
		}
	}
}

// comeLimit is how long members wait for newcomers that are on their way, and newcomers for each other.
const comeLimit = time.Minute

// tellComing tells the coordinator of a process that is being started beside the members of an epoch.
func (m *meeting) tellComing(o elastic.Start, process string, onLoss elastic.Policy) {
	if m.server != nil && onLoss == elastic.Continue && m.epoch.Load() > 0 {
		if before, is := m.coming[o.Rank]; is { // its host was lost before it was known to run
			m.server.Coming(o.Rank, before.process, false, false)
		}
		m.coming[o.Rank] = onItsWay{process, time.Now()}
		m.server.Coming(o.Rank, process, true, o.New)
	}
}

// tellCome takes back what it was told of processes that take part by now, or are waited for no longer.
func (m *meeting) tellCome(r *elastic.Roster) {
	for rank, is := range m.coming {
		if _, took := m.took.Load(rank); took || !r.Seated(rank) || time.Since(is.since) > comeLimit {
			delete(m.coming, rank)
			m.server.Coming(rank, is.process, false, false)
		}
	}
}

// heed takes news that end the job only by what the roster says of it.
func (j *job) heed(n elastic.News) {
	end := j.step(n)
	if end == nil || j.stopped {
		return
	}
	o := Outcome{Kind: LostHost, Rank: -1, Code: ExitHost, Last: end.Text}
	if end.Late {
		o.Code = ExitTimeout
	}
	j.fail(o)
}

// carryOut does what the roster orders. Hosts that cannot be reached are lost; what else was ordered for them is placed
// anew when the roster knows of that.
func (j *job) carryOut(orders []elastic.Order, end **elastic.GiveUp) (lost []elastic.HostLost) {
	for _, o := range orders {
		switch o := o.(type) {
		case elastic.Start:
			if slices.ContainsFunc(lost, func(e elastic.HostLost) bool { return e.Host == o.At.Host }) {
				continue
			}
			j.another(o.Rank)
			j.anew(o.Rank)
			j.tellComing(o, j.process(o.Rank), j.spec.OnLoss)
			if err := j.place(o); err != nil {
				lost = append(lost, elastic.HostLost{Host: o.At.Host, Cause: err.Error()})
			}
		case elastic.GiveUp:
			*end = &o
		case elastic.Begin:
			j.spec.NP, j.spec.Hosts, j.hosts = o.Size, o.Hosts, o.Hosts
		case elastic.Ask:
			j.server.Drain(o.Rank, j.process(o.Rank), o.Cause)
		case elastic.Stay:
			j.server.Drain(o.Rank, j.process(o.Rank), "")
		case elastic.Tell:
			j.event(o.Event)
		}
	}
	return lost
}

// opened returns the news of the present epoch. The size is stored before the epoch.
func (m *meeting) opened() elastic.News {
	epoch := m.epoch.Load()
	return elastic.Opened{Epoch: epoch, Size: int(m.size.Load())}
}

// alarm returns a channel that hears when the roster wants a Tick before the next ping.
func (j *job) alarm() <-chan time.Time {
	at, ok := j.roster.Wake()
	if !ok || j.stopped || j.complete.Load() {
		return nil
	}
	return time.After(at - j.ledger.now(j.began))
}

// place starts a rank's process, at once or when its host has answered.
func (j *job) place(o elastic.Start) error {
	l, err := j.hostLink(o.At.Host)
	if err != nil || l == nil {
		return err
	}
	for o.Rank >= len(j.seats) {
		j.seats, j.alive = append(j.seats, Seat{Host: -1}), append(j.alive, false)
	}
	if err := j.out.grow(len(j.seats)); err != nil {
		j.stopFor(Outcome{Kind: Trouble, Rank: -1, Code: ExitLogs, Last: err.Error()})
		return nil
	}
	s := Seat{
		Rank: o.Rank, LocalRank: o.At.Slot, LocalSize: o.Beds, CrossRank: l.index, CrossSize: len(j.links),
		Host: l.index, Slot: o.At.Slot,
	}
	for _, other := range j.links {
		if other != l && other.called == l.called && !other.ended && !other.lost {
			slots := j.hosts[other.index].Slots
			if s.LocalSize += slots; other.index < l.index {
				s.LocalRank += slots
			}
		}
	}
	if was := j.seats[o.Rank]; !o.New && was.Host == s.Host && was.Slot == s.Slot {
		s = was // where the last one was
	}
	j.seats[o.Rank] = s
	if l.planned {
		j.startOn(l, s, o.New)
	} else {
		l.waiting = append(l.waiting, awaited{s, o.New})
	}
	return nil
}

func (j *job) startOn(l *link, s Seat, more bool) {
	if more {
		j.event(&event.Grown{Rank: s.Rank, Host: l.called})
	}
	j.anew(s.Rank)
	l.sendJSON(protocol.CmdStart, j.worker(s, j.epoch.Load()+1))
}

// awaited is a worker whose host has not answered yet.
type awaited struct {
	seat Seat
	more bool // see elastic.Start
}

// hostLink returns the agent's link of a host, started when there is none. It is nil while the last one is being ended:
// the loss of that host is about to be known.
func (j *job) hostLink(name string) (*link, error) {
	for _, l := range j.links {
		if l.name == name && !l.ended && !l.done && !l.lost {
			if l.cause != "" {
				return nil, nil
			}
			return l, nil
		}
	}
	l := &link{index: len(j.links), name: name, called: j.reach.Called(name), born: time.Now()}
	if j.ledger != nil && j.ledger.lives.Load() {
		l.muted, l.host = true, &reach.Host{Attended: true}
	}
	if err := l.open(j.reach, nil); err != nil {
		if j.ledger != nil {
			j.ledger.alone(errUnopened)
		}
		return nil, err
	}
	if j.resuming != nil {
		j.guarded()
	}
	slots := 0
	for _, h := range j.roster.Hosts() {
		if h.Name == name {
			slots = h.Slots
		}
	}
	j.hosts = append(j.hosts[:l.index:l.index], Host{Name: name, Slots: slots})
	j.links = append(j.links, l)
	j.rts = append(j.rts, route{})
	l.reader.Add(1)
	go l.read(j.events, j.out, j.resuming)
	return l, nil
}

// outliveHost says whether the job goes on without a host whose agent is gone, or else what that means for it.
func (j *job) outliveHost(l *link, reason string) (bool, string) {
	if l.lost {
		return true, "" // that has been dealt with
	}
	done := j.complete.Load() // what was to be done there has been
	if !done && (j.stopped || !j.spec.elastic()) {
		return false, ""
	}
	l.lost = true
	l.waiting = nil
	if done {
		j.event(&event.Warning{Host: l.called, Text: fmt.Sprintf("%s: %s: the work is done, and its workers are not waited for", l.called, reason)})
	}
	for rank, s := range j.seats {
		if s.Host != l.index {
			continue
		}
		if j.alive[rank] {
			j.alive[rank] = false
			delete(j.held, rank)
			delete(j.frozen, rank)
			j.server.Exited(rank, "", l.called, reason)
			j.event(&event.Exited{Rank: rank, Host: l.called, Cause: reason})
		}
		delete(j.begun, rank)
		delete(j.condemn, rank)
		j.drained.Delete(rank)
	}
	end := j.step(elastic.HostLost{Host: l.name, Cause: reason})
	if done {
		j.endIdle()
	}
	if end == nil || done {
		return true, ""
	}
	return false, end.Text
}
