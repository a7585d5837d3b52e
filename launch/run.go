package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"hora/elastic"
	"hora/elastic/rendezvous"
	"hora/event"
	"hora/internal/wire"
)

// settle is how long a first failure waits before the rest is ended: the others have heard of it and print what they
// lost, and a failure that caused it may yet be heard of, since a rank that lost its peer can end before that peer's own
// end is known here.
const settle = 200 * time.Millisecond

// job is one run; all fields belong to the goroutine of Run, except where links say otherwise.
type job struct {
	spec     *Spec
	hosts    []Host
	seats    []Seat
	links    []*link
	program  *carried // this program, once a host needs it
	server   coordinator
	port     int // of the coordinator
	events   chan any
	out      *output
	began    time.Time
	left     int // workers that have not ended
	alive    []bool
	failed   []Outcome
	final    *time.Timer
	stopped  bool // the workers have been told to end
	ending   patience
	asked    int // signals of ours that ask to stop
	cancel   *Outcome
	hard     <-chan time.Time // when to give up waiting for agents
	forced   bool             // they have been killed
	again    restarts
	begun    map[int]time.Time // by rank: when its present process was asked for
	condemn  map[int]string    // by rank: why its process, which is lost to the job, is being ended
	story    story
	over     chan struct{}        // closed when Run returns
	rts      []route              // by host
	first    int                  // ranks on this machine that have been planned
	total    int                  // of so many
	disc     *discovery           // nil without
	off      map[string]string    // hosts that are gone or about to go, and why
	until    map[string]time.Time // when such a host is tried again
	black    blacklist            // of hosts that were lost, without a discovery
	homeless map[int]homeless     // by rank
	leave    leaving
	// Written by the coordinator's goroutine:
	epoch    atomic.Uint64 // the last that opened
	size     atomic.Int64  // of that epoch
	complete atomic.Bool   // every worker has done its work
	took     sync.Map      // rank -> its present process has been a member
	drained  sync.Map      // rank -> why it left before the work was done, until its process has ended
}

type said struct {
	l     *link
	kind  uint8
	body  []byte
	again bool // it has been put off
}
type linkEnd struct {
	l   *link
	err error
}
type outputFault struct{ err error }

// Run starts a job and returns when nothing of it is left. An error means that it could not begin; its text is one
// sentence, and *Error carries the exit code.
func Run(ctx context.Context, spec Spec) (Outcome, error) {
	spec.defaults()
	j := &job{
		spec: &spec, hosts: spec.Hosts, began: time.Now(), events: make(chan any, 64), over: make(chan struct{}),
		begun: map[int]time.Time{}, condemn: map[int]string{}, off: map[string]string{},
		until: map[string]time.Time{}, homeless: map[int]homeless{}, black: blacklist{min: spec.CoolMin, max: spec.CoolMax},
		leave: leaving{why: map[int]string{}, asked: map[int]bool{}, keeper: -1},
		again: restarts{began: map[int]time.Time{}, epoch: map[int]uint64{}, quick: map[int]int{}, planned: map[int]bool{}},
	}
	j.story.began = j.began
	defer close(j.over)
	var err error
	if spec.Discovery != nil {
		if err := j.discover(ctx); err != nil {
			return Outcome{}, err
		}
	}
	if j.seats, err = Place(spec.Hosts, spec.NP); err != nil {
		return Outcome{}, err
	}
	if err := j.enoughDevices(); err != nil {
		return Outcome{}, err
	}
	j.alive = make([]bool, len(j.seats))
	j.left = len(j.seats)
	if j.out, err = newOutput(j.spec, len(j.seats)); err != nil {
		return Outcome{}, err
	}
	defer j.out.close()
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
	if j.disc != nil {
		j.disc.seated(j.seats)
		watching, stop := context.WithCancel(ctx)
		var watch sync.WaitGroup
		watch.Go(func() { j.watchHosts(watching) })
		defer watch.Wait()
		defer stop()
	}
	o := j.own(ctx)
	if err := j.out.end(); err != nil && o.Kind == Finished {
		o = Outcome{Kind: Trouble, Rank: -1, Code: ExitLogs, Last: err.Error()}
	}
	o.Took = time.Since(j.began)
	if err := j.tell(&o); err != nil && o.Kind == Finished {
		o = Outcome{Kind: Trouble, Rank: -1, Code: ExitLogs, Last: err.Error(), Took: o.Took}
	}
	return o, nil
}

