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

// severed ends a process that the job has lost: stopped, stuck or cut off from the coordinator, it would keep its slot
// and its rank for ever. One whose connection broke is given the grace to say why it ends.
func (e *ending) severed(s severed) {
	if s.rank >= len(e.crew.seats) || !e.crew.alive[s.rank] || s.since.Before(e.crew.begun[s.rank]) ||
		e.meeting.complete.Load() {
		return
	}
	switch {
	case !e.spec.elastic():
		e.blame(s)
	case e.stopped:
	case s.silent:
		e.end(s.rank, s.reason)
	default:
		e.allow(s)
	}
}

// allow gives it that grace.
func (e *ending) allow(s severed) {
	s.silent = true
	time.AfterFunc(e.spec.Grace, func() { e.mail.post(s) })
}

// end ends a rank's process, which is lost to the job.
func (e *ending) end(rank int, why string) {
	e.crew.condemn[rank] = why
	b := wire.AppendI64(wire.AppendI64(nil, int64(rank)), int64(syscall.SIGKILL))
	e.links.all[e.crew.seats[rank].Host].send(protocol.CmdSignal, b)
}

// blame deals with such a worker where a loss ends the job. The others know, and end soon; one whose connection broke
// may yet say why it ends.
func (e *ending) blame(s severed) {
	o := Outcome{
		Kind: Severed, Rank: s.rank, Host: e.links.all[e.crew.seats[s.rank].Host].called, Code: ExitHost,
		Last: s.reason,
	}
	if e.verdict.culprit == nil {
		e.verdict.culprit = &o
	}
	switch {
	case e.stopped:
	case s.silent:
		e.fail(o)
	default:
		e.allow(s)
	}
}
