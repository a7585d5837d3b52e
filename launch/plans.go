package launch

import (
	"context"
	"path/filepath"
	"time"

	"hora/launch/environ"
	"hora/launch/protocol"
)

// sendPlans tells every agent which workers to start.
func (j *job) sendPlans(ctx context.Context) error {
	s := &survey{
		spec: j.spec, links: j.links, events: j.events, port: j.port, door: j.door, early: j.spec.early,
		ledger: j.ledger,
	}
	routes, err := s.routes(ctx)
	if err != nil {
		return err
	}
	j.rts = routes
	for h, l := range j.links {
		var workers []protocol.Worker
		for _, s := range j.seats {
			if s.Host == h {
				j.anew(s.Rank)
				workers = append(workers, j.worker(s, 1))
			}
		}
		j.sendPlan(l, workers, j.hosts[h].Slots, j.post)
	}
	return nil
}

// sendPlan tells one agent. slots counts where workers may be added later.
func (c *crew) sendPlan(l *link, workers []protocol.Worker, slots int, post func(any)) {
	p := protocol.Plan{
		Job: c.spec.Job, Host: l.called, Dir: c.spec.Dir, Command: c.spec.Command, Itself: c.spec.Itself,
		Bind:    c.spec.Bind,
		Environ: environ.Merge(l.way.Environ(c.spec.Environ), nil), Workers: workers, Total: len(workers),
		Hold:    c.spec.elastic(),
		DrainOn: c.spec.DrainOn, LogDir: c.spec.LogDir, Own: l.host.Own, Grace: c.spec.Grace.Milliseconds(),
		Results: c.spec.Results != "", Apart: c.spec.Apart,
	}
	if p.LogDir != "" && !filepath.IsAbs(p.LogDir) {
		p.LogDir = filepath.Join(c.spec.Dir, p.LogDir)
	}
	p.Addr, p.Silence = c.rts[l.index].addr, l.host.Silence.Milliseconds()
	if c.spec.Discovery == nil && l.born.IsZero() {
		p.First, p.Total = c.mates(l)
	} else {
		p.First, p.Total = c.bedsBefore(l)
		p.Total = max(p.Total, p.First+slots, p.First+len(workers))
	}
	if !l.host.Knows {
		l.send(protocol.CmdSecret, []byte(c.spec.Secret.Hex()))
	}
	p.Call = c.callSize
	l.sendJSON(protocol.CmdPlan, p)
	if p.Call > 0 {
		go l.sendCall(c.spec.Call, c.callSize, post)
	}
}

// worker returns the process of a seat, for the epoch that it is started for.
func (c *crew) worker(s Seat, epoch uint64) protocol.Worker {
	r := c.rts[s.Host]
	c.begun[s.Rank] = time.Now()
	at := place{
		seat: s, size: len(c.seats), host: c.links[s.Host].called, job: c.spec.Job, epoch: epoch, addr: r.addr,
		masterHost: r.master, masterPort: r.masterPort, elastic: c.spec.elastic(), join: c.spec.Join,
		progress:   c.spec.Progress,
		interfaces: c.spec.Interfaces, listen: r.listen, gpus: c.spec.GPUs,
	}
	if at.elastic && environ.Lookup(c.spec.Environ, "HORA_ELASTIC_TIMEOUT") == "" {
		at.wait = c.spec.Wait
	}
	if l := c.links[s.Host]; at.gpus > 0 {
		at.device, at.visible = c.firstSlot(l)+s.Slot, l.host.Devices
	}
	return protocol.Worker{
		Rank: s.Rank, Slot: s.Slot, Env: environ.Merge(at.variables(), c.spec.Env), Process: c.process(s.Rank),
	}
}
