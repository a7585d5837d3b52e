package launch

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hora/event"
	"hora/internal/wire"
	"hora/launch/protocol"
)

// verdict is how a job ends, as far as that is known.
type verdict struct {
	failed  []Outcome
	culprit *Outcome // a worker that was lost without its end, where that ends the job
	cancel  *Outcome // somebody has stopped it
}

// fail records a failure; the first one ends the job, after settle when it is a worker's.
func (j *job) fail(o Outcome) {
	ours := o.Kind == Drained || o.Kind == Killed && (o.Signal == syscall.SIGTERM || o.Signal == syscall.SIGKILL)
	settled := len(j.failed) > 0 && j.final == nil
	if j.stopped && (ours || settled || j.cancel != nil) {
		return // it ended because we said so
	}
	j.failed = append(j.failed, o)
	if len(j.failed) == 1 {
		j.final = time.NewTimer(settle)
	}
	if o.Rank < 0 {
		j.stop(j.spec.Grace)
	}
}

// stop has every agent end its workers.
func (j *job) stop(grace time.Duration) {
	j.stopped = true
	for _, l := range j.links {
		l.send(protocol.CmdStop, wire.AppendI64(nil, grace.Milliseconds()))
	}
	why := "the launcher ends the job"
	if len(j.failed) > 0 {
		o := j.outcome()
		why = "the job ends: " + o.String()
	}
	j.noMoreEpochs(j.spec.elastic(), why)
	j.hard = time.After(grace + 2*time.Second)
}

// noMoreEpochs has the coordinator let nobody wait for an epoch that cannot come: those that were asked to end leave
// one after the other, each at its commit, and the last ones have lost the others by then.
func (m *meeting) noMoreEpochs(elastic bool, why string) {
	if elastic && !m.complete.Load() {
		m.server.Drain(-1, "", why)
	}
}

func (j *job) stopFor(o Outcome) {
	if j.cancel == nil && len(j.failed) == 0 {
		j.cancel = &o
	}
	j.stop(j.spec.Grace)
}

// asksToEnd says which signals end a program that does not expect them, and are sent for that.
func asksToEnd(sig os.Signal) bool {
	return sig == syscall.SIGINT || sig == syscall.SIGTERM || sig == syscall.SIGHUP || sig == syscall.SIGQUIT
}

// early takes a signal that comes before there are workers: it is an error that ends the job, or lost on them.
func (s *settings) early(from os.Signal, when string) error {
	sig, _ := from.(syscall.Signal)
	if asksToEnd(sig) {
		return fault(ExitSignal+int(sig), "stopped by %s %s", SignalName(sig), when)
	}
	s.Events.Emit(&event.Warning{Text: fmt.Sprintf("%s came %s: there are no workers yet to pass it on to", SignalName(sig), when)})
	return nil
}

// signal passes a signal on to all workers. The first that asks for an end begins the grace, the second ends it.
func (j *job) signal(sig syscall.Signal) {
	if !asksToEnd(sig) {
		j.forward(sig)
		return
	}
	j.asked++
	j.ledger.write(&entry{Kind: entryCancel, At: j.ledger.now(j.began), Code: int(sig)})
	if j.cancel == nil && len(j.failed) == 0 {
		j.cancel = &Outcome{Kind: Cancelled, Rank: -1, Signal: sig}
	}
	if j.asked > 1 {
		j.stop(0)
		return
	}
	j.forward(sig)
	j.stopped = true
	for _, l := range j.links {
		l.send(protocol.CmdWindDown, wire.AppendI64(nil, j.spec.Grace.Milliseconds()))
	}
	j.noMoreEpochs(j.spec.elastic(), SignalName(sig))
	j.hard = time.After(j.spec.Grace + 2*time.Second)
}

func (c *crew) forward(sig syscall.Signal) {
	b := wire.AppendI64(wire.AppendI64(nil, -1), int64(sig))
	for _, l := range c.links {
		l.send(protocol.CmdSignal, b)
	}
}

// hostLost ends the job, or goes on without the host.
func (j *job) hostLost(l *link, reason string) {
	j.story.hostLost(l.called, reason)
	goesOn, then := j.outliveHost(l, reason)
	if goesOn {
		return
	}
	for _, s := range j.seats {
		if s.Host == l.index && (j.alive[s.Rank] || !l.planned) {
			j.server.Exited(s.Rank, "", l.called, reason)
		}
	}
	j.fail(Outcome{
		Kind: LostHost, Rank: -1, Host: l.called, Code: ExitHost,
		Last: fmt.Sprintf("lost host %s: %s%s", l.called, reason, then),
	})
}

// works says whether any worker of a host's runs there, or is to.
func (c *crew) works(l *link) bool {
	return slices.ContainsFunc(c.seats, func(s Seat) bool {
		return s.Host == l.index && (c.alive[s.Rank] || !l.planned)
	})
}

// silence is how a survivor tells of a rank whose process was there and said nothing.
var silence = regexp.MustCompile(`lost rank (\d+) on host (\S+): (silent for [^;]*)`)

// first returns the first of failures that are all told as the consequence of another's loss: the lost one, where it is
// known.
func (v *verdict) first() Outcome {
	o := v.failed[0]
	if v.culprit != nil && o.Rank >= 0 {
		return *v.culprit
	}
	m := silence.FindStringSubmatch(o.Last)
	if m == nil || o.Kind != Failed {
		return o
	}
	rank, _ := strconv.Atoi(m[1])
	return Outcome{Kind: Severed, Rank: rank, Host: m[2], Code: ExitHost, Last: strings.TrimSpace(m[3])}
}

// outcome picks the failure that was there first: one that is no consequence of another's loss.
func (v *verdict) outcome() Outcome {
	for _, o := range v.failed {
		if !strings.Contains(o.Last, "lost rank ") && !strings.Contains(o.Last, "peer lost") {
			return o
		}
	}
	switch {
	case len(v.failed) > 0:
		return v.first()
	case v.cancel != nil:
		return *v.cancel
	}
	return Outcome{Kind: Finished, Rank: -1}
}
