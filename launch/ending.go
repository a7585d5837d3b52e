package launch

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hora/elastic"
	"hora/event"
	"hora/internal/wire"
	"hora/launch/protocol"
)

// ending is how a job comes to its end: what has failed or who has stopped it, and what the workers were told of it.
type ending struct {
	spec     *settings
	crew     *crew
	links    *links
	meeting  *meeting
	record   *record
	mail     *mailbox
	verdict  verdict
	stopped  bool             // the workers have been told to end
	final    <-chan time.Time // when to tell them, after a first failure
	asked    int              // signals of ours that ask to stop
	within   time.Duration    // how long they have for it
	hard     <-chan time.Time // when to give up waiting for agents
	forced   bool             // they have been killed
	patience patience
}

// fail records a failure; the first one ends the job, after settle when it is a worker's.
func (e *ending) fail(o Outcome) {
	v := &e.verdict
	ours := o.Kind == Drained || o.Kind == Killed && (o.Signal == syscall.SIGTERM || o.Signal == syscall.SIGKILL)
	settled := len(v.failed) > 0 && e.final == nil
	if e.stopped && (ours || settled || v.cancel != nil) {
		return // it ended because we said so
	}
	v.failed = append(v.failed, o)
	if len(v.failed) == 1 {
		e.final = time.After(settle)
	}
	if o.Rank < 0 {
		e.stop(e.spec.Grace)
	}
}

// settled ends the rest, once a first failure has had its time to be explained.
func (e *ending) settled() {
	e.final = nil
	if !e.stopped {
		e.stop(e.spec.Grace)
	}
}

// stop has every agent end its workers.
func (e *ending) stop(grace time.Duration) {
	e.stopped, e.within = true, grace
	e.links.send(protocol.CmdStop, wire.AppendI64(nil, grace.Milliseconds()))
	why := "the launcher ends the job"
	if len(e.verdict.failed) > 0 {
		o := e.verdict.outcome()
		why = "the job ends: " + o.String()
	}
	e.meeting.noMoreEpochs(why)
	e.hard = time.After(grace + 2*time.Second)
}

// stopFor ends a job that nothing has failed in yet.
func (e *ending) stopFor(o Outcome) {
	if e.verdict.cancel == nil && len(e.verdict.failed) == 0 {
		e.verdict.cancel = &o
	}
	e.stop(e.spec.Grace)
}

// giveUp cuts the ways to agents that have not ended in time, and reports whether that was done before.
func (e *ending) giveUp() bool {
	if e.forced {
		return true
	}
	e.forced = true
	e.links.kill()
	e.hard = time.After(time.Second)
	return false
}

// tell says, now and then, whose end is awaited.
func (e *ending) tell() {
	if e.stopped && e.patience.due(time.Now()) {
		e.record.event(&event.Delay{Text: e.awaited()})
	}
}

// awaited says whose end a job that was told to stop waits for.
func (e *ending) awaited() string {
	var ranks []string
	for r, alive := range e.crew.alive {
		if alive {
			ranks = append(ranks, strconv.Itoa(r))
		}
	}
	if len(ranks) > 0 {
		they := "it is"
		if len(ranks) > 1 {
			they = "they are"
		}
		return fmt.Sprintf("waiting for rank %s to end: %s killed after %v", list(ranks), they, e.within)
	}
	var hosts []string
	for _, l := range e.links.all {
		if !l.ended {
			hosts = append(hosts, l.called)
		}
	}
	return "waiting for what the workers left behind on " + list(hosts)
}

// idle ends what no work is left for: when all who worked have ended, also what the job would wait for in vain.
func (e *ending) idle(roster *elastic.Roster) {
	switch {
	case roster.Left() == 0 && e.spec.elastic():
		e.stop(0) // agents of elastic jobs wait for more
	case !e.stopped && e.meeting.complete.Load() && e.meeting.onlyLatecomers(e.crew.alive):
		e.stop(e.spec.Grace)
	}
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
	s.Place.Events.Emit(&event.Warning{Text: fmt.Sprintf("%s came %s: there are no workers yet to pass it on to", SignalName(sig), when)})
	return nil
}

// signal passes a signal on to all workers. The first that asks for an end gives them notice, the second ends that.
func (e *ending) signal(sig syscall.Signal) {
	if !asksToEnd(sig) {
		e.links.forward(sig)
		return
	}
	e.asked++
	e.record.write(&entry{Kind: entryCancel, Code: int(sig)})
	if e.verdict.cancel == nil && len(e.verdict.failed) == 0 {
		e.verdict.cancel = &Outcome{Kind: Cancelled, Rank: -1, Signal: sig}
	}
	if e.asked > 1 {
		e.stop(0)
		return
	}
	e.links.forward(sig)
	e.stopped, e.within = true, e.spec.Notice
	e.links.send(protocol.CmdWindDown, wire.AppendI64(nil, e.within.Milliseconds()))
	e.meeting.noMoreEpochs(SignalName(sig))
	e.hard = time.After(e.within + 2*time.Second)
}

// verdict is how a job ends, as far as that is known.
type verdict struct {
	failed  []Outcome
	culprit *Outcome // a worker that was lost without its end, where that ends the job
	cancel  *Outcome // somebody has stopped it
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
