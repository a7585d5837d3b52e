package launch

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"hora/elastic"
	"hora/internal/secret"
	"hora/internal/wire"
	jobs "hora/job"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// Adoption is a job whose launcher is gone while its agents wait for another.
type Adoption struct {
	Spec   jobs.Spec // what it was started with
	Hosts  []Host
	dir    string
	head   *head
	ledger *ledger
}

// Find looks for such a job by the folder of its state. Until Run returns nobody else can adopt it.
func Find(dir string) (*Adoption, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fault(ExitSystem, "--adopt %s: %v", dir, err)
	}
	l, err := openPast(path)
	if err != nil {
		return nil, err
	}
	h, err := l.read(path)
	if err != nil {
		l.file.Close()
		return nil, err
	}
	return &Adoption{Spec: h.Spec, Hosts: h.Hosts, dir: path, head: h, ledger: l}, nil
}

// Name returns the job's.
func (a *Adoption) Name() string { return a.head.Name }

// Run takes the job over and returns when nothing of it is left, as the function Run does. What only the first launcher
// had, the environment and the secret among it, comes from the job's state.
func (a *Adoption) Run(ctx context.Context, place Place) (Outcome, error) {
	defer a.ledger.file.Close()
	h := a.head
	spec := h.Spec
	spec.Name, spec.Dir, spec.CoordinatorState = h.Name, h.Dir, a.dir
	for _, path := range []*string{&spec.Report, &spec.LogDir} {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(h.Folder, *path)
		}
	}
	known, err := secret.Parse([]byte(h.Secret))
	if err != nil {
		return Outcome{}, fault(ExitUsage, "--adopt %s: its file launcher is damaged: %v: start the job again", a.dir, err)
	}
	place.Secret, place.Environ = known, keyed(h.Environ, place.Environ)
	place.LocalName, place.Hosts = h.LocalName, h.Hosts
	place.Grace, place.Join, place.JoinWord, place.Stdin = h.Grace, h.Join, h.JoinWord, nil
	s, err := resolve(&spec, &place)
	if err != nil {
		return Outcome{}, err
	}
	s.NP, s.Port = h.NP, h.Port
	if d := s.Discovery; d != nil && d.Script != nil {
		s.NP, s.Min, d.Script.Dir = h.Wanted, h.Min, h.Folder
	}
	return s.adopt(ctx, a)
}

// begin gives a job the roster of its beginning, with a discovery that of the answer that it began by.
func begin(j *job, h *head) {
	s := j.spec
	if s.Discovery == nil {
		j.roster = s.supply()
		return
	}
	s.sizes()
	j.roster = s.supply()
	for _, o := range j.roster.Step(h.Listed, elastic.Listing{Hosts: h.Hosts}) {
		if o, is := o.(elastic.Begin); is {
			s.NP, s.Hosts, j.hosts = o.Size, o.Hosts, o.Hosts
		}
	}
	j.ledger.listed = h.Hosts
}

// keyed returns a job's environment with the heir's agent of ssh keys: the first launcher's may have ended with it.
func keyed(environ, own []string) []string {
	keys := func(v string) bool { return strings.HasPrefix(v, "SSH_AUTH_SOCK=") }
	if i := slices.IndexFunc(own, keys); i >= 0 {
		return append(slices.DeleteFunc(slices.Clone(environ), keys), own[i])
	}
	return environ
}