// serve starts the coordinator: on the loopback when every host is this machine.
func (j *job) serve(ctx context.Context) error {
	at := "127.0.0.1:"
	if j.remote() || j.disc != nil || j.spec.elastic() && slices.ContainsFunc(j.spec.Hosts, func(h Host) bool { return !j.isLocal(h.Name) }) {
		at = ":"
	}
	ln, err := net.Listen("tcp", at+strconv.Itoa(j.spec.Port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fault(ExitSystem, "listen for workers on port %d: it is in use: choose another --port, or none", j.spec.Port)
	}
	if err != nil {
		return fault(ExitSystem, "listen for workers: %v: free a port, or raise the limit it names", err)
	}
	j.port = ln.Addr().(*net.TCPAddr).Port
	cfg := rendezvous.Config{
		Secret: j.spec.Secret, Job: j.spec.Job, Host: j.spec.LocalName, Size: len(j.seats),
		Min: j.spec.Min, Max: j.spec.Max, OnLoss: j.spec.OnLoss, Silence: j.spec.Silence, Reported: true,
		OnOpen: func(epoch uint64, members []elastic.Place) {
			j.size.Store(int64(len(members)))
			j.epoch.Store(epoch)
			j.story.open(epoch, members)
		},
		OnMember: func(started int) { j.took.Store(started, true) },
		OnLost:   j.story.lost, OnRecovered: j.story.recovered,
		OnProgress: func(rank int, host string, p rendezvous.Progress) { j.event(&Progress{rank, host, p}) },
		OnComplete: func(uint64) { j.complete.Store(true) },
		OnDrain:    func(started, _ int, _, reason string) { j.drained.Store(started, reason) },
		OnSevered: func(started int, since time.Time, reason string, silent bool) {
			go j.post(severed{started, since, reason, silent}) // the owner may be handing something to the coordinator
		},
		OnFault: func(err error) { j.event(&Warning{Host: j.spec.LocalName, Text: err.Error()}) },
	}
	if j.spec.StateDir == "" {
		j.server = rendezvous.Serve(ctx, ln, cfg)
		return nil
	}
	return j.serveApart(ln.(*net.TCPListener), cfg)
}

// serveApart starts the coordinator as a process of its own.
func (j *job) serveApart(ln *net.TCPListener, cfg rendezvous.Config) error {
	k, err := startKept(&kept{
		argv: j.spec.Coordinator, environ: j.spec.Environ, cfg: cfg,
		setup: setup{
			Secret: j.spec.Secret.Hex(), Job: cfg.Job, Host: cfg.Host, Size: cfg.Size, Min: cfg.Min, Max: cfg.Max, OnLoss: cfg.OnLoss,
			Silence: cfg.Silence, Dir: j.spec.StateDir,
		},
		again: func(why string) {
			j.event(&Warning{Host: j.spec.LocalName, Text: fmt.Sprintf("%s: started again from %s", why, j.spec.StateDir)})
		},
		lost: func(err error) { go j.post(outputFault{err}) },
	}, ln)
	if err != nil {
		return err
	}
	j.server = k
	return nil
}

func (j *job) remote() bool {
	for _, l := range j.links {
		if !l.local {
			return true
		}
	}
	return false
}

// sendPlans tells every agent which workers to start.
func (j *job) sendPlans(ctx context.Context) error {
	routes, err := j.routes(ctx)
	if err != nil {
		return err
	}
	total := 0 // ranks on this machine, under whatever host names
	for _, s := range j.seats {
		if j.links[s.Host].local {
			total++
		}
	}
	j.rts, j.total = routes, total
	for h, l := range j.links {
		var workers []worker
		for _, s := range j.seats {
			if s.Host == h {
				workers = append(workers, j.worker(s, 1))
			}
		}
		j.sendPlan(l, workers, j.hosts[h].Slots)
	}
	return nil
}

// sendPlan tells one agent. slots counts where workers may be added later.
func (j *job) sendPlan(l *link, workers []worker, slots int) {
	p := plan{
		Job: j.spec.Job, Host: l.name, Dir: j.spec.Dir, Command: j.spec.Command, Itself: j.spec.Itself, Bind: j.spec.Bind,
		Environ: merge(Inherited(j.spec.Environ, l.local), nil), Workers: workers, Total: len(workers), Hold: j.spec.elastic(),
		DrainOn: j.spec.DrainOn, LogDir: j.spec.LogDir,
	}
	if p.LogDir != "" && !filepath.IsAbs(p.LogDir) {
		p.LogDir = filepath.Join(j.spec.Dir, p.LogDir)
	}
	if !l.local {
		p.Addr, p.Silence = j.rts[l.index].addr, j.spec.Silence.Milliseconds()
	} else if j.disc == nil && l.born.IsZero() {
		p.First, p.Total = j.first, j.total
		j.first += len(workers)
	}
	if j.disc != nil || !l.born.IsZero() {
		p.Total = max(p.Total, slots)
	}
	l.send(cmdSecret, []byte(j.spec.Secret.Hex()))
	l.sendJSON(cmdPlan, p)
}

// worker is the process of a seat, for the epoch that it is started for.
func (j *job) worker(s Seat, epoch uint64) worker {
	r := j.rts[s.Host]
	j.begun[s.Rank] = time.Now()
	j.drained.Delete(s.Rank) // what a lost one had said
	j.took.Delete(s.Rank)
	at := place{
		seat: s, size: len(j.seats), host: j.links[s.Host].name, job: j.spec.Job, epoch: epoch, addr: r.addr,
		masterHost: r.master, masterPort: r.masterPort, elastic: j.spec.elastic(), progress: j.spec.Progress,
		interfaces: j.spec.Interfaces, listen: r.listen, gpus: j.spec.GPUs,
	}
	if j.links[s.Host].local {
		at.visible = visible(j.spec.Environ)
	}
	return worker{Rank: s.Rank, Slot: s.LocalRank, Env: merge(at.variables(), j.spec.Env)}
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
		}
	}
	return j.outcome()
}

