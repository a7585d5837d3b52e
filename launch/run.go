package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"syscall"
	"time"

	"hora/elastic"
	"hora/elastic/rendezvous"
	"hora/event"
	"hora/internal/secret"
	"hora/internal/wire"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// settle is how long a first failure waits before the rest is ended: the others have heard of it and print what they
// lost, and a failure that caused it may yet be heard of, since a rank that lost its peer can end before that peer's
// own end is known here.
const settle = 200 * time.Millisecond

// job is one run; all fields belong to the goroutine of Run, except where links and meeting say otherwise. What it is
// made of owns its part of them.
type job struct {
	crew
	meeting
	verdict
	holds
	mailbox
	refused *secret.Strangers // tells of strangers, once for the whole job
	out     *output
	began   time.Time
	roster  *elastic.Roster // which worker belongs on which slot
	final   *time.Timer
	stopped bool // the workers have been told to end
	ending  patience
	asked   int              // signals of ours that ask to stop
	hard    <-chan time.Time // when to give up waiting for agents
	forced  bool             // they have been killed
	story   story
	missing arrivals
	served  bool // somebody is, or was, at rank 0's port
}

// mailbox is what the job's owner hears of everybody else.
type mailbox struct {
	events chan any
	over   chan struct{} // closed when Run returns
}

type said struct {
	l      *link
	kind   uint8
	body   []byte
	waited bool   // it has been put off
	n      uint64 // of the message, where they are numbered
}
type linkEnd struct {
	l   *link
	why *reach.Lost
}
type outputFault struct{ err error }

// newJob returns a job of which nothing has begun.
func newJob(spec *settings) *job {
	j := &job{began: time.Now()}
	j.crew = crew{
		spec: spec, hosts: spec.Hosts, reach: spec.Reach, begun: map[int]time.Time{},
		condemn: map[int]string{},
	}
	j.absent, j.coming = map[int]bool{}, map[int]onItsWay{}
	j.holds = holds{held: map[int]*hold{}, frozen: map[int]int{}, say: j.event}
	j.mailbox = mailbox{events: make(chan any, 64), over: make(chan struct{})}
	j.story.began = j.began
	return j
}

// run starts a job and returns when nothing of it is left. An error means that it could not begin; its text is one
// sentence, and *Error carries the exit code.
func run(ctx context.Context, spec settings) (Outcome, error) {
	spec.defaults()
	j := newJob(&spec)
	defer close(j.over)
	if err := spec.reportable(); err != nil {
		return Outcome{}, err
	}
	var err error
	if j.callSize, err = spec.weighCall(); err != nil {
		return Outcome{}, err
	}
	if spec.Discovery != nil {
		spec.sizes()
	}
	j.roster = spec.supply()
	if spec.Discovery != nil {
		if err := j.discover(ctx); err != nil {
			return Outcome{}, err
		}
	}
	if j.seats, err = placeRanks(spec.Hosts, spec.NP); err != nil {
		return Outcome{}, err
	}
	j.neighbours()
	if err := j.locate(ctx); err != nil {
		return Outcome{}, err
	}
	if err := j.possible(); err != nil {
		return Outcome{}, err
	}
	j.alive = make([]bool, len(j.seats))
	if j.out, err = newOutput(j.spec, len(j.seats)); err != nil {
		return Outcome{}, err
	}
	defer j.out.close()
	if err := openLedger(j); err != nil {
		return Outcome{}, err
	}
	if err := j.openLinks(); err != nil {
		j.closeLinks()
		return Outcome{}, err
	}
	defer j.closeLinks()
	if err := j.serve(ctx); err != nil {
		return Outcome{}, err
	}
	defer j.server.Close()
	if err := j.sendPlans(ctx); err != nil {
		return Outcome{}, err
	}
	j.ledger.begin(j)
	j.guarded()
	defer follow(ctx, j)()
	return conclude(j, j.own(ctx)), nil
}

// guarded starts what looks after this machine's agents, unless it runs.
func (c *crew) guarded() { c.reach.Begun(func(text string) { c.event(&event.Warning{Text: text}) }) }

// follow hears of the job's discovery, if it has one, until what it returns is called.
func follow(ctx context.Context, j *job) (stop func()) {
	d := j.spec.Discovery
	if d == nil {
		return func() {}
	}
	watching, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { d.watch(watching, j.reach, j.events) })
	return func() {
		cancel()
		watch.Wait()
	}
}

