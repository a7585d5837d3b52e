package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"syscall"
	"time"

	"hora/elastic"
	"hora/elastic/rendezvous"
	"hora/event"
	"hora/internal/wire"
	"hora/launch/protocol"
)

// settle is how long a first failure waits before the rest is ended: the others have heard of it and print what they
// lost, and a failure that caused it may yet be heard of, since a rank that lost its peer can end before that peer's
// own end is known here.
const settle = 200 * time.Millisecond

// job is one run. The owner, the goroutine that runs it, has it all, but for what links, meeting and mailbox say; each
// part is one idea of it and knows those parts alone that it names.
type job struct {
	spec      *settings
	mail      *mailbox
	record    *record
	crew      *crew
	links     *links
	meeting   *meeting
	holds     *holds
	ending    *ending
	admission *admission
	supply    *supply
	arrivals  *arrivals
	served    bool // somebody is, or was, at rank 0's port
}

// newJob returns a job of which nothing has begun.
func newJob(spec *settings) *job {
	began := time.Now()
	r := &record{began: began, events: spec.Place.Events, story: story{began: began}}
	m := &mailbox{events: make(chan any, 64), over: make(chan struct{})}
	c := &crew{spec: spec, hosts: spec.Hosts, begun: map[int]time.Time{}, condemn: map[int]string{}}
	l := &links{spec: spec, record: r, mail: m}
	with := &meeting{
		spec: spec, crew: c, record: r, mail: m, absent: map[int]bool{}, coming: map[int]onItsWay{},
	}
	h := &holds{held: map[int]*hold{}, frozen: map[int]int{}, say: r.event}
	e := &ending{spec: spec, crew: c, links: l, meeting: with, record: r, mail: m}
	a := &admission{spec: spec, crew: c, links: l, meeting: with, record: r, mail: m, callSize: -1}
	return &job{
		spec: spec, mail: m, record: r, crew: c, links: l, meeting: with, holds: h, ending: e, admission: a,
		supply: &supply{
			spec: spec, crew: c, links: l, meeting: with, record: r, holds: h, admission: a, ending: e,
		},
		arrivals: &arrivals{spec: spec, crew: c, links: l, meeting: with, record: r, ending: e},
	}
}

// run starts a job and returns when nothing of it is left. An error means that it could not begin; its text is one
// sentence, and *Error carries the exit code.
func run(ctx context.Context, spec settings) (Outcome, error) {
	spec.defaults()
	if err := spec.reportable(); err != nil {
		return Outcome{}, err
	}
	_, err := spec.weighCall()
	if err != nil {
		return Outcome{}, err
	}
	if spec.Discovery != nil {
		spec.sizes()
	}
	j := newJob(&spec)
	defer close(j.mail.over)
	j.supply.roster = spec.roster()
	if err := j.place(ctx); err != nil {
		return Outcome{}, err
	}
	if j.links.out, err = newOutput(j.spec, len(j.crew.seats)); err != nil {
		return Outcome{}, err
	}
	defer j.links.out.close()
	if j.record.ledger, err = spec.openLedger(); err != nil {
		return Outcome{}, err
	}
	if j.admission.callSize, err = spec.weighCall(); err != nil { // of what is kept of it
		return Outcome{}, err
	}
	defer j.links.close()
	if err := j.links.open(j.crew.peopled(), j.crew.input); err != nil {
		return Outcome{}, err
	}
	if err := j.meeting.serve(ctx, j.mayCome()); err != nil {
		return Outcome{}, err
	}
	defer j.meeting.server.Close()
	if err := j.admission.sendPlans(ctx); err != nil {
		return Outcome{}, err
	}
	j.keep()
	j.links.guarded()
	defer j.supply.follow(ctx, j.mail)()
	return j.conclude(j.own(ctx)), nil
}

// place finds the job's hosts and deals its ranks to them.
func (j *job) place(ctx context.Context) error {
	if j.spec.Discovery != nil {
		if err := j.supply.discover(ctx); err != nil {
			return err
		}
	}
	if err := j.crew.deal(); err != nil {
		return err
	}
	if err := j.crew.locate(ctx); err != nil {
		return err
	}
	return j.crew.possible()
}

// mayCome returns the hosts of all who may come to the coordinator.
func (j *job) mayCome() []string {
	names := j.links.names()
	if j.spec.elastic() { // the rest may follow
		for _, h := range j.spec.Hosts {
			names = append(names, h.Name)
		}
	}
	return names
}

// keep begins the ledger, if the job has one.
func (j *job) keep() {
	if j.record.ledger == nil {
		return
	}
	var given []order
	if k, is := j.meeting.server.(*kept); is {
		given = k.orders
	}
	j.record.ledger.begin(j.spec.head(j.record.began, j.meeting.port, j.admission.routes), given)
}