// open counts the agents that have not ended.
func (j *job) open() int {
	n := 0
	for _, l := range j.links {
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
		j.hear(e)
	case restart:
		j.restart(e)
	case severed:
		j.severed(e)
	case discovered:
		j.found(e)
	case greeted:
		j.lateGreeting(e)
	case probed:
		j.lateProbe(e)
	case linkEnd:
		e.l.ended = true
		j.lostLink(e)
	case outputFault:
		j.stopFor(Outcome{Kind: Trouble, Rank: -1, Code: ExitLogs, Last: e.err.Error()})
	}
}

func (j *job) hear(e said) {
	d := wire.NewDecoder(e.body)
	switch e.kind {
	case sayStarted:
		rank, pid := d.Int(0, len(j.seats)-1), d.Int(1, 1<<31-1)
		if d.Done() == nil && j.seats[rank].Host == e.l.index {
			j.alive[rank] = true
			j.event(&Started{Rank: rank, Host: e.l.name, Pid: pid})
		}
	case sayExited:
		rank, code, sig, oom := d.Int(0, len(j.seats)-1), d.Int(0, 255), d.Int(0, 127), d.Bool()
		if d.Done() == nil {
			if _, left := j.drained.Load(rank); code == 0 && sig == 0 && !left && !e.again && j.spec.StateDir != "" && !j.complete.Load() {
				e.again = true // that it left on purpose may be on its way from the coordinator's process
				time.AfterFunc(settle/2, func() { j.post(e) })
				return
			}
			j.exited(e.l, rank, code, syscall.Signal(sig), oom)
		}
	case sayFailed:
		rank, code, text := d.Int(-1, len(j.seats)-1), d.Int(0, 255), d.String(maxText)
		if d.Done() == nil && !j.outliveHost(e.l, text) {
			j.fail(Outcome{Kind: NotStarted, Rank: -1, Host: e.l.name, Code: code, Last: text})
			_ = rank
		}
	case sayNotice:
		j.noticed(e.l, string(e.body))
	case sayHalted:
		if rank, is := d.Int(0, len(j.seats)-1), d.Bool(); d.Done() == nil {
			j.server.Halted(rank, is)
		}
	case sayWarning:
		j.event(&Warning{Host: e.l.name, Text: string(e.body)})
	case sayDone:
		e.l.done = true
		e.l.hangUp()
		if j.spec.elastic() && j.holds(e.l) {
			j.hostLost(e.l, "its agent was asked to end")
		}
	}
}

