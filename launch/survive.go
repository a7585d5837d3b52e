package launch

import (
	"syscall"
	"time"

	"hora/internal/wire"
	"hora/launch/protocol"
)

// severed is a worker that the coordinator has lost although nobody has reported its end.
type severed struct {
	rank   int
	named  bool      // it is known to be the rank's present process
	since  time.Time // when it had connected
	reason string
	silent bool
}

// post hands an event to the owner, unless the job is over.
func (m *mailbox) post(e any) {
	select {
	case m.events <- e:
	case <-m.over:
	}
}

// severed ends a process that the job has lost: stopped, stuck or cut off from the coordinator, it would keep its slot
// and its rank for ever. One whose connection broke is given the grace to say why it ends.
func (j *job) severed(e severed) {
	if !j.spec.elastic() {
		j.blame(e)
		return
	}
	if j.stopped || j.complete.Load() || e.rank >= len(j.seats) || !j.alive[e.rank] || e.since.Before(j.begun[e.rank]) {
		return
	}
	if !e.silent {
		e.silent = true
		time.AfterFunc(j.spec.Grace, func() { j.post(e) })
		return
	}
	j.end(e.rank, e.reason)
}

// end ends a rank's process, which is lost to the job.
func (c *crew) end(rank int, why string) {
	c.condemn[rank] = why
	b := wire.AppendI64(wire.AppendI64(nil, int64(rank)), int64(syscall.SIGKILL))
	c.links[c.seats[rank].Host].send(protocol.CmdSignal, b)
}

// blame deals with such a worker where a loss ends the job. The others know, and end soon; one whose connection broke
// may yet say why it ends.
func (j *job) blame(e severed) {
	if j.complete.Load() || e.rank >= len(j.seats) || !j.alive[e.rank] || e.since.Before(j.begun[e.rank]) {
		return
	}
	o := Outcome{
		Kind: Severed, Rank: e.rank, Host: j.links[j.seats[e.rank].Host].called, Code: ExitHost,
		Last: e.reason,
	}
	if j.culprit == nil {
		j.culprit = &o
	}
	switch {
	case j.stopped:
	case e.silent:
		j.fail(o)
	default:
		e.silent = true
		time.AfterFunc(j.spec.Grace, func() { j.post(e) })
	}
}