// conclude tells how a job has ended.
func conclude(j *job, o Outcome) Outcome {
	j.refused.Close()
	if err := j.out.end(); err != nil && o.Kind == Finished {
		o = Outcome{Kind: Trouble, Rank: -1, Code: ExitLogs, Last: err.Error()}
	}
	o.Took = time.Since(j.began)
	o.Apart = j.spec.Apart && o.Kind == Finished && len(j.seats) > 1 && j.epoch.Load() == 0 && !j.served
	if err := j.story.tell(j.spec, j.roster, &o); err != nil && o.Kind == Finished {
		o = Outcome{Kind: Trouble, Rank: -1, Code: ExitLogs, Last: err.Error(), Took: o.Took}
	}
	j.ledger.end(&o)
	return o
}

// own waits for the workers' ends, and ends the rest after a failure.
func (j *job) own(ctx context.Context) Outcome {
	done := ctx.Done()
	ping := time.NewTicker(time.Second)
	defer ping.Stop()
	for j.open() > 0 {
		var final <-chan time.Time
		if j.final != nil {
			final = j.final.C
		}
		select {
		case e := <-j.events:
			j.handle(e)
		case s := <-j.spec.Signals:
			if sig, ok := s.(syscall.Signal); ok {
				j.signal(sig)
			}
		case <-done:
			done = nil
			j.stopFor(Outcome{Kind: Cancelled, Rank: -1, Code: 1, Last: "the launcher was told to stop"})
		case <-final:
			j.final = nil
			if !j.stopped {
				j.stop(j.spec.Grace)
			}
		case <-j.hard:
			if j.forced {
				return j.outcome()
			}
			j.forced = true
			for _, l := range j.links {
				l.kill()
			}
			j.hard = time.After(time.Second)
		case <-ping.C:
			j.pings()
		case <-j.alarm():
			j.heed(elastic.Tick{})
		}
	}
	return j.outcome()
}

// open counts the agents that have not ended.
func (c *crew) open() int {
	n := 0
	for _, l := range c.links {
		if !l.ended {
			n++
		}
	}
	return n
}

func (j *job) handle(e any) {
	switch e := e.(type) {
	case said:
		e.l.heard = time.Now()
		if putOff(j, e) {
			return
		}
		if j.ledger.said(j, &e) {
			j.hear(e)
		}
		e.l.heardOf(e.n)
	case severed:
		j.severed(e)
	case discovered:
		j.heed(e.news())
	case greeted:
		j.lateGreeting(e)
	case probed:
		j.lateProbe(e)
	case linkEnd:
		e.l.ended = true
		if !e.l.done && j.cancel == nil {
			why := e.l.explain(e.why)
			j.ledger.write(&entry{
				Kind: entryLost, At: j.ledger.now(j.began), numbered: numbered{Link: e.l.index},
				Text: why,
			})
			j.hostLost(e.l, why)
		}
	case outputFault:
		j.stopFor(Outcome{Kind: Trouble, Rank: -1, Code: ExitLogs, Last: e.err.Error()})
	}
}

// putOff waits a little with a worker's end where it may have left on purpose: that may be on its way from the
// coordinator's process. It reports whether it does; the end then comes once more.
func putOff(j *job, e said) bool {
	if e.kind != protocol.SayExited || e.waited || j.spec.StateDir == "" || j.complete.Load() {
		return false
	}
	d := wire.NewDecoder(e.body)
	rank, code, sig := d.Int(0, len(j.seats)-1), d.Int(0, 255), d.Int(0, 127)
	d.Bool()
	d.String(maxText)
	if _, left := j.drained.Load(rank); d.Done() != nil || left || sig != 0 || code != 0 && !j.roster.Asked(rank) {
		return false
	}
	e.waited = true
	time.AfterFunc(settle, func() { j.post(e) })
	return true
}

func (j *job) hear(e said) {
	d := wire.NewDecoder(e.body)
	switch e.kind {
	case protocol.SayStarted:
		rank, pid := d.Int(0, len(j.seats)-1), d.Int(1, 1<<31-1)
		if d.Done() == nil && j.seats[rank].Host == e.l.index {
			j.alive[rank] = true
			j.event(&event.Started{Rank: rank, Host: e.l.called, Pid: pid})
			j.heed(elastic.Up{Rank: rank})
		}
	case protocol.SayExited:
		rank, code, sig, oom := d.Int(0, len(j.seats)-1), d.Int(0, 255), d.Int(0, 127), d.Bool()
		process := d.String(maxText)
		if d.Done() == nil {
			j.exited(e.l, rank, process, code, syscall.Signal(sig), oom)
		}
	case protocol.SayFailed:
		code, text := d.Int(0, 255), event.OneLine(d.String(maxText))
		if d.Done() != nil {
			return
		}
		if goesOn, _ := j.outliveHost(e.l, text); !goesOn {
			j.fail(Outcome{Kind: NotStarted, Rank: -1, Host: e.l.called, Code: code, Last: text})
		}
	case protocol.SayServed:
		j.served = true
	case protocol.SayNotice:
		if !j.stopped {
			j.heed(elastic.Notice{Host: e.l.name, Cause: event.OneLine(string(e.body))})
		}
	case protocol.SayHalted:
		rank, halt := d.Int(0, len(j.seats)-1), rendezvous.Halt(d.Int(0, int(rendezvous.Suspended)))
		if d.Done() == nil && j.seats[rank].Host == e.l.index {
			j.halted(e.l, rank, halt, j.server)
		}
	case protocol.SayDoing:
		j.missing.hear(e.body)
	case protocol.SayWarning:
		j.event(&event.Warning{Host: e.l.called, Text: event.OneLine(string(e.body))})
	case protocol.SayOrphan:
		const why = "what had started its agent there has ended" // how its workers end of it says nothing about them
		if j.stopped || !j.works(e.l) {
			j.event(&event.Warning{Host: e.l.called, Text: fmt.Sprintf("%s: %s", e.l.called, why)})
		} else {
			j.hostLost(e.l, why)
		}
	case protocol.SayDone:
		e.l.done = true
		e.l.hangUp()
		if j.spec.elastic() && !j.stopped && !j.complete.Load() && !e.l.lost && j.roster.Holds(e.l.name) {
			j.hostLost(e.l, "its agent was asked to end")
		}
	}
}

