package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"hora/event"
	"hora/job"
	"hora/launch"
)

// Kill trains twice: undisturbed, and with a rank that is killed in the middle. It shows
// what the loss cost, and that the weights are the same in the end.
func Kill(ctx context.Context, o Options) (Result, error) {
	s := o.begin()
	o.greet(s)
	calm, err := o.train(ctx, s, round{np: o.NP, aside: true})
	if err != nil || !calm.finished() {
		return calm, err
	}
	want := calm.Progress.Done[0].Digest
	s.say("undisturbed: %s in %.1f s, digest of the weights %s", plural(o.Epochs, "epoch", "epochs"), calm.Took.Seconds(), want)
	s.say("once more, with rank %d killed in the middle:", o.NP-1)
	k := &killer{victim: o.NP - 1, epoch: (o.Epochs + 1) / 2}
	res, err := o.train(ctx, s, round{np: o.NP, killer: k})
	if err != nil || !res.finished() {
		return res, err
	}
	if k.went < o.NP {
		return res, errors.New("kill a rank: the training was over before the others could miss it: give it more --epochs")
	}
	s.say("")
	for _, line := range append(res.Progress.Summary(res.Took), k.summary()...) {
		s.say("%s", line)
	}
	if err := errors.Join(calm.verdict(), res.verdict()); err != nil {
		return res, err
	}
	if got := res.Progress.Done[0].Digest; got != want {
		return res, fmt.Errorf("compare weights: the digest is %s with a loss and %s without; this is a bug of hora, please report it with the output of hora version", got, want)
	}
	s.say("  weights        the undisturbed run's, bit for bit (digest %s)", want)
	return res, nil
}

// killer ends one rank's process in the middle of an epoch, and tells what happens then.
// Everything but attach and Event is called with mu held.
type killer struct {
	victim   int
	epoch    int // counted from 1
	screen   *screen
	progress *Progress
	mu       *sync.Mutex // the reports' own: events come from another goroutine

	pid    int
	at     time.Time     // of the kill; what follows counts from here
	known  time.Duration // until the last survivor knew
	joined time.Duration // until the replacement had its place
	again  time.Duration // until the last rank had done a step
	broken int           // the furthest step that was broken off
	from   int           // the step that they go on from
	went   int           // ranks that train again
}

// attach has the job replace who is lost, and this killer hear of it.
func (k *killer) attach(spec *job.Spec, place *launch.Place, s *screen, p *Progress, mu *sync.Mutex) (detach func()) {
	k.screen, k.progress, k.mu = s, p, mu
	spec.OnLoss, spec.Restarts = job.Replace, 3
	place.Events = &event.Sink{}
	return place.Events.Add(k)
}

// Operation is for event.Listener.
func (k *killer) Operation(*event.Operation) {}

// Event hears from the launcher.
func (k *killer) Event(e event.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch e := e.(type) {
	case *event.Started:
		if e.Rank != k.victim {
			return
		}
		k.pid = e.Pid
		if !k.at.IsZero() {
			k.tell(time.Since(k.at), "a new process for rank %d runs: pid %d", e.Rank, e.Pid)
		}
	case *event.Restarted:
		k.tell(time.Since(k.at), "the launcher: %s", e)
	}
}

// tell shows what happened so long after the kill.
func (k *killer) tell(after time.Duration, format string, args ...any) {
	k.screen.say("  %4d ms  %s", after.Milliseconds(), fmt.Sprintf(format, args...))
}

// hear takes a worker's report.
func (k *killer) hear(r Report) {
	if k.at.IsZero() {
		if r.Kind == Halfway && r.Rank == k.victim && r.Epoch == k.epoch {
			k.kill()
		}
		return
	}
	after := time.Unix(0, r.Moment).Sub(k.at)
	switch {
	case r.Kind == Broken:
		k.broken = max(k.broken, r.Steps)
		k.known = max(k.known, after)
		k.tell(after, "rank %d knows: %s", r.Rank, r.Note)
	case r.Kind == Joined && r.Rank == k.victim && r.Life > 1:
		k.joined = after
		k.tell(after, "the new rank %d has joined and has the weights of step %d", r.Rank, r.Steps)
	case r.Kind == Going && r.Life > 1:
		k.from = r.Steps
		k.again = max(k.again, after)
		if k.went++; k.went == k.progress.Size {
			k.tell(k.again, "all %d ranks train again, from step %d", k.went, k.from)
		}
	}
}

// kill ends the victim's process.
func (k *killer) kill() {
	now := time.Now()
	if k.pid <= 0 || syscall.Kill(k.pid, syscall.SIGKILL) != nil { // 0 would be this program's whole group
		return // not known yet, or ended by itself
	}
	k.at = now
	k.tell(0, "kill -9 %d: rank %d is gone in the middle of epoch %d", k.pid, k.victim, k.epoch)
}

// summary is what the loss cost.
func (k *killer) summary() []string {
	return []string{
		fmt.Sprintf("  loss           rank %d, killed by SIGKILL; the others knew after %d ms", k.victim, k.known.Milliseconds()),
		fmt.Sprintf("  recovery       replaced after %d ms, training after %d ms, %s done again",
			k.joined.Milliseconds(), k.again.Milliseconds(), plural(max(k.broken-k.from, 0), "step", "steps")),
	}
}
