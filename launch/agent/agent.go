// Package agent is the process on a host: the parent of a job's workers there. It starts them, binds them to cores,
// forwards their output, says how they ended, and ends their whole tree when the launcher is gone.
//
// It knows the launcher by the messages of [hora/launch/protocol] alone, wherever they come from, and takes no part in
// what workers say to each other.
//
// Goroutines: one owns the workers, one on a locked thread forks them, one reaps, one writes, one listens to the
// launcher, and two read the output of each worker. All but the listener, which ends with its input, are joined before
// Run returns.
package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"hora/elastic/rendezvous"
	"hora/internal/secret"
	"hora/internal/wire"
	"hora/launch/environ"
	"hora/launch/machine"
	"hora/launch/protocol"
)

// exitWait is how long an exited worker's pipes may stay open (a grandchild holds them) before its exit is reported.
const exitWait = 100 * time.Millisecond

// Config is what an agent needs of its process.
type Config struct {
	In        io.Reader // from the launcher; its end ends the workers
	Out       io.Writer // to the launcher
	Input     *os.File  // InputRank's standard input, when it was handed down; may be nil
	InputRank int
	Temp      string // where the secret's directory is made
	Home      string // where workers start when the job's directory is not there
	Getenv    func(string) string
	Root      string // of the file system where /sys and /proc tell of cores and memory; "" is the real one
	Grace     time.Duration
	Remote    bool          // say hello with this host's addresses first
	Guest     *Guest        // of an agent that has come by itself; it says hello
	Environ   []string      // below what such an agent's workers are told
	Secret    secret.Secret // the job's, where the launcher need not tell it
	// closed when whoever started such an agent is gone; nil: nobody is waited for
	Ended <-chan struct{}
	Over  func(code int, text string) // hears how the job has ended; may be nil
	// lets go of a launcher that has been silent so long and whose host is gone, if another may come; nil: none may
	Away    func(quiet time.Duration) bool
	Signals <-chan os.Signal // those that ask the agent itself to end; others are swallowed
}

// agent owns the workers of one host. All fields belong to the goroutine of Run.
type agent struct {
	cfg      Config
	out      *protocol.Writer
	forker   *forker
	events   chan any
	procs    map[int]*proc // by pid
	pipes    pipes
	live     int // workers that have not been reported as ended
	children children
	plan     *protocol.Plan
	private  private
	at       string          // where workers start
	shares   []machine.Share // by slot
	ending   ending
	orphaned bool // the launcher is gone
	swept    bool // what workers left behind has been asked to end
	oom      oomCounter
	pinged   time.Time    // when the launcher last gave a sign of life
	asking   bool         // watch is looking
	door     net.Listener // of a remote agent, until the plan comes
	claim    io.Closer    // of a remote agent, on a port for rank 0's server
	notice   notice
	store    store // of rank 0's agent
	call     call  // what workers are handed
	started  int   // workers, for the names of their results
	awaiting int   // workers whose devices are not free yet
	gone     bool  // neither the launcher nor who started the agent waits for it
	over     bool  // it has said how the job has ended
}

// proc is one worker.
type proc struct {
	rank, pid int
	name      string // HORA_PROCESS: which of all that are started as the rank
	pipes     int    // open output pipes
	exited    bool
	status    syscall.WaitStatus
	timer     *time.Timer
	halt      rendezvous.Halt // what held it when last looked at
	stopped   syscall.Signal  // the last one that has
	used      time.Duration   // of processors, when last asked what it does
	asked     time.Time       // when that was
	devices   []*os.File      // the locks on those that it has
	result    string          // the file that it may leave, "" where none is wanted or it has been passed on
	sending   bool
}

type command struct {
	kind uint8
	body []byte
}
type (
	hungUp struct{ err error }
	reaped struct {
		pid    int
		status syscall.WaitStatus
	}
)

type (
	childless struct{}
	halted    struct {
		pid int
		by  syscall.Signal
	}
	pipeEnd struct {
		p *proc
		r *os.File
	}
	passed  struct{ p *proc }
	overdue struct{ p *proc }
)