const maxText = 64 << 10

func (j *job) exited(l *link, rank int, process string, code int, sig syscall.Signal, oom bool) {
	if _, begun := j.begun[rank]; !begun || j.seats[rank].Host != l.index {
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
	j.alive[rank] = false
	delete(j.held, rank)
	delete(j.frozen, rank)
	delete(j.begun, rank)
	reason := ""
	severed, ended := j.condemn[rank]
	delete(j.condemn, rank)
	why, drained := j.drained.LoadAndDelete(rank)
	if drained {
		o = Outcome{Kind: Drained, Rank: rank, Host: l.called, Last: why.(string)}
		reason = o.Cause()
	} else if ended && sig == syscall.SIGKILL {
		o = Outcome{Kind: Severed, Rank: rank, Host: l.called, Code: ExitHost, Last: severed}
		reason = severed
	} else if o.Kind != Finished {
		o.Last = LastException(j.out.tail(rank))
		o.Last += j.howToDebug(&o) + j.oldNames(&o)
		reason = o.Cause()
	}
	end := j.stepAnd(j.exit(&o), func() {
		j.server.Exited(rank, process, l.called, reason)
		j.event(&event.Exited{Rank: rank, Host: l.called, Cause: o.Cause()})
	})
	if end != nil {
		j.fail(o)
		return
	}
	j.endIdle()
}

// endIdle ends what no work is left for: when all who worked have ended, also what the job would wait for in vain.
func (j *job) endIdle() {
	switch {
	case j.roster.Left() == 0 && j.spec.elastic():
		j.stop(0) // agents of elastic jobs wait for more
	case !j.stopped && j.complete.Load() && j.onlyLatecomers(j.alive):
		j.stop(j.spec.Grace)
	}
}

// exit returns what the roster hears of a worker's end.
func (m *meeting) exit(o *Outcome) elastic.Exit {
	e := elastic.Exit{Rank: o.Rank, Cause: o.Cause(), Words: o.Kind == Failed && o.Last != "", Killed: o.Kind == Killed}
	switch {
	case o.Kind == Finished:
		e.How = elastic.Success
	case m.latecomer(o.Rank) || o.Kind == Drained && m.complete.Load():
		e.How = elastic.Excused
	case o.Kind == Drained:
		e.How = elastic.Farewell
	}
	return e
}

// pings asks agents whose end may go unseen for a sign of life and gives up on those that give none.
func (j *job) pings() {
	j.late()
	j.heed(elastic.Tick{})
	j.awaitArrivals()
	j.tellHeld()
	for _, rank := range j.overdue(j.spec.Silence) {
		if _, member := j.took.Load(rank); member && j.alive[rank] && j.condemn[rank] == "" {
			j.end(rank, fmt.Sprintf("its process was stopped after its work with the others, and did not go on for %v "+
				"(HORA_PEER_TIMEOUT, hora run --peer-timeout)", j.spec.Silence))
		}
	}
	if j.stopped && j.ending.due(time.Now()) {
		j.event(&event.Delay{Text: j.awaitedEnds()})
	}
	for _, l := range j.links {
		if l.host == nil || l.host.Silence == 0 || l.ended {
			continue
		}
		l.send(protocol.CmdPing, nil)
		if quiet := time.Since(l.heard); quiet > l.host.Silence && !l.mute {
			l.mute = true
			l.cause = fmt.Sprintf("silent for %v: look whether it is up and the network to it works", l.host.Silence)
			l.kill()
		}
	}
}

func decodeJSON(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read an agent's message: %w", err)
	}
	return nil
}