// adopt runs a job that has begun.
func (s *settings) adopt(ctx context.Context, a *Adoption) (Outcome, error) {
	s.defaults()
	j := newJob(s)
	defer close(j.over)
	j.began, j.story.began, j.ledger, j.callSize = a.head.Began, a.head.Began, a.ledger, -1
	begin(j, a.head)
	var err error
	if j.seats, err = placeRanks(s.Hosts, s.NP); err != nil {
		return Outcome{}, err
	}
	j.neighbours()
	if err := j.locate(ctx); err != nil {
		return Outcome{}, err
	}
	last, can := j.reach.(reach.Lasting)
	if !can {
		return Outcome{}, fault(ExitBug, "--adopt %s: its hosts cannot be reached again", a.dir)
	}
	last.Last(reach.Last{Dir: a.dir, Secret: s.Secret, Wait: s.Adopt, Resume: true})
	j.alive = make([]bool, len(j.seats))
	if j.out, err = newOutput(s, len(j.seats)); err != nil {
		return Outcome{}, err
	}
	defer j.out.close()
	j.resuming = make(chan struct{})
	release := sync.OnceFunc(func() { close(j.resuming) })
	defer j.closeLinks()
	defer release()
	if err := j.openLinks(); err != nil {
		return Outcome{}, err
	}
	for _, r := range a.head.Routes {
		j.rts = append(j.rts, r.route())
	}
	if len(j.rts) != len(j.links) {
		return Outcome{}, fault(ExitUsage, "--adopt %s: its file launcher is damaged (%d hosts, and %d ways to them): start the job again", a.dir,
			len(j.links), len(j.rts))
	}
	for _, e := range j.ledger.past { // who came later
		var names []string
		for _, h := range e.Hosts {
			names = append(names, h.Name)
		}
		j.reach.Look(ctx, names)
	}
	relive(j)
	if err := regreet(ctx, j, a.dir); err != nil {
		return Outcome{}, err
	}
	// The agents of this launcher's own are not there yet.
	last.Last(reach.Last{Dir: a.dir, Secret: s.Secret, Wait: s.Adopt})
	if err := j.serve(ctx); err != nil {
		return Outcome{}, err
	}
	defer j.server.Close()
	if err := goOn(ctx, j); err != nil {
		return Outcome{}, err
	}
	release()
	defer follow(ctx, j)()
	return conclude(j, j.own(ctx)), nil
}

// kept returns a route as the ledger keeps it.
func (r *route) kept() *headRoute { return &headRoute{r.addr, r.master, r.masterPort, r.listen} }

func (r *headRoute) route() route {
	return route{addr: r.Addr, master: r.Master, masterPort: r.Port, listen: r.Listen}
}

// relive lives through what the ledger holds: the roster, and the orders to agents and coordinator, become what they
// were.
func relive(j *job) {
	l := j.ledger
	past := &pastOrders{}
	server := &kept{past: past}
	j.server = server
	for _, k := range j.links {
		k.muted, k.planned = true, true
		k.host = &reach.Host{Attended: true}
	}
	for rank := range j.seats {
		j.begun[rank] = j.began
	}
	l.lives.Store(true)
	for _, e := range l.past {
		if e.Kind == entryOrder {
			j.recall(past, *e.Order)
			continue
		}
		past.entry()
		l.at = e.At
		if e.Kind == entrySaid || e.Kind == entryTick || e.Kind == entryListed {
			j.size.Store(e.Size)
			j.epoch.Store(e.Epoch)
			j.complete.Store(e.Complete)
		}
		if rank, is := exitOf(e.Say, e.Body); is {
			l.exits[rank]++
			if j.drained.Delete(rank); e.Drained != nil {
				j.drained.Store(rank, *e.Drained)
			}
			if j.took.Delete(rank); e.Took {
				j.took.Store(rank, true)
			}
		}
		switch e.Kind {
		case entrySaid:
			if e.Link < len(j.links) {
				j.hear(said{l: j.links[e.Link], kind: e.Say, body: e.Body})
			}
		case entryLost:
			if e.Link < len(j.links) {
				j.links[e.Link].ended = true
				j.hostLost(j.links[e.Link], e.Text)
			}
		case entryTick:
			j.heed(elastic.Tick{})
		case entryListed:
			l.listed, l.failing = e.Hosts, e.Text != ""
			j.heed(e.news())
		case entryRoute:
			if e.Link < len(j.links) {
				admit(j, j.links[e.Link], e.Route.route())
			}
		case entryCancel:
			j.signal(syscall.Signal(e.Code))
		}
	}
	l.past = nil
	l.lives.Store(false)
	server.resume(l)
}