// Run runs one host's part of a job until nothing of it is left or, when the launcher is gone, until it has ended
// everything it started. An error is returned only where it could not do that.
func Run(cfg Config) error {
	if cfg.Grace <= 0 {
		cfg.Grace = 5 * time.Second
	}
	a := &agent{
		cfg: cfg, out: protocol.NewWriter(cfg.Out, nil, false), events: make(chan any, 64),
		procs: map[int]*proc{}, pipes: pipes{},
	}
	a.children.events = a.events
	unfollowed := machine.Reap()
	a.forker = newForker()
	defer a.forker.close()
	if cfg.Remote || cfg.Guest != nil {
		if err := a.greet(); err != nil {
			return err
		}
		defer a.door.Close()
		defer a.claim.Close()
	}
	if unfollowed != nil {
		a.warn("grandchildren that detach cannot be followed on this host: %v", unfollowed)
	}
	stop := make(chan struct{})
	defer close(stop)
	go a.listen(stop)
	a.own()
	a.private.remove()
	a.out.Send(protocol.SayDone, nil)
	a.awaitOver()
	return a.out.Close()
}

// greet tells the launcher this host's addresses. The port stays open until the plan comes, so that other hosts can
// try to reach it.
func (a *agent) greet() error {
	door, err := machine.Listen(context.Background(), ":0")
	if err != nil {
		return fmt.Errorf("find a free port: %w", err)
	}
	a.door = door
	port, claim, err := machine.ClaimPort()
	if err != nil {
		return err
	}
	a.claim = claim
	g := protocol.Greeting{
		Version: protocol.Version, Addrs: machine.Addresses(),
		Port: door.Addr().(*net.TCPAddr).Port, Master: port,
	}
	a.cfg.Guest.introduce(&g, a.cfg.Environ)
	a.out.SendJSON(protocol.SayHello, g)
	return nil
}

// watch looks after the launcher's host while no ping comes. A launcher that is stopped still has a kernel that accepts
// connections; a host that is cut off has not, and its workers end as if the launcher had ended.
func (a *agent) watch() {
	silence := time.Duration(a.plan.Silence) * time.Millisecond
	if silence == 0 || a.orphaned || a.asking || time.Since(a.pinged) < silence {
		return
	}
	addr := a.plan.Addr
	if host, _, err := net.SplitHostPort(addr); err == nil && (a.cfg.Remote || a.cfg.Guest != nil) &&
		net.ParseIP(host).IsLoopback() {
		// The near end of a tunnel answers whatever is behind it.
		if time.Since(a.pinged) >= 3*silence {
			a.cutOff()
		}
		return
	}
	a.asking = true
	go func() {
		c, err := net.DialTimeout("tcp", addr, silence)
		if err == nil {
			c.Close()
		}
		a.events <- looked{err == nil}
	}()
}

// cutOff ends the workers of an agent that cannot reach its launcher's host, unless another launcher may come.
func (a *agent) cutOff() {
	if a.cfg.Away != nil && a.cfg.Away(time.Duration(a.plan.Silence)*time.Millisecond) {
		a.pinged = time.Now()
		return
	}
	a.lament("the launcher's host cannot be reached any more")
	a.orphaned = true
	a.ending.stop(a.grace())
}

// looked is what watch found.
type looked struct{ there bool }

// listen passes the launcher's messages on. It ends with the process's input, so nobody waits for it.
func (a *agent) listen(stop chan struct{}) {
	post := func(e any) bool {
		select {
		case a.events <- e:
			return true
		case <-stop:
			return false
		}
	}
	for {
		kind, body, err := wire.ReadMessage(a.cfg.In, nil, protocol.Limit)
		if err != nil {
			post(hungUp{err})
			return
		}
		if !post(command{kind, body}) {
			return
		}
	}
}

