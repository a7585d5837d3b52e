package launch

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"hora/elastic"
	"hora/event"
	jobs "hora/job"
	"hora/launch/logs"
	"hora/launch/protocol"
)

const (
	discoverEvery = time.Second      // between two answers of a discovery
	discoverLimit = 10 * time.Second // for one answer
	manyRanks     = 1 << 14          // of a job whose size is not bounded
)

// discovery finds the hosts at hand while a job runs. NP is then how many slots it waits for before it starts.
type discovery struct {
	// Find lists them, first the ones to fill first. Its first failure ends the job, later ones are passed over.
	Find func(ctx context.Context) ([]Host, error)
	// Changed, when set, has Find asked at once; without it, and at most, it is asked once a second.
	Changed <-chan struct{}
	// Wait is how long to wait for enough slots, at the start and after losses; 0 means 10 minutes.
	Wait time.Duration
	// A place where a worker failed is tried again after a pause from CoolMin, which doubles, to CoolMax; 0 is never.
	CoolMin, CoolMax time.Duration
	Script           *Script // whose Find it is, if a command's: another launcher can ask that too
}

// Script is a shell command that lists hosts, Horovod's contract: lines "host:slots" or "host" on standard output, exit
// code 0.
type Script struct {
	Command string
	Slots   int // of hosts whose line names none; 0 makes such a line an error
	Environ []string
	Limit   time.Duration // for one answer; 0 means 10 s
	Dir     string        // "" is the launcher's
}

// ScriptHosts returns the Find of such a command.
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
	errs := &logs.Head{}
	cmd := exec.CommandContext(ctx, "sh", "-c", s.Command)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = s.Environ, s.Dir, &out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, fault(ExitUsage, "ask %s for hosts: no answer in %v: make it print what it knows at once", protocol.CommandName(s.Command), limit)
	}
	if err != nil {
		said := strings.TrimSpace(errs.String())
		if at := strings.LastIndexByte(said, '\n'); at >= 0 {
			said = said[at+1:]
		}
		if said != "" {
			said = " (" + event.OneLine(said) + ")"
		}
		return nil, fault(ExitUsage, "ask %s for hosts: %v%s: run it by hand and correct it", protocol.CommandName(s.Command), err, said)
	}
	return parseDiscovered(s.Command, out.String(), s.Slots)
}

// parseDiscovered reads such lines. A host without slots is not at hand.
func parseDiscovered(command, text string, slots int) ([]Host, error) {
	var hosts []Host
	line := 0
	bad := func(why string) ([]Host, error) {
		return nil, fault(ExitUsage, "ask %s for hosts: line %d: %s: print lines such as server1:4", protocol.CommandName(command), line, why)
	}
	for raw := range strings.Lines(text) {
		line++
		raw = strings.TrimSpace(raw)
		switch raw {
		case "":
			continue
		case jobs.EndLine:
			return nil, elastic.ErrEnd
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

// discovered is one answer.
type discovered struct {
	hosts []Host
	err   error
}

// news returns what the roster hears of it.
func (e *discovered) news() elastic.News {
	if errors.Is(e.err, elastic.ErrEnd) {
		return elastic.Listing{End: true}
	}
	if e.err != nil {
		return elastic.Unlisted{Cause: e.err.Error()}
	}
	return elastic.Listing{Hosts: e.hosts}
}

// sizes fills in what a job with a discovery leaves open.
func (s *settings) sizes() {
	s.wanted = s.NP
	if s.MaxNP == 0 {
		s.MaxNP = manyRanks
	}
	if s.MinNP == 0 {
		s.MinNP = s.NP
	}
	s.OnLoss = elastic.Continue
}

// discover waits for enough slots, and makes the spec one of as many ranks as there may be at first.
func (s *supply) discover(ctx context.Context) error {
	tick := time.NewTicker(discoverEvery)
	defer tick.Stop()
	for {
		var e discovered
		e.hosts, e.err = s.spec.Discovery.Find(ctx)
		for news := e.news(); ; news = (elastic.Tick{}) {
			end := s.step(news)
			switch {
			case end != nil && end.Late:
				return fault(ExitTimeout, "%s", end.Text)
			case end != nil && e.err != nil:
				return e.err
			case end != nil:
				return fault(ExitUsage, "%s", end.Text)
			case s.roster.Left() > 0:
				s.spec.listed = time.Since(s.record.began)
				return nil
			}
			select {
			case <-s.alarm():
				continue
			case <-tick.C:
			case sig := <-s.spec.Signals:
				if err := s.spec.early(sig, "while hosts were awaited"); err != nil {
					return err
				}
			case <-ctx.Done():
				return fault(1, "stopped while hosts were awaited")
			}
			break
		}
	}
}

// follow hears of the job's discovery, if it has one, until what it returns is called.
func (s *supply) follow(ctx context.Context, mail *mailbox) (stop func()) {
	d := s.spec.Discovery
	if d == nil {
		return func() {}
	}
	watching, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { d.watch(watching, s.spec.Reach, mail.events) })
	return func() {
		cancel()
		watch.Wait()
	}
}

// watch asks until the job is over. Names that are new are looked up here: a name server may be slow, or away.
func (d *discovery) watch(ctx context.Context, r Reach, events chan<- any) {
	tick := time.NewTicker(discoverEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-d.Changed:
		case <-ctx.Done():
			return
		}
		var e discovered
		e.hosts, e.err = d.Find(ctx)
		names := make([]string, len(e.hosts))
		for i, h := range e.hosts {
			names[i] = h.Name
		}
		looking, done := context.WithTimeout(ctx, discoverLimit)
		r.Look(looking, names)
		done()
		select {
		case events <- e:
		case <-ctx.Done():
			return
		}
	}
}
