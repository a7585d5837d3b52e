package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"hora/elastic"
	"hora/event"
	"hora/launch"
)

// Kill trains twice: undisturbed, and with a rank that is killed in the middle. It shows
// what the loss cost, and that the weights are the same in the end.
func Kill(ctx context.Context, o Options) (Result, error) {
	s := &screen{out: o.Out, term: o.Term, ranks: o.Ranks}
	o.greet(s)
	calm, err := o.train(ctx, nil, o.NP)
	if err != nil || calm.Outcome.Kind != launch.Finished {
		return calm, err
	}
	s.say("%s", wrap(fmt.Sprintf("undisturbed: %d epochs in %.1f s, digest of the weights %s", o.WithDefaults().Epochs, calm.Took.Seconds(), calm.Progress.Done[0].Digest), o.Term.Width))
	s.say("%s", wrap(fmt.Sprintf("once more, with rank %d killed in the middle:", o.NP-1), o.Term.Width))
	k := &killer{victim: o.NP - 1, after: max(o.WithDefaults().Epochs/2, 1), width: o.Term.Width}
	res, err := o.trainWith(ctx, s, o.NP, k)
	s.erase()
	if err != nil || res.Outcome.Kind != launch.Finished {
		return res, err
	}
	s.say("")
	for _, line := range append(res.Progress.Summary(res.Took.Seconds()), k.summary()...) {
		s.say("%s", wrap(line, o.Term.Width))
	}
	mine, theirs := res.Progress.Done[0].Digest, calm.Progress.Done[0].Digest
	switch {
	case !res.Progress.Agree():
		return res, errors.New("compare replicas: the ranks disagree; this is a bug of hora, please report it with the output of hora version")
	case mine != theirs:
		return res, fmt.Errorf("compare weights: the digest is %s with a loss and %s without; this is a bug of hora, please report it with the output of hora version", mine, theirs)
	case k.at.IsZero():
		return res, errors.New("the training was over before a rank could be killed: give it more --epochs")
	}
	s.say("%s", wrap("  weights        equal to the undisturbed run's, bit for bit (digest "+mine+")", o.Term.Width))
	return res, nil
}

// killer ends one rank's process when half of the epochs are done, and tells what
// happens then. Everything but attach is called with mu held.
type killer struct {
	victim, after int
	width         int
	screen        *screen
	progress      *Progress
	mu            *sync.Mutex // the reports' own: events come from another goroutine

	pid         int
	at          time.Time // of the kill
	known       time.Duration
	broken      int // the step that was broken off
	went        int // ranks that train again
	again       time.Duration
	from        int // the step that they go on from
	replacement time.Duration
}

// attach has the job replace who is lost, and this killer hear of it.
func (k *killer) attach(spec *launch.Spec, s *screen, p *Progress, mu *sync.Mutex) (detach func()) {
	k.screen, k.progress, k.mu = s, p, mu
	spec.OnLoss, spec.Restarts = elastic.Replace, 3
	spec.Events = &event.Sink{}
	return spec.Events.Add(k)
}

// Operation is for event.Listener.
func (k *killer) Operation(*event.Operation) {}

// Event hears from the launcher.
func (k *killer) Event(e event.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch e := e.(type) {
	case *launch.Started:
		if e.Rank != k.victim {
			return
		}
		k.pid = e.Pid
		if !k.at.IsZero() {
			k.say("  %4.0f ms  a new process for rank %d runs: pid %d", k.since(time.Now()), e.Rank, e.Pid)
		}
	case *launch.Restarted:
		k.say("  %4.0f ms  the launcher: %s", k.since(time.Now()), e)
	}
}

func (k *killer) say(format string, args ...any) {
	k.screen.say("%s", wrap(fmt.Sprintf(format, args...), k.width))
}

// since is milliseconds after the kill.
func (k *killer) since(t time.Time) float64 { return t.Sub(k.at).Seconds() * 1e3 }

// kill ends the victim's process.
func (k *killer) kill() {
	pid, now := k.pid, time.Now()
	if syscall.Kill(pid, syscall.SIGKILL) != nil {
		return // it has ended by itself
	}
	k.at = now
	k.say("     0 ms  kill -9 %d: rank %d is gone in epoch %d", pid, k.victim, k.after+1)
}

// hear takes a worker's report.
func (k *killer) hear(r Report, epochComplete bool) {
	if k.at.IsZero() {
		if epochComplete && len(k.progress.Points) >= k.after && k.pid > 0 {
			k.kill()
		}
		return
	}
	moment := time.Unix(0, r.Moment)
	switch r.Kind {
	case "broken":
		k.broken = max(k.broken, r.Steps)
		k.known = max(k.known, moment.Sub(k.at))
		k.say("  %4.0f ms  rank %d knows: %s", k.since(moment), r.Rank, r.Note)
	case "start":
		if r.Rank == k.victim && r.Life > 1 {
			k.replacement = moment.Sub(k.at)
			k.say("  %4.0f ms  the new rank %d has joined and has the weights of step %d", k.since(moment), r.Rank, r.Steps)
		}
	case "going":
		if r.Life < 2 {
			return
		}
		k.from = r.Steps
		k.again = max(k.again, moment.Sub(k.at))
		if k.went++; k.went == k.progress.Size {
			k.say("  %4.0f ms  all %d ranks train again, from step %d", float64(k.again.Microseconds())/1e3, k.went, k.from)
		}
	}
}

// summary is what the loss cost.
func (k *killer) summary() []string {
	return []string{
		fmt.Sprintf("  loss           rank %d, killed by SIGKILL; the others knew after %.0f ms", k.victim, float64(k.known.Microseconds())/1e3),
		fmt.Sprintf("  recovery       replacement in its place after %.0f ms, training again after %.0f ms, %d steps done again",
			float64(k.replacement.Microseconds())/1e3, float64(k.again.Microseconds())/1e3, max(k.broken-k.from, 0)),
	}
}
