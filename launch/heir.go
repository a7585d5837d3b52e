package launch

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"hora/elastic"
	"hora/event"
	"hora/internal/wire"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// heir takes a job over that another launcher has begun: it lives through what that one has dealt with, reaches the
// agents again, and tells them what they were not told any more.
type heir struct {
	job  *job
	head *head
	dir  string
	lost map[*link]bool // whose agents did not answer
}

// run returns when nothing of the job is left.
func (h *heir) run(ctx context.Context) (Outcome, error) {
	j := h.job
	defer close(j.mail.over)
	last, can := j.spec.Reach.(reach.Lasting)
	if !can {
		return Outcome{}, fault(ExitBug, "--adopt %s: its hosts cannot be reached again", h.dir)
	}
	h.begin()
	if err := j.crew.deal(); err != nil {
		return Outcome{}, err
	}
	if err := j.crew.locate(ctx); err != nil {
		return Outcome{}, err
	}
	last.Last(reach.Last{Dir: h.dir, Secret: j.spec.Secret, Wait: j.spec.Adopt, Resume: true})
	var err error
	if j.links.out, err = newOutput(j.spec, len(j.crew.seats)); err != nil {
		return Outcome{}, err
	}
	defer j.links.out.close()
	j.links.resuming = make(chan struct{})
	release := sync.OnceFunc(func() { close(j.links.resuming) })
	defer j.links.close()
	defer release()
	if err := j.links.open(j.crew.peopled(), j.crew.input); err != nil {
		return Outcome{}, err
	}
	if err := h.ways(ctx); err != nil {
		return Outcome{}, err
	}
	h.relive()
	if err := h.regreet(ctx); err != nil {
		return Outcome{}, err
	}
	// While nobody listens at the coordinator's port nothing keeps what the dead launcher has dug from ending.
	if err := h.dig(ctx); err != nil {
		return Outcome{}, err
	}
	// The agents of this launcher's own are not there yet.
	last.Last(reach.Last{Dir: h.dir, Secret: j.spec.Secret, Wait: j.spec.Adopt})
	j.meeting.resumes()
	if err := j.meeting.serve(ctx, j.mayCome()); err != nil {
		return Outcome{}, err
	}
	defer j.meeting.server.Close()
	if err := h.goOn(ctx); err != nil {
		return Outcome{}, err
	}
	release()
	defer j.supply.follow(ctx, j.mail)()
	return j.conclude(j.own(ctx)), nil
}

// begin gives the job the roster of its beginning, with a discovery that of the answer that it began by.
func (h *heir) begin() {
	j, s := h.job, h.job.spec
	if s.Discovery == nil {
		j.supply.roster = s.roster()
		return
	}
	s.sizes()
	j.supply.roster = s.roster()
	for _, o := range j.supply.roster.Step(h.head.Listed, elastic.Listing{Hosts: h.head.Hosts}) {
		if o, is := o.(elastic.Begin); is {
			s.NP, s.Hosts, j.crew.hosts = o.Size, o.Hosts, o.Hosts
		}
	}
	j.record.ledger.listed = h.head.Hosts
}

// ways takes over by which addresses the first hosts reach the job, and finds those again that came later.
func (h *heir) ways(ctx context.Context) error {
	j := h.job
	for _, r := range h.head.Routes {
		j.admission.routes = append(j.admission.routes, r.route())
	}
	if routes, hosts := len(j.admission.routes), len(j.links.all); routes != hosts {
		return fault(ExitUsage, "--adopt %s: its file launcher is damaged (%d hosts, and %d ways to them): start the job again",
			h.dir, hosts, routes)
	}
	for _, e := range j.record.ledger.past {
		var names []string
		for _, host := range e.Hosts {
			names = append(names, host.Name)
		}
		j.spec.Reach.Look(ctx, names)
	}
	return nil
}

// relive lives through what the ledger holds: the roster, and the orders to agents and coordinator, become what they
// were.
func (h *heir) relive() {
	j := h.job
	l := j.record.ledger
	past := &pastOrders{}
	server := &kept{past: past}
	j.meeting.server = server
	for _, k := range j.links.all {
		k.muted, k.planned = true, true
		k.host = &reach.Host{}
	}
	for rank := range j.crew.seats {
		j.crew.begun[rank] = j.record.began
	}
	l.lives.Store(true)
	for _, e := range l.past {
		if e.Kind == entryOrder {
			j.meeting.recall(past, *e.Order)
			continue
		}
		past.entry()
		l.at = e.At
		h.recall(&e)
	}
	l.past = nil
	for its := range l.seen {
		if its.Link < len(j.links.all) {
			of := j.links.all[its.Link]
			of.known = max(of.known, its.N)
		}
	}
	l.lives.Store(false)
	server.resume(l)
}

