package launch

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hora/elastic"
)

const (
	discoverEvery = time.Second      // between two answers of a discovery
	discoverLimit = 10 * time.Second // for one answer
	manyRanks     = 1 << 14          // of a job whose size is not bounded
)

// Discovery finds the hosts at hand while a job runs. Spec.NP is then how many slots it waits for before it starts.
type Discovery struct {
	// Find lists them, first the ones to fill first. Its first failure ends the job, later ones are passed over.
	Find func(ctx context.Context) ([]Host, error)
	// Wait is how long to wait for enough slots, at the start and after losses; 0 means 10 minutes.
	Wait time.Duration
	// A place where a worker failed is tried again after a pause from CoolMin, which doubles, to CoolMax; 0 is never.
	CoolMin, CoolMax time.Duration
}

// Hosts is news of a discovery.
type Hosts struct{ Hosts []Host }

func (e *Hosts) String() string {
	names := make([]string, len(e.Hosts))
	for i, h := range e.Hosts {
		names[i] = fmt.Sprintf("%s:%d", h.Name, h.Slots)
	}
	return "hosts at hand: " + strings.Join(names, ",")
}

// Grown says that a worker joins a running job.
type Grown struct {
	Rank int
	Host string
}

func (e *Grown) String() string { return fmt.Sprintf("a new worker starts on %s", e.Host) }

// Script is a shell command that lists hosts, Horovod's contract: lines "host:slots" or "host" on standard output, exit
// code 0.
type Script struct {
	Command string
	Slots   int // of hosts whose line names none; 0 makes such a line an error
	Environ []string
	Limit   time.Duration // for one answer; 0 means 10 s
}

// ScriptHosts is the Find of such a command.
func ScriptHosts(command string, slots int, environ []string) func(context.Context) ([]Host, error) {
	return (&Script{Command: command, Slots: slots, Environ: environ}).Find
}

// Find asks it. What it started is ended with it.
func (s *Script) Find(ctx context.Context) ([]Host, error) {
	limit := s.Limit
	if limit <= 0 {
		limit = discoverLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out bytes.Buffer
	errs := &cappedText{}
	cmd := exec.CommandContext(ctx, "sh", "-c", s.Command)
	cmd.Env, cmd.Stdout, cmd.Stderr = s.Environ, &out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, fault(ExitUsage, "ask %s for hosts: no answer in %v: make it print what it knows at once", s.Command, limit)
	}
	if err != nil {
		said := strings.TrimSpace(errs.String())
		if at := strings.LastIndexByte(said, '\n'); at >= 0 {
			said = said[at+1:]
		}
		if said != "" {
			said = " (" + said + ")"
		}
		return nil, fault(ExitUsage, "ask %s for hosts: %v%s: run it by hand and correct it", s.Command, err, said)
	}
	return parseDiscovered(s.Command, out.String(), s.Slots)
}

// parseDiscovered reads such lines. A host without slots is not at hand.
func parseDiscovered(command, text string, slots int) ([]Host, error) {
	var hosts []Host
	line := 0
	bad := func(why string) ([]Host, error) {
		return nil, fault(ExitUsage, "ask %s for hosts: line %d: %s: print lines such as server1:4", command, line, why)
	}
	for raw := range strings.Lines(text) {
		line++
		raw = strings.TrimSpace(raw)
		if raw == "" {
			continue
		}
		h := Host{Name: raw, Slots: slots}
		if i := strings.LastIndexByte(raw, ':'); i >= 0 {
			n, err := strconv.Atoi(raw[i+1:])
			if err != nil || n < 0 {
				return bad(strconv.Quote(raw) + " has no number of slots after the colon")
			}
			h.Name, h.Slots = raw[:i], n
		} else if slots == 0 {
			return bad(strconv.Quote(raw) + " names no slots, and --slots-per-host is not given")
		}
		if why := checkHost(h.Name); why != "" {
			return bad(why)
		}
		for _, o := range hosts {
			if o.Name == h.Name {
				return bad("host " + h.Name + " is there twice")
			}
		}
		if h.Slots > 0 {
			hosts = append(hosts, h)
		}
	}
	return hosts, nil
}