// own runs until the job's end on this host.
func (a *agent) own() {
	pulse := time.NewTicker(time.Second)
	defer pulse.Stop()
	for {
		select {
		case <-pulse.C:
			if a.plan != nil {
				a.watch()
				a.lookAfter()
				if a.notice.on != "" && !a.notice.told && !a.orphaned && !a.ending.stopping {
					a.notice.look(a.out, a.inquire)
				}
				a.lookAtStore(false)
			}
		case e := <-a.events:
			switch e := e.(type) {
			case looked:
				a.asking = false
				if !e.there && time.Since(a.pinged) >= time.Duration(a.plan.Silence)*time.Millisecond {
					a.cutOff()
				}
			case command:
				a.obey(e)
			case hungUp:
				a.lament("the launcher has ended without a word")
				a.gone, a.orphaned = true, true
				a.ending.stop(a.grace())
			case passed:
				e.p.result, e.p.sending = "", false
				a.report(e.p)
			case reaped:
				a.reaped(e)
			case halted:
				if p := a.procs[e.pid]; p != nil {
					p.stopped = e.by
				}
			case childless:
				a.children.none()
			case pipeEnd:
				delete(a.pipes, e.r)
				e.p.pipes--
				a.report(e.p)
			case overdue:
				e.p.pipes = 0
				a.report(e.p)
			case later:
				if a.awaiting--; !a.ending.stopping && !a.orphaned {
					a.startWorker(e.w, e.since)
				}
			}
		case sig := <-a.cfg.Signals:
			if sig == syscall.SIGTERM && a.plan != nil && a.plan.Hold && !a.notice.told && !a.orphaned {
				a.notice.tell(a.out, "its agent was asked to end (SIGTERM)")
			} else if asksToEnd(sig) {
				a.ending.stop(a.grace())
			}
		case <-a.cfg.Ended:
			a.cfg.Ended, a.gone = nil, true
			if !a.ending.stopping { // else it may be one of those that have been ended
				a.out.Send(protocol.SayOrphan, nil)
			}
			a.ending.stop(a.grace())
		case <-a.ending.deadline:
			a.ending.kill()
		}
		if a.finished() {
			return
		}
	}
}

func asksToEnd(sig os.Signal) bool {
	return sig == syscall.SIGTERM || sig == syscall.SIGINT || sig == syscall.SIGQUIT
}

// finished says whether nothing is left; it ends what workers have left behind.
func (a *agent) finished() bool {
	ends := a.orphaned || a.ending.stopping
	if a.live > 0 || !ends && (a.plan == nil || a.plan.Hold || a.call.left > 0 || a.awaiting > 0) {
		return false
	}
	if a.children.left && !a.swept {
		a.swept = true
		a.ending.stop(exitWait)
	}
	return !a.children.left && (a.orphaned || a.pipes.drained())
}

