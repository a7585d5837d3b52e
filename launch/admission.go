package launch

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"hora/event"
	"hora/launch/environ"
	"hora/launch/protocol"
)

// admission is how a host comes into a job, at first or while it runs: what addresses it reaches, what its agent is
// told of the job, and what each worker there is started with.
type admission struct {
	spec     *settings
	crew     *crew
	links    *links
	meeting  *meeting
	record   *record
	mail     *mailbox
	routes   []route // by host
	callSize int64   // of the call; -1 where there is none
}

// sendPlans tells every agent which workers to start, when the hosts' routes are known.
func (a *admission) sendPlans(ctx context.Context) error {
	s := &survey{
		spec: a.spec, links: a.links.all, events: a.mail.events, port: a.meeting.port, door: a.meeting.door,
		early: a.spec.early,
	}
	routes, err := s.routes(ctx)
	if err != nil {
		return err
	}
	a.routes = routes
	for h, l := range a.links.all {
		var workers []protocol.Worker
		for _, s := range a.crew.seats {
			if s.Host == h {
				a.meeting.anew(s.Rank)
				workers = append(workers, a.worker(s, 1))
			}
		}
		a.sendPlan(l, workers)
	}
	return nil
}

// sendPlan tells one agent.
func (a *admission) sendPlan(l *link, workers []protocol.Worker) {
	spec := a.spec
	p := protocol.Plan{
		Job: spec.Name, Host: l.called, Name: l.name, Dir: spec.Dir, Command: spec.Command, Itself: spec.Itself,
		Bind:    spec.Bind,
		Environ: environ.Merge(l.way.Environ(spec.Environ), nil), Workers: workers, Total: len(workers),
		Hold:    spec.elastic(),
		DrainOn: spec.DrainOn, LogDir: spec.LogDir, Own: l.host.Own, Grace: spec.Grace.Milliseconds(),
		Results: spec.Results != "", Apart: spec.Apart,
	}
	if p.LogDir != "" && !filepath.IsAbs(p.LogDir) {
		p.LogDir = filepath.Join(spec.Dir, p.LogDir)
	}
	p.Addr, p.Silence = a.routes[l.index].addr, l.host.Silence.Milliseconds()
	if spec.Discovery == nil && l.born.IsZero() {
		p.First, p.Total = a.mates(l)
	} else { // workers may be added later
		p.First, p.Total = a.bedsBefore(l)
		p.Total = max(p.Total, p.First+a.crew.hosts[l.index].Slots, p.First+len(workers))
	}
	if !l.host.Knows {
		l.send(protocol.CmdSecret, []byte(spec.Secret.Hex()))
	}
	p.Call = a.callSize
	l.sendJSON(protocol.CmdPlan, p)
	if p.Call > 0 && !l.muted {
		go l.sendCall(spec.Call, 0, p.Call, a.mail.post)
	}
}

// worker returns the process of a seat, for the epoch that it is started for.
func (a *admission) worker(s Seat, epoch uint64) protocol.Worker {
	r, spec := a.routes[s.Host], a.spec
	a.crew.begun[s.Rank] = time.Now()
	its := variables{
		seat: s, size: len(a.crew.seats), host: a.links.all[s.Host].called, job: spec.Name, epoch: epoch, addr: r.addr,
		masterHost: r.master, masterPort: r.masterPort, elastic: spec.elastic(), join: spec.Join,
		progress:   spec.Progress,
		interfaces: spec.Interfaces, listen: r.listen, gpus: spec.GPUsPerRank,
	}
	if its.elastic && environ.Lookup(spec.Environ, "HORA_ELASTIC_TIMEOUT") == "" {
		its.wait = spec.ElasticTimeout
	}
	if l := a.links.all[s.Host]; its.gpus > 0 {
		its.device, its.visible = a.firstSlot(l)+s.Slot, l.host.Devices
	}
	return protocol.Worker{
		Rank: s.Rank, Slot: s.Slot, Env: environ.Merge(its.list(), spec.Env), Process: a.crew.process(s.Rank),
	}
}

// start has a host's agent start the next process of a seat; more says that its rank is new.
func (a *admission) start(l *link, s Seat, more bool) {
	if more {
		a.record.event(&event.Grown{Rank: s.Rank, Host: l.called})
	}
	a.meeting.anew(s.Rank)
	l.sendJSON(protocol.CmdStart, a.worker(s, a.meeting.epoch.Load()+1))
}

// awaited is a worker whose host has not answered yet.
type awaited struct {
	seat Seat
	more bool // see elastic.Start
}

// probe asks a host that came later which of our addresses it reaches.
func (a *admission) probe(e greeted) {
	e.l.heard, e.l.host = time.Now(), e.host
	e.l.asked = e.l.way.Doors(a.meeting.port, a.spec.Interfaces)
	e.l.sendJSON(protocol.CmdProbe, e.l.asked)
}

// probed starts what waits on such a host.
func (a *admission) probed(e probed) {
	l := e.l
	if l.born.IsZero() || l.planned {
		return // the launcher whose job was adopted had asked
	}
	for i, ok := range e.ok {
		if !ok || i >= len(l.asked) {
			continue
		}
		r := route{addr: l.asked[i], master: a.routes[0].master, masterPort: a.routes[0].masterPort}
		if ip := net.ParseIP(r.master); ip != nil && ip.IsLoopback() {
			r.master, _, _ = net.SplitHostPort(r.addr) // until now all were on this host
		}
		if a.meeting.door != "" {
			r.listen = []string{a.meeting.door}
		}
		a.record.write(&entry{Kind: entryRoute, numbered: numbered{Link: l.index}, Route: r.kept()})
		a.admit(l, r)
		return
	}
	l.cause = "it reaches none of this host's addresses (" + strings.Join(l.asked, " ") + "): open the ports between them"
	l.kill()
}

// admit tells such a host what it is for, and starts what waits for it.
func (a *admission) admit(l *link, r route) {
	for len(a.routes) <= l.index {
		a.routes = append(a.routes, route{}) // those before it may not have answered
	}
	a.routes[l.index] = r
	a.sendPlan(l, nil)
	for _, w := range l.waiting {
		if a.crew.seats[w.seat.Rank] == w.seat {
			a.start(l, w.seat, w.more)
		}
	}
	l.waiting = nil
}

// late gives up hosts that do not answer in time.
func (a *admission) late() {
	for _, l := range a.links.all {
		if !l.planned && !l.ended && !l.born.IsZero() && time.Since(l.born) > a.spec.StartTimeout && l.cause == "" {
			l.cause = fmt.Sprintf("no answer in %v: look whether it is up", a.spec.StartTimeout)
			l.kill()
		}
	}
}