// discovery is what a job with one remembers. It belongs to the goroutine of Run, but for find.
type discovery struct {
	*Discovery
	hosts   []Host
	black   blacklist
	at      map[int]map[int]int // by host index and slot: the rank of the worker there
	closing bool                // a worker has done its work: nobody is started any more
	failing bool                // the last answer was an error
}

// discovered is one answer.
type discovered struct {
	hosts []Host
	err   error
}

// discover waits for enough slots, and makes the spec one of as many ranks as there may be at first.
func (j *job) discover(ctx context.Context) error {
	s, d := j.spec, &discovery{Discovery: j.spec.Discovery, at: map[int]map[int]int{}}
	d.black = blacklist{min: d.CoolMin, max: d.CoolMax}
	if d.Wait <= 0 {
		d.Wait = 10 * time.Minute
	}
	if s.Max == 0 {
		s.Max = manyRanks
	}
	if s.Min == 0 {
		s.Min = s.NP
	}
	s.OnLoss = elastic.Continue
	limit := time.NewTimer(d.Wait)
	defer limit.Stop()
	tick := time.NewTicker(discoverEvery)
	defer tick.Stop()
	var patience patience
	for first := true; ; first = false {
		hosts, err := d.Find(ctx)
		if now := time.Now(); patience.due(now) {
			j.event(&Delay{fmt.Sprintf("waiting for hosts: there are %d of %d slots; %v of %v are over", Slots(hosts), s.NP, now.Sub(patience.began).Round(time.Second), d.Wait)})
		}
		switch {
		case err != nil && first:
			return err
		case err == nil && Slots(hosts) >= s.NP:
			s.NP = min(Slots(hosts), s.Max)
			d.hosts, j.disc = hosts, d
			s.Hosts = hosts
			j.hosts = hosts
			return nil
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return fault(ExitTimeout, "wait for hosts: %d slots were found in %v, and -np is %d: add hosts, or lower -np", Slots(hosts), d.Wait, s.NP)
		case sig := <-s.Signals:
			if err := j.early(sig, "while hosts were awaited"); err != nil {
				return err
			}
		case <-ctx.Done():
			return fault(1, "stopped while hosts were awaited")
		}
	}
}

// watchHosts asks until the job is over.
func (j *job) watchHosts(ctx context.Context) {
	tick := time.NewTicker(discoverEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		hosts, err := j.spec.Discovery.Find(ctx)
		select {
		case j.events <- discovered{hosts, err}:
		case <-ctx.Done():
			return
		}
	}
}

// seated notes where the first ranks are.
func (d *discovery) seated(seats []Seat) {
	for _, s := range seats {
		d.take(s)
	}
}

func (d *discovery) take(s Seat) {
	if d.at[s.Host] == nil {
		d.at[s.Host] = map[int]int{}
	}
	d.at[s.Host][s.LocalRank] = s.Rank
}

// holds says whether a rank's worker is the one on that host.
func (d *discovery) holds(host int, s Seat) bool {
	r, ok := d.at[host][s.LocalRank]
	return ok && r == s.Rank && s.Host == host
}

func (d *discovery) free(s Seat) {
	delete(d.at[s.Host], s.LocalRank)
}

// found takes an answer in: workers on what is gone are asked to leave, and what is new is filled.
func (j *job) found(e discovered) {
	d := j.disc
	if e.err != nil {
		if !d.failing {
			j.event(&Warning{Text: e.err.Error() + "; going on with the hosts known so far"})
		}
		d.failing = true
	} else {
		d.failing = false
		if fmt.Sprint(e.hosts) != fmt.Sprint(d.hosts) {
			j.event(&Hosts{e.hosts})
		}
		d.hosts = e.hosts
		for name := range j.off {
			if !slices.ContainsFunc(d.hosts, func(h Host) bool { return h.Name == name }) {
				delete(j.off, name) // what comes back under its name is another
			}
		}
		j.drainGone()
	}
	j.fill()
	j.tooFew()
}