// recall lives through an entry.
func (h *heir) recall(e *entry) {
	j, l := h.job, h.job.record.ledger
	if e.Kind == entrySaid || e.Kind == entryTick || e.Kind == entryListed {
		j.meeting.was(e.met)
	}
	if rank, is := exitOf(e.Say, e.Body); is {
		l.exits[rank]++
		if j.meeting.drained.Delete(rank); e.Drained != nil {
			j.meeting.drained.Store(rank, *e.Drained)
		}
		if j.meeting.took.Delete(rank); e.Took {
			j.meeting.took.Store(rank, true)
		}
	}
	var of *link
	if e.Link < len(j.links.all) {
		of = j.links.all[e.Link]
	}
	switch {
	case e.Kind == entryTick:
		j.supply.heed(elastic.Tick{})
	case e.Kind == entryListed:
		l.listed, l.failing = e.Hosts, e.Text != ""
		j.supply.heed(e.news())
	case e.Kind == entryCancel:
		j.ending.signal(syscall.Signal(e.Code))
	case of == nil:
	case e.Kind == entrySaid:
		j.hear(said{l: of, kind: e.Say, body: e.Body})
	case e.Kind == entryLost:
		of.ended = true
		j.supply.hostLost(of, e.Text)
	case e.Kind == entryRoute:
		j.admission.admit(of, e.Route.route())
	}
}

// regreet waits for the agents that have not ended.
func (h *heir) regreet(ctx context.Context) error {
	j := h.job
	waiting := map[*link]bool{}
	for _, l := range j.links.all {
		if !l.ended { // nobody waits for one that was lost before
			waiting[l] = true
		}
	}
	limit := time.NewTimer(j.spec.StartTimeout)
	defer limit.Stop()
	ping := time.NewTicker(time.Second)
	defer ping.Stop()
	h.lost = map[*link]bool{}
	var lost []linkEnd
	for len(waiting) > 0 {
		select {
		case e := <-j.mail.events:
			switch e := e.(type) {
			case greeted:
				if e.l.ended {
					e.l.way.Kill()
					continue
				}
				e.l.host, e.l.heard = e.host, time.Now()
				delete(waiting, e.l)
				h.ping(e.l)
			case linkEnd:
				if e.l.ended {
					continue
				}
				delete(waiting, e.l)
				lost = append(lost, e)
				h.lost[e.l] = true
			}
		case <-ping.C:
			h.ping(h.job.links.all...)
		case <-limit.C:
			return fault(ExitTimeout, "--adopt %s: the job's agents have not answered in %v: look whether they are stopped, or raise --start-timeout", h.dir, j.spec.StartTimeout)
		case sig := <-j.spec.Signals:
			if err := j.spec.early(sig, "while the job's agents were being reached"); err != nil {
				return err
			}
		case <-ctx.Done():
			return fault(1, "stopped while the job's agents were being reached")
		}
	}
	left := slices.ContainsFunc(j.links.all, func(l *link) bool { return !l.ended && !h.lost[l] })
	done := !slices.ContainsFunc(j.links.all, func(l *link) bool { return !l.ended && !l.done })
	if !left && !done {
		return fault(ExitHost, "--adopt %s: the job's agents are gone (%s): they wait %v for somebody who adopts the job: start it again", h.dir, lost[0].why.Text, j.spec.Adopt)
	}
	for _, e := range lost {
		go j.mail.post(e)
	}
	return nil
}

// dig makes the ways again, from the ports that workers know, by which those of some hosts reach the coordinator.
func (h *heir) dig(ctx context.Context) error {
	j := h.job
	limited, cancel := context.WithTimeout(ctx, j.spec.StartTimeout)
	defer cancel()
	dug, digging := make(chan error), 0
	for i, r := range j.admission.routes {
		if l := j.links.all[i]; r.dug && !l.ended && !l.done && !h.lost[l] {
			digging++
			go func() { dug <- h.digAgain(limited, l, r.addr) }()
		}
	}
	var first error
	ping := time.NewTicker(time.Second)
	defer ping.Stop()
	for digging > 0 {
		var err error
		select {
		case err = <-dug:
			digging--
		case <-ping.C:
			h.ping(h.job.links.all...)
		case sig := <-j.spec.Signals:
			err = j.spec.early(sig, "while hosts were being given a way here")
		}
		if err != nil && first == nil {
			first = err
			cancel()
		}
	}
	if first != nil && ctx.Err() != nil {
		return fault(1, "stopped while hosts were being given a way here")
	}
	return first
}