// conclude tells how the job has ended.
func (j *job) conclude(o Outcome) Outcome {
	j.meeting.refused.Close()
	if err := j.links.out.end(); err != nil && o.Kind == Finished {
		o = Outcome{Kind: Trouble, Rank: -1, Code: ExitLogs, Last: err.Error()}
	}
	if err := j.spec.handOver(); err != nil && o.Kind == Finished {
		o = Outcome{Kind: Trouble, Rank: -1, Code: ExitLogs, Last: err.Error()}
	}
	o.Took = time.Since(j.record.began)
	o.Apart = j.spec.Apart && o.Kind == Finished && len(j.crew.seats) > 1 && j.meeting.epoch.Load() == 0 && !j.served
	if err := j.record.story.tell(j.spec, j.supply.roster, &o); err != nil && o.Kind == Finished {
		o = Outcome{Kind: Trouble, Rank: -1, Code: ExitLogs, Last: err.Error(), Took: o.Took}
	}
	j.record.ledger.end(&o)
	return o
}

// own waits for the workers' ends, and ends the rest after a failure.
func (j *job) own(ctx context.Context) Outcome {
	done := ctx.Done()
	ping := time.NewTicker(time.Second)
	defer ping.Stop()
	for j.links.running() > 0 {
		select {
		case e := <-j.mail.events:
			j.handle(e)
		case s := <-j.spec.Signals:
			if sig, ok := s.(syscall.Signal); ok {
				j.ending.signal(sig)
			}
		case <-done:
			done = nil
			j.ending.stopFor(Outcome{Kind: Cancelled, Rank: -1, Code: 1, Last: "the launcher was told to stop"})
		case <-j.ending.final:
			j.ending.settled()
		case <-j.ending.hard:
			if j.ending.giveUp() {
				return j.ending.verdict.outcome()
			}
		case <-ping.C:
			j.look()
		case <-j.supply.alarm():
			j.supply.heed(elastic.Tick{})
		}
	}
	return j.ending.verdict.outcome()
}

// look does what is done once a second.
func (j *job) look() {
	j.admission.late()
	j.supply.heed(elastic.Tick{})
	j.arrivals.await()
	j.holds.tell()
	for _, rank := range j.holds.overdue(j.spec.Silence) {
		_, member := j.meeting.took.Load(rank)
		if member && j.crew.alive[rank] && j.crew.condemn[rank] == "" {
			j.ending.end(rank, fmt.Sprintf("its process was stopped after its work with the others, and did not go on for %v "+
				"(HORA_PEER_TIMEOUT, hora run --peer-timeout)", j.spec.Silence))
		}
	}
	j.ending.tell()
	j.links.ping()
}

func (j *job) handle(e any) {
	switch e := e.(type) {
	case said:
		e.l.heard = time.Now()
		if j.putOff(e) {
			return
		}
		if j.record.ledger.said(&e, j.record.now(), j.meeting) {
			j.hear(e)
		}
		e.l.heardOf(e.n)
	case severed:
		j.ending.severed(e)
	case discovered:
		j.supply.heed(e.news())
	case greeted:
		if e.l.ended { // an heir has found one that the job had given up
			e.l.way.Kill()
			return
		}
		j.admission.probe(e)
	case probed:
		j.admission.probed(e)
	case linkEnd:
		if e.l.ended {
			return
		}
		e.l.ended = true
		if !e.l.done && j.ending.verdict.cancel == nil {
			why := e.l.explain(e.why)
			j.record.write(&entry{Kind: entryLost, numbered: numbered{Link: e.l.index}, Text: why})
			j.supply.hostLost(e.l, why)
		}
	case outputFault:
		j.ending.stopFor(Outcome{Kind: Trouble, Rank: -1, Code: ExitLogs, Last: e.err.Error()})
	}
}

// putOff waits a little with a worker's end where it may have left on purpose: that may be on its way from the
// coordinator's process. It reports whether it does; the end then comes once more.
func (j *job) putOff(e said) bool {
	if e.kind != protocol.SayExited || e.waited || j.spec.CoordinatorState == "" || j.meeting.complete.Load() {
		return false
	}
	d := wire.NewDecoder(e.body)
	rank, code, sig := d.Int(0, len(j.crew.seats)-1), d.Int(0, 255), d.Int(0, 127)
	d.Bool()
	d.String(maxText)
	if _, left := j.meeting.drained.Load(rank); d.Done() != nil || left || sig != 0 ||
		code != 0 && !j.supply.roster.Asked(rank) {
		return false
	}
	e.waited = true
	time.AfterFunc(settle, func() { j.mail.post(e) })
	return true
}