// drainGone asks workers to leave whose slot, or whose whole host, is not to be used any more. Where a failure took the
// host away, its other workers stay until the job has enough without them.
func (j *job) drainGone() {
	d := j.disc
	now := time.Now()
	for _, l := range j.links {
		slots := 0
		for _, h := range d.hosts {
			if h.Name == l.name {
				slots = h.Slots
			}
		}
		banned := j.spec.ByHost && d.black.bans(l.name, -1, now) && j.left-len(d.at[l.index]) >= max(j.spec.Min, 1)
		for slot, rank := range d.at[l.index] {
			switch {
			case !j.alive[rank]:
			case banned:
				j.leave.why[rank] = "a worker failed on " + l.name
			case slot >= slots:
				j.leave.why[rank] = fmt.Sprintf("%s has %d slots from now on", l.name, slots)
			}
		}
	}
	j.askOn()
}

// fill starts workers on free slots.
func (j *job) fill() {
	d := j.disc
	now := time.Now()
	for _, h := range d.hosts {
		for slot := range h.Slots {
			if j.stopped || d.closing || j.complete.Load() || j.left >= j.spec.Max {
				return
			}
			if d.black.bans(h.Name, slot, now) || j.off[h.Name] != "" {
				continue
			}
			l := j.hostLink(h)
			if l == nil {
				break // it cannot be reached
			}
			if _, busy := d.at[l.index][slot]; !busy {
				j.grow(l, slot)
			}
		}
	}
}

// hostLink is the agent's link of a host, started when there is none.
func (j *job) hostLink(h Host) *link {
	for _, l := range j.links {
		if l.name == h.Name && !l.ended && !l.done && l.cause == "" {
			return l
		}
	}
	l := &link{index: len(j.links), name: h.Name, born: time.Now()}
	l.local = j.isLocal(l.name)
	if err := j.startAgent(l); err != nil {
		j.shun(h.Name, err.Error())
		return nil
	}
	j.hosts = append(j.hosts[:l.index:l.index], h)
	j.links = append(j.links, l)
	j.rts = append(j.rts, route{})
	l.reader.Add(1)
	go j.read(l)
	if l.local {
		j.rts[l.index] = route{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(j.port)), master: j.rts[0].master, masterPort: j.rts[0].masterPort}
		j.sendPlan(l, nil, h.Slots)
	}
	return l
}

// grow starts a worker on a slot, as the lowest rank that nobody has.
func (j *job) grow(l *link, slot int) {
	taken := map[int]bool{}
	for _, slots := range j.disc.at {
		for _, r := range slots {
			taken[r] = true
		}
	}
	s := Seat{Rank: 0, LocalRank: slot, LocalSize: max(len(j.disc.at[l.index]), slot) + 1, CrossRank: l.index, CrossSize: len(j.links), Host: l.index}
	for taken[s.Rank] {
		s.Rank++
	}
	for s.Rank >= len(j.seats) {
		j.seats, j.alive = append(j.seats, Seat{}), append(j.alive, false)
	}
	if err := j.out.grow(len(j.seats)); err != nil {
		j.stopFor(Outcome{Kind: Trouble, Rank: -1, Code: ExitLogs, Last: err.Error()})
		return
	}
	j.seats[s.Rank] = s
	j.disc.take(s)
	j.left++
	if l.planned {
		j.startOn(l, s)
	} else {
		l.waiting = append(l.waiting, s)
	}
}

func (j *job) startOn(l *link, s Seat) {
	j.event(&Grown{Rank: s.Rank, Host: l.name})
	l.sendJSON(cmdStart, j.worker(s, j.epoch.Load()+1))
}

