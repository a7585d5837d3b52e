package launch

import (
	"context"
	"path/filepath"
	"time"
)

// sendPlans tells every agent which workers to start.
func (j *job) sendPlans(ctx context.Context) error {
	routes, err := j.routes(ctx)
	if err != nil {
		return err
	}
	j.rts = routes
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
	}
	if j.spec.Discovery == nil && l.born.IsZero() {
		p.First, p.Total = j.mates(l)
	} else {
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
		masterHost: r.master, masterPort: r.masterPort, elastic: j.spec.elastic(), join: j.spec.Join, progress: j.spec.Progress,
		interfaces: j.spec.Interfaces, listen: r.listen, gpus: j.spec.GPUs,
	}
	if at.elastic && lookup(j.spec.Environ, "HORA_ELASTIC_TIMEOUT") == "" {
		at.wait = j.spec.Wait
	}
	if l := j.links[s.Host]; at.gpus > 0 {
		at.device = j.firstSlot(l) + s.LocalRank
		if l.local {
			at.visible = visible(j.spec.Environ)
		}
	}
	return worker{Rank: s.Rank, Slot: s.LocalRank, Env: merge(at.variables(), j.spec.Env)}
}