func (a *agent) obey(c command) {
	d := wire.NewDecoder(c.body)
	switch c.kind {
	case protocol.CmdSecret:
		a.private.secret = string(c.body)
	case protocol.CmdOver:
		code, text := d.Int(0, 255), d.String(protocol.Limit)
		if d.Done() == nil && a.cfg.Over != nil {
			a.cfg.Over(code, text)
		}
		if a.over = true; a.live > 0 || a.children.left {
			a.ending.stop(a.grace())
		}
		a.ending.stopping = true
	case protocol.CmdCall:
		a.callPart(c.body)
	case protocol.CmdPlan:
		p := protocol.Plan{Call: -1}
		if err := json.Unmarshal(c.body, &p); err != nil {
			a.fail(protocol.ExitBug, fmt.Sprintf("read plan: %v", err))
			return
		}
		if p.Itself {
			self, err := os.Executable()
			if err != nil {
				a.fail(protocol.ExitSystem, fmt.Sprintf("find hora's own file on %s: %v", p.Host, err))
				return
			}
			p.Command = append([]string{self}, p.Command...)
		}
		if p.Own {
			p.Environ = environ.Merge(a.cfg.Environ, p.Environ)
		}
		a.plan, a.pinged, a.notice.on = &p, time.Now(), p.DrainOn
		if a.door != nil {
			a.door.Close()
		}
		a.start()
	case protocol.CmdSignal:
		rank, sig := d.Int(-1, 1<<30), syscall.Signal(d.Int(1, 64))
		if d.Done() == nil {
			a.signal(rank, sig)
		}
	case protocol.CmdStop:
		ms := d.Int(0, 1<<30)
		if d.Done() == nil {
			a.ending.stop(time.Duration(ms) * time.Millisecond)
		}
	case protocol.CmdWindDown:
		ms := d.Int(0, 1<<30)
		if d.Done() == nil {
			a.ending.limit(time.Duration(ms) * time.Millisecond)
		}
	case protocol.CmdPing:
		a.pinged = time.Now()
		a.out.Send(protocol.SayPong, nil)
	case protocol.CmdStart:
		var w protocol.Worker
		if err := json.Unmarshal(c.body, &w); err == nil && a.plan != nil && !a.ending.stopping {
			a.startWorker(w, time.Now())
		}
	case protocol.CmdDoing:
		a.out.SendJSON(protocol.SayDoing, a.doings())
	case protocol.CmdProbe:
		var addrs []string
		if json.Unmarshal(c.body, &addrs) == nil {
			go func() { a.out.SendJSON(protocol.SayProbed, machine.Reachable(addrs, time.Second)) }()
		}
	}
}

// fail reports what keeps this host from doing its part, and names it: its ranks are started alike. The launcher then
// stops the job.
func (a *agent) fail(code int, text string) {
	a.out.Send(protocol.SayFailed, wire.AppendString(wire.AppendI64(nil, int64(code)), text))
	a.ending.stop(exitWait)
}

func (a *agent) warn(format string, v ...any) {
	a.out.Send(protocol.SayWarning, fmt.Appendf(nil, format, v...))
}

func (a *agent) reaped(e reaped) {
	if e.pid == a.notice.inquiry {
		a.notice.answered(a.out, e.status)
		return
	}
	p := a.procs[e.pid]
	if p == nil || p.exited {
		return // an adopted grandchild
	}
	p.exited, p.status = true, e.status
	a.lookAtStore(true)
	p.timer = time.AfterFunc(exitWait, func() { a.events <- overdue{p} })
	a.report(p)
}

// report tells of a worker's end once its output is through.
func (a *agent) report(p *proc) {
	if !p.exited || p.pipes > 0 || a.procs[p.pid] != p {
		return
	}
	if p.result != "" {
		a.passResult(p)
		return
	}
	p.timer.Stop()
	delete(a.procs, p.pid)
	release(p.devices)
	a.live--
	code, sig, oom := p.status.ExitStatus(), 0, false
	if p.status.Signaled() {
		code, sig = 0, int(p.status.Signal())
	}
	// the latter is a shell's word for its child
	if sig == int(syscall.SIGKILL) || code == protocol.ExitSignal+int(syscall.SIGKILL) {
		oom = a.oom.ended(p.pid, sig == 0)
	}
	b := wire.AppendI64(nil, int64(p.rank))
	b = wire.AppendI64(b, int64(code))
	b = wire.AppendI64(b, int64(sig))
	a.out.Send(protocol.SayExited, wire.AppendString(wire.AppendBool(b, oom), p.name))
}

func (a *agent) lookAtStore(end bool) {
	if a.store.look(end) {
		a.out.Send(protocol.SayServed, nil)
	}
}

func (a *agent) signal(rank int, sig syscall.Signal) {
	for _, p := range a.procs {
		if (rank < 0 || p.rank == rank) && !p.exited {
			syscall.Kill(-p.pid, sig)
		}
	}
}

// grace returns the time between TERM and KILL.
func (a *agent) grace() time.Duration {
	if a.plan != nil && a.plan.Grace > 0 {
		return time.Duration(a.plan.Grace) * time.Millisecond
	}
	return a.cfg.Grace
}