// lateGreeting asks a host that came later which of our addresses it reaches.
func (j *job) lateGreeting(e greeted) {
	if e.g.Version != protocolVersion {
		e.l.cause = fmt.Sprintf("its hora speaks version %q and this one %q: install the same hora there, or leave --remote-hora away", e.g.Version, protocolVersion)
		e.l.kill()
		return
	}
	e.l.heard, e.l.addrs = time.Now(), e.g.Addrs
	e.l.asked = withPort(ownAddrs(j.spec.Interfaces), j.port)
	e.l.sendJSON(cmdProbe, e.l.asked)
}

// lateProbe starts what waits on such a host.
func (j *job) lateProbe(e probed) {
	l := e.l
	for i, ok := range e.ok {
		if !ok || i >= len(l.asked) {
			continue
		}
		r := route{addr: l.asked[i], master: j.rts[0].master, masterPort: j.rts[0].masterPort}
		if r.master == "127.0.0.1" {
			r.master, _, _ = net.SplitHostPort(r.addr) // until now all were on this host
		}
		j.rts[l.index] = r
		j.sendPlan(l, nil, j.hosts[l.index].Slots)
		for _, s := range l.waiting {
			delete(j.again.planned, s.Rank)
			j.startOn(l, s)
		}
		l.waiting = nil
		return
	}
	l.cause = "it reaches none of this host's addresses (" + strings.Join(l.asked, " ") + "): open the ports between them"
	l.kill()
}

// late gives up hosts that do not answer in time.
func (j *job) late() {
	for _, l := range j.links {
		if !l.planned && !l.ended && !l.born.IsZero() && time.Since(l.born) > j.spec.Start && l.cause == "" {
			l.cause = fmt.Sprintf("no answer in %v: look whether it is up", j.spec.Start)
			l.kill()
		}
	}
}

// ban keeps workers away from a place for a while.
func (j *job) ban(host string, slot int, why string) {
	d := j.disc
	where := spot{host, -1}
	name := host
	if slot >= 0 && !j.spec.ByHost {
		where.slot = slot
		name = fmt.Sprintf("slot %d of %s", slot, host)
	}
	text := "it is not used any more"
	if pause := d.black.add(where, time.Now()); pause > 0 {
		text = fmt.Sprintf("it is tried again in %v", pause.Round(time.Second/10))
	}
	j.event(&Warning{Host: host, Text: fmt.Sprintf("%s: %s: %s", name, why, text)})
}

// outlive says whether the job goes on after a worker's failure, and starts another where there is room.
func (j *job) outlive(o Outcome) bool {
	d := j.disc
	s := j.seats[o.Rank]
	d.free(s)
	if o.Kind != Drained {
		if j.spec.Restarts > 0 && j.again.used >= j.spec.Restarts {
			return false
		}
		j.again.used++
		j.ban(o.Host, s.LocalRank, fmt.Sprintf("rank %d: %s", o.Rank, o.Cause()))
	}
	if j.left == 0 {
		return false // nobody is left who has the state
	}
	if left := j.left; o.Kind != Drained {
		j.event(&Shrunk{Rank: o.Rank, Host: o.Host, Cause: o.Cause(), Left: left})
		j.drainGone()
	}
	j.fill()
	j.tooFew()
	return true
}

// outliveHost does the same for all workers of a host whose agent is gone.
func (j *job) outliveHost(l *link, reason string) bool {
	d := j.disc
	if j.stopped || j.complete.Load() || !j.spec.elastic() {
		return false
	}
	if d == nil {
		return j.moveOff(l, reason)
	}
	for _, rank := range d.at[l.index] {
		j.left--
		if j.alive[rank] {
			j.alive[rank] = false
			j.server.Exited(rank, l.name, reason)
			j.event(&Exited{Rank: rank, Host: l.name, Cause: reason})
		}
		delete(j.begun, rank)
		delete(j.condemn, rank)
		j.hasLeft(rank)
	}
	delete(d.at, l.index)
	l.waiting = nil
	if j.left == 0 {
		return false
	}
	j.ban(l.name, -1, reason) // a host's loss costs no restart
	j.fill()
	j.tooFew()
	return true
}