func (j *job) hear(e said) {
	d := wire.NewDecoder(e.body)
	switch e.kind {
	case protocol.SayStarted:
		rank, pid := d.Int(0, len(j.crew.seats)-1), d.Int(1, 1<<31-1)
		if d.Done() == nil && j.crew.seats[rank].Host == e.l.index {
			j.crew.alive[rank] = true
			j.record.event(&event.Started{Rank: rank, Host: e.l.called, Pid: pid})
			j.supply.heed(elastic.Up{Rank: rank})
		}
	case protocol.SayExited:
		rank, code, sig, oom := d.Int(0, len(j.crew.seats)-1), d.Int(0, 255), d.Int(0, 127), d.Bool()
		process := d.String(maxText)
		if d.Done() == nil {
			j.exited(e.l, rank, process, code, syscall.Signal(sig), oom)
		}
	case protocol.SayFailed:
		code, text := d.Int(0, 255), event.OneLine(d.String(maxText))
		if d.Done() != nil {
			return
		}
		if goesOn, _ := j.supply.outliveHost(e.l, text); !goesOn {
			j.ending.fail(Outcome{Kind: NotStarted, Rank: -1, Host: e.l.called, Code: code, Last: text})
		}
	case protocol.SayServed:
		j.served = true
	case protocol.SayNotice:
		if !j.ending.stopped {
			j.supply.heed(elastic.Notice{Host: e.l.name, Cause: event.OneLine(string(e.body))})
		}
	case protocol.SayHalted:
		rank, halt := d.Int(0, len(j.crew.seats)-1), rendezvous.Halt(d.Int(0, int(rendezvous.Suspended)))
		if d.Done() == nil && j.crew.seats[rank].Host == e.l.index {
			j.holds.halted(e.l, rank, halt, j.meeting.server)
		}
	case protocol.SayDoing:
		j.arrivals.hear(e.body)
	case protocol.SayWarning:
		j.record.event(&event.Warning{Host: e.l.called, Text: event.OneLine(string(e.body))})
	case protocol.SayOrphan:
		const why = "what had started its agent there has ended" // how its workers end of it says nothing about them
		if j.ending.stopped || !j.crew.works(e.l) {
			j.record.event(&event.Warning{Host: e.l.called, Text: fmt.Sprintf("%s: %s", e.l.called, why)})
		} else {
			j.supply.hostLost(e.l, why)
		}
	case protocol.SayDone:
		e.l.done = true
		e.l.hangUp()
		if j.spec.elastic() && !j.supply.over() && !e.l.lost && j.supply.roster.Holds(e.l.name) {
			j.supply.hostLost(e.l, "its agent was asked to end")
		}
	}
}

const maxText = 64 << 10

func (j *job) exited(l *link, rank int, process string, code int, sig syscall.Signal, oom bool) {
	if _, begun := j.crew.begun[rank]; !begun || j.crew.seats[rank].Host != l.index {
		return // its host was given up before
	}
	o := Outcome{Kind: Failed, Rank: rank, Host: l.called, Code: code, Signal: sig}
	switch {
	case oom:
		o.Kind = OutOfMemory
	case sig != 0:
		o.Kind = Killed
	case code == 0:
		o.Kind = Finished
	}
	j.crew.alive[rank] = false
	j.holds.forget(rank)
	delete(j.crew.begun, rank)
	reason := ""
	severed, ended := j.crew.condemn[rank]
	delete(j.crew.condemn, rank)
	why, drained := j.meeting.drained.LoadAndDelete(rank)
	if drained {
		o = Outcome{Kind: Drained, Rank: rank, Host: l.called, Last: why.(string)}
		reason = o.Cause()
	} else if ended && sig == syscall.SIGKILL {
		o = Outcome{Kind: Severed, Rank: rank, Host: l.called, Code: ExitHost, Last: severed}
		reason = severed
	} else if o.Kind != Finished {
		why, line := lastException(j.links.out.tail(rank))
		if o.Last = why; why == "" && (sig != syscall.SIGKILL || oom) { // who is killed says nothing of it
			o.Last = line
		}
		o.Last += j.crew.howToDebug(&o) + j.crew.advice(&o)
		reason = o.Cause()
	}
	end := j.supply.stepAnd(j.meeting.exit(&o), func() {
		j.meeting.server.Exited(rank, process, l.called, reason)
		j.record.event(&event.Exited{Rank: rank, Host: l.called, Cause: o.Cause()})
	})
	if end != nil {
		j.ending.fail(o)
		return
	}
	j.ending.idle(j.supply.roster)
}

func decodeJSON(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read an agent's message: %w", err)
	}
	return nil
}