const maxText = 64 << 10

func (j *job) exited(l *link, rank, code int, sig syscall.Signal, oom bool) {
	if j.disc != nil && !j.disc.holds(l.index, j.seats[rank]) {
		return // its host was given up before
	}
	o := Outcome{Kind: Failed, Rank: rank, Host: l.name, Code: code, Signal: sig}
	switch {
	case oom:
		o.Kind = OutOfMemory
	case sig != 0:
		o.Kind = Killed
	case code == 0:
		o.Kind = Finished
	}
	if j.seats[rank].Host != l.index {
		return // it has been moved
	}
	j.alive[rank] = false
	delete(j.begun, rank)
	j.hasLeft(rank)
	j.left--
	reason := ""
	severed, ended := j.condemn[rank]
	delete(j.condemn, rank)
	why, drained := j.drained.LoadAndDelete(rank)
	if drained {
		o = Outcome{Kind: Drained, Rank: rank, Host: l.name, Last: why.(string)}
		reason = o.Cause()
	} else if ended && sig == syscall.SIGKILL {
		o = Outcome{Kind: Severed, Rank: rank, Host: l.name, Code: ExitHost, Last: severed}
		reason = severed
	} else if o.Kind != Finished {
		o.Last = LastException(j.out.tail(rank))
		reason = o.Cause()
	}
	j.server.Exited(rank, l.name, reason)
	j.event(&Exited{Rank: rank, Host: l.name, Cause: o.Cause()})
	if j.disc != nil && o.Kind == Finished {
		j.disc.closing = true
		j.disc.free(j.seats[rank])
	}
	switch {
	case o.Kind != Finished && !j.survive(o):
		j.fail(o)
	case j.left == 0 && j.spec.elastic():
		j.stop(0) // agents of elastic jobs wait for more
	default:
		j.endLatecomers()
	}
}

// fail records a failure; the first one ends the job, after settle when it is a worker's.
func (j *job) fail(o Outcome) {
	ours := o.Kind == Drained || o.Kind == Killed && (o.Signal == syscall.SIGTERM || o.Signal == syscall.SIGKILL)
	settled := len(j.failed) > 0 && j.final == nil
	if j.stopped && (ours || settled || j.cancel != nil) {
		return // it ended because we said so
	}
	j.failed = append(j.failed, o)
	if len(j.failed) == 1 {
		j.final = time.NewTimer(settle)
	}
	if o.Rank < 0 {
		j.stop(j.spec.Grace)
	}
}

// stop has every agent end its workers.
func (j *job) stop(grace time.Duration) {
	j.stopped = true
	for _, l := range j.links {
		l.send(cmdStop, wire.AppendI64(nil, grace.Milliseconds()))
	}
	j.hard = time.After(grace + 2*time.Second)
}

func (j *job) stopFor(o Outcome) {
	if j.cancel == nil && len(j.failed) == 0 {
		j.cancel = &o
	}
	j.stop(j.spec.Grace)
}

