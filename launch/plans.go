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
	s := &survey{spec: j.spec, links: j.links, events: j.events, port: j.port, door: j.door, early: j.early}
	routes, err := s.routes(ctx)
	if err != nil {
		return err
	}
	j.rts = routes
	for h, l := range j.links {
		var workers []protocol.Worker
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
func (j *job) sendPlan(l *link, workers []protocol.Worker, slots int) {
	p := protocol.Plan{
		Job: j.spec.Job, Host: l.called, Dir: j.spec.Dir, Command: j.spec.Command, Itself: j.spec.Itself, Bind: j.spec.Bind,
		Environ: environ.Merge(l.way.Environ(j.spec.Environ), nil), Workers: workers, Total: len(workers), Hold: j.spec.elastic(),
		DrainOn: j.spec.DrainOn, LogDir: j.spec.LogDir, Own: l.host.Own, Grace: j.spec.Grace.Milliseconds(), Results: j.spec.Results != "",
	}
	if p.LogDir != "" && !filepath.IsAbs(p.LogDir) {
		p.LogDir = filepath.Join(j.spec.Dir, p.LogDir)
	}
	p.Addr, p.Silence = j.rts[l.index].addr, l.host.Silence.Milliseconds()
	if j.spec.Discovery == nil && l.born.IsZero() {
		p.First, p.Total = j.mates(l)
	} else {
		p.First, p.Total = j.bedsBefore(l)
		p.Total = max(p.Total, p.First+slots, p.First+len(workers))
	}
	if !l.host.Knows {
		l.send(protocol.CmdSecret, []byte(j.spec.Secret.Hex()))
	}
	p.Call = j.callSize
	l.sendJSON(protocol.CmdPlan, p)
	if p.Call > 0 {
		go l.sendCall(j.spec.Call, j.callSize, j.post)
	}
}

// worker is the process of a seat, for the epoch that it is started for.
func (j *job) worker(s Seat, epoch uint64) protocol.Worker {
	r := j.rts[s.Host]
	j.begun[s.Rank] = time.Now()
	j.drained.Delete(s.Rank) // what a lost one had said
	j.took.Delete(s.Rank)
	at := place{
		seat: s, size: len(j.seats), host: j.links[s.Host].called, job: j.spec.Job, epoch: epoch, addr: r.addr,
		masterHost: r.master, masterPort: r.masterPort, elastic: j.spec.elastic(), join: j.spec.Join, progress: j.spec.Progress,
		interfaces: j.spec.Interfaces, listen: r.listen, gpus: j.spec.GPUs,
	}
	if at.elastic && environ.Lookup(j.spec.Environ, "HORA_ELASTIC_TIMEOUT") == "" {
		at.wait = j.spec.Wait
	}
	if l := j.links[s.Host]; at.gpus > 0 {
		at.device, at.visible = j.firstSlot(l)+s.Slot, l.host.Devices
	}
	return protocol.Worker{Rank: s.Rank, Slot: s.Slot, Env: environ.Merge(at.variables(), j.spec.Env)}
}