// regreet waits for the agents that have not ended.
func regreet(ctx context.Context, j *job, dir string) error {
	waiting := map[*link]bool{}
	for _, l := range j.links {
		waiting[l] = true
	}
	limit := time.NewTimer(j.spec.Start)
	defer limit.Stop()
	var lost []linkEnd
	for len(waiting) > 0 {
		select {
		case e := <-j.events:
			switch e := e.(type) {
			case greeted:
				e.l.host, e.l.heard = e.host, time.Now()
				delete(waiting, e.l)
			case linkEnd:
				delete(waiting, e.l)
				lost = append(lost, e)
			}
		case <-limit.C:
			return fault(ExitTimeout, "--adopt %s: the job's agents have not answered in %v: look whether they are stopped, or raise --start-timeout", dir, j.spec.Start)
		case sig := <-j.spec.Signals:
			if err := j.spec.early(sig, "while the job's agents were being reached"); err != nil {
				return err
			}
		case <-ctx.Done():
			return fault(1, "stopped while the job's agents were being reached")
		}
	}
	done := !slices.ContainsFunc(j.links, func(l *link) bool { return !l.done })
	if len(lost) == len(j.links) && !done {
		return fault(ExitHost, "--adopt %s: the job's agents are gone (%s): they wait %v for somebody who adopts the job: start it again", dir, lost[0].why.Text, j.spec.Adopt)
	}
	for _, e := range lost {
		go j.post(e)
	}
	return nil
}

// goOn tells the agents what the last launcher could not any more, once the coordinator has told again what it had.
func goOn(ctx context.Context, j *job) error {
	limit := time.NewTimer(j.spec.Start)
	defer limit.Stop()
	select {
	case <-j.lived:
	case <-limit.C:
		return fault(ExitTimeout, "the coordinator has not read its state in %v: raise --start-timeout", j.spec.Start)
	case <-ctx.Done():
		return fault(1, "stopped while the job was being taken over")
	}
	first, err := placeRanks(j.spec.Hosts, j.spec.NP) // as the first launcher's plans had it
	if err != nil {
		return err
	}
	j.story.dated(j.ledger.story)
	for rank, told := range j.past {
		// Each process ends once. One that was severed and has not ended may be the last launcher's unfinished
		// business.
		if e := told[len(told)-1]; e.named || len(told) > j.ledger.exits[rank] {
			go j.post(e)
		}
	}
	for h, l := range j.links {
		l.muted = false
		way, is := l.way.(reach.Returned)
		if !is || l.ended || l.done {
			continue
		}
		told := maps.Clone(way.Back().Starts)
		late := !l.born.IsZero() // its plan names no workers
		switch {
		case late && !l.planned:
			j.lateGreeting(greeted{l, l.host})
			continue
		case late && !way.Back().Planned:
			j.sendPlan(l, nil, j.hosts[h].Slots, j.post)
		case late:
		case !way.Back().Planned:
			var workers []protocol.Worker
			for _, s := range first {
				if s = j.seats[s.Rank]; s.Host == h && !asked(l, s.Rank) {
					workers = append(workers, j.worker(s, 1))
				}
			}
			j.sendPlan(l, workers, j.hosts[h].Slots, j.post)
		default:
			for _, s := range first {
				if s.Host != h {
					continue
				}
				told[s.Rank]-- // by the plan
			}
		}
		for _, w := range l.starts {
			if told[w.Rank]--; told[w.Rank] < 0 {
				l.sendJSON(protocol.CmdStart, w)
			}
		}
		if j.stopped {
			l.send(protocol.CmdStop, wire.AppendI64(nil, j.spec.Grace.Milliseconds()))
		}
	}
	return nil
}

// asked says whether a rank's start on a host was asked for since its plan.
func asked(l *link, rank int) bool {
	return slices.ContainsFunc(l.starts, func(w protocol.Worker) bool { return w.Rank == rank })
}

// errUnopened is why a job is not adopted for which a host's agent could not even be begun.
var errUnopened = errors.New("a host's agent could not be started")

// alone writes down that the job has come to what another launcher could not take over.
func (l *ledger) alone(why error) { l.write(&entry{Kind: entryAlone, Text: why.Error()}) }

// dealings are an agent's messages that the owner has not dealt with.
type dealings struct {
	mu   sync.Mutex // guards what follows; held for field access only
	open []uint64
	last uint64
}

// take counts a message that the owner gets.
func (d *dealings) take(n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open, d.last = append(d.open, n), n
}

// dealt says up to which message everything has been dealt with, when n has.
func (d *dealings) dealt(n uint64) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = slices.DeleteFunc(d.open, func(o uint64) bool { return o == n })
	if d.last = max(d.last, n); len(d.open) > 0 {
		return slices.Min(d.open) - 1
	}
	return d.last
}

// heardOf tells an agent that outlives its launcher what need not be told again.
func (l *link) heardOf(n uint64) {
	if n > 0 {
		l.send(protocol.CmdHeard, wire.AppendU64(nil, l.dealings.dealt(n)))
	}
}