// signal passes a signal on to all workers. The first that asks for an end begins the grace, the second ends it.
func (j *job) signal(sig syscall.Signal) {
	switch sig {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		j.asked++
		if j.cancel == nil && len(j.failed) == 0 {
			j.cancel = &Outcome{Kind: Cancelled, Rank: -1, Signal: sig}
		}
		if j.asked > 1 {
			j.stop(0)
			return
		}
		j.forward(sig)
		j.stopped = true
		for _, l := range j.links {
			l.send(cmdWindDown, wire.AppendI64(nil, j.spec.Grace.Milliseconds()))
		}
		j.hard = time.After(j.spec.Grace + 2*time.Second)
	default:
		j.forward(sig)
	}
}

func (j *job) forward(sig syscall.Signal) {
	b := wire.AppendI64(wire.AppendI64(nil, -1), int64(sig))
	for _, l := range j.links {
		l.send(cmdSignal, b)
	}
}

// lostLink handles the end of an agent's connection.
func (j *job) lostLink(e linkEnd) {
	if e.l.done {
		return
	}
	if e.err != nil && j.cancel == nil {
		j.hostLost(e.l, e.l.explain(e.err))
	}
}

// hostLost ends the job, or goes on without the host.
func (j *job) hostLost(l *link, reason string) {
	if j.outliveHost(l, reason) {
		return
	}
	for _, s := range j.seats {
		if s.Host == l.index && (j.alive[s.Rank] || !l.planned) {
			j.server.Exited(s.Rank, l.name, reason)
		}
	}
	j.fail(Outcome{Kind: LostHost, Rank: -1, Host: l.name, Code: ExitHost, Last: fmt.Sprintf("lost host %s: %s%s", l.name, reason, j.whyNot(l))})
}

// pings asks remote agents for a sign of life and gives up on those that give none.
func (j *job) pings() {
	j.late()
	j.askOn()
	j.house()
	if j.stopped && j.ending.due(time.Now()) {
		j.event(&Delay{j.awaitedEnds()})
	}
	for _, l := range j.links {
		if l.local || l.ended || l.heard.IsZero() {
			continue
		}
		l.send(cmdPing, nil)
		if quiet := time.Since(l.heard); quiet > j.spec.Silence && !l.mute {
			l.mute = true
			l.cause = fmt.Sprintf("silent for %v: look whether it is up and the network to it works", j.spec.Silence)
			l.kill()
		}
	}
}

// outcome picks the failure that was there first: one that is no consequence of another's loss.
func (j *job) outcome() Outcome {
	for _, o := range j.failed {
		if !strings.Contains(o.Last, "lost rank ") && !strings.Contains(o.Last, "peer lost") {
			return o
		}
	}
	switch {
	case len(j.failed) > 0:
		return j.failed[0]
	case j.cancel != nil:
		return *j.cancel
	}
	return Outcome{Kind: Finished, Rank: -1}
}

// routes finds them; on one machine it is the loopback and nothing need be asked.
func (j *job) routes(ctx context.Context) ([]route, error) {
	if j.remote() {
		return j.askRoutes(ctx)
	}
	for _, name := range j.spec.Interfaces {
		if _, err := net.InterfaceByName(name); err != nil {
			return nil, fault(ExitUsage, "use network interface %s: this host has none of that name: name one of %s", name, list(interfaceNames()))
		}
	}
	port, err := freePort("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	out := make([]route, len(j.links))
	for i := range out {
		out[i] = route{addr: "127.0.0.1:" + strconv.Itoa(j.port), master: "127.0.0.1", masterPort: port}
	}
	return out, nil
}

func freePort(at string) (int, error) {
	ln, err := net.Listen("tcp", at)
	if err != nil {
		return 0, fault(ExitSystem, "find a free port: %v", err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}

func (j *job) event(e event.Event) { j.spec.Events.Emit(e) }

func decodeJSON(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read an agent's message: %w", err)
	}
	return nil
}