// ping tells agents that the launcher is there: they would let go of one that is silent.
func (h *heir) ping(to ...*link) {
	for _, l := range to {
		if !l.ended && !l.done && !h.lost[l] && l.host.Silence > 0 {
			l.writer.Send(protocol.CmdPing, nil)
		}
	}
}

// digPause is how long is waited before a port is asked for again.
const digPause = 200 * time.Millisecond

// digAgain makes one of them. What held its port for the dead launcher may have to find first that this one is gone.
func (h *heir) digAgain(ctx context.Context, l *link, addr string) error {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return fault(ExitUsage, "--adopt %s: its file launcher is damaged (%v): start the job again", h.dir, err)
	}
	for end := time.Now().Add(lockWait); ; {
		if _, err = l.way.Dig(ctx, h.head.Port, int(at.Port())); err == nil {
			h.job.record.event(&event.Note{
				Text: fmt.Sprintf("the workers of host %s reach the launcher through %s again", l.called, l.host.Digs),
			})
			return nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return fault(ExitHost, "--adopt %s: the workers of host %s know the launcher by a port of their own host, and %v: end what holds it there, and start the job again", h.dir, l.called, err)
		}
		select {
		case <-time.After(digPause):
		case <-ctx.Done():
		}
	}
}

// awaitCoordinator waits until the coordinator has told again what it had told.
func (h *heir) awaitCoordinator(ctx context.Context) error {
	spec := h.job.spec
	limit := time.NewTimer(spec.StartTimeout)
	defer limit.Stop()
	ping := time.NewTicker(time.Second)
	defer ping.Stop()
	for {
		select {
		case <-h.job.meeting.lived:
			return nil
		case <-ping.C:
			h.ping(h.job.links.all...)
		case <-limit.C:
			return fault(ExitTimeout, "the coordinator has not read its state in %v: raise --start-timeout", spec.StartTimeout)
		case sig := <-spec.Signals:
			if err := spec.early(sig, "while the job was being taken over"); err != nil {
				return err
			}
		case <-ctx.Done():
			return fault(1, "stopped while the job was being taken over")
		}
	}
}

// goOn tells the agents what the last launcher could not any more, once the coordinator has told again what it had.
func (h *heir) goOn(ctx context.Context) error {
	j := h.job
	if err := h.awaitCoordinator(ctx); err != nil {
		return err
	}
	first, err := placeRanks(j.spec.Hosts, j.spec.NP) // as the first launcher's plans had it
	if err != nil {
		return err
	}
	j.record.story.dated(j.record.ledger.story)
	for rank, told := range j.meeting.past {
		// Each process ends once. One that was severed and has not ended may be the last launcher's unfinished
		// business.
		if e := told[len(told)-1]; e.named || len(told) > j.record.ledger.exits[rank] {
			go j.mail.post(e)
		}
	}
	for _, l := range j.links.all {
		l.muted = false
		if way, is := l.way.(reach.Returned); is && !l.ended && !l.done && !h.lost[l] {
			h.resume(l, way.Back(), first)
		}
	}
	return nil
}

// resume tells one agent what it was not told, by what it says of itself; first are the seats of the job's beginning.
func (h *heir) resume(l *link, back *protocol.Back, first []Seat) {
	j := h.job
	told := maps.Clone(back.Starts)
	late := !l.born.IsZero() // its plan names no workers
	switch {
	case late && !l.planned:
		j.admission.probe(greeted{l, l.host})
		return
	case !back.Planned:
		j.admission.sendPlan(l, h.unstarted(l, first))
	case back.Called < j.admission.callSize:
		go l.sendCall(j.spec.Call, back.Called, j.admission.callSize-back.Called, j.mail.post)
	}
	if back.Planned && !late {
		for _, s := range first {
			if s.Host == l.index {
				told[s.Rank]-- // by the plan
			}
		}
	}
	for _, w := range l.starts {
		if told[w.Rank]--; told[w.Rank] < 0 {
			l.sendJSON(protocol.CmdStart, w)
		}
	}
	if j.ending.stopped {
		l.send(protocol.CmdStop, wire.AppendI64(nil, j.spec.Grace.Milliseconds()))
	}
}

// unstarted returns the workers that a host's plan is to name: those of the job's beginning whose start was not asked
// for since.
func (h *heir) unstarted(l *link, first []Seat) (workers []protocol.Worker) {
	if !l.born.IsZero() {
		return nil
	}
	for _, s := range first {
		s = h.job.crew.seats[s.Rank]
		asked := func(w protocol.Worker) bool { return w.Rank == s.Rank }
		if s.Host == l.index && !slices.ContainsFunc(l.starts, asked) {
			workers = append(workers, h.job.admission.worker(s, 1))
		}
	}
	return workers
}
