package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"hora/job"
	"hora/job/schedule"
	"hora/server/client"
	"hora/server/fleet"
	"hora/server/node"
	"hora/server/snapshot"
	"hora/server/store"
)

// follow starts what follows the attempt of a job, or takes it up where an earlier server was.
func (s *Server) follow(l *live, adopted bool) {
	job, a, taken, stop := l.job, *l.attempt, l.taken, l.stop
	f := &follower{
		Server: s, l: l, job: job, attempt: a, taken: taken, parts: &sync.WaitGroup{}, missed: map[string]int{},
	}
	f.until, f.over = context.WithCancel(s.ctx)
	l.elastic.follower = f
	if !adopted {
		f.began = s.write(s.ctx, l, f.begin)
	}
	s.wg.Go(func() {
		if adopted && (job.Document.Spec.MinNP > 0 || len(a.Shares) > 1) {
			_ = s.do(f.tell) // what it was told may not have come to it, and it says how it stands
		}
		if err := f.run(adopted, stop); err != nil && s.ctx.Err() == nil {
			s.log.Error("follow a job", "job", job.ID, "error", err)
		}
	})
}

// follower takes one attempt from its start to its end.
type follower struct {
	*Server
	l       *live // only in the loop
	job     client.Job
	attempt client.Attempt
	taken   uint64
	ended   bool
	until   context.Context // ends with the attempt
	over    context.CancelFunc
	missed  map[string]int  // files of outputs/ that could not be kept, and how often
	began   *writing        // nil where an earlier server began it
	parts   *sync.WaitGroup // what is done beside; the loop adds to it while the attempt goes on
}

// startTries bounds how often an attempt that does not begin is started.
const startTries = 3

func (f *follower) run(adopted bool, stop client.Outcome) error {
	if !adopted {
		select { // the slot waits with it
		case <-f.began.done:
		case <-f.ctx.Done():
		}
		f.news.wake(f.job.ID)
		f.announced()
		if f.ctx.Err() != nil {
			return nil
		}
	}
	for try := 0; ; try++ {
		if !adopted || try > 0 {
			err := f.start()
			switch {
			case f.ctx.Err() != nil:
				return nil
			case errors.Is(err, node.ErrLost):
				return f.finish(&node.Exit{Code: 69, Outcome: string(client.Lost), Text: err.Error()}, nil)
			case err != nil:
				return f.finish(&node.Exit{Code: 71, Outcome: string(client.Failure), Text: "it could not be started: " + err.Error()}, nil)
			}
		}
		_ = f.do(func() { stop = f.l.stop }) // it may have been told to end before there was anything to tell
		if stop != "" {
			_ = f.back.Kill(f.where(), stop)
		}
		g, err := f.whole(shares(f.attempt.Shares))
		if err == nil {
			err = f.back.Watch(f.ctx, g, f.taken, f.take)
		}
		switch {
		case f.ended || err == nil:
			return err
		case f.ctx.Err() != nil:
			return nil
		case errors.Is(err, node.ErrUnbegun) && try < startTries:
			continue
		case errors.Is(err, node.ErrUnbegun):
			_ = f.back.Kill(f.where(), client.Failure) // should one come after all, it ends
			text := fmt.Sprintf("the process that should keep it ended %d times before it began: %s", startTries, f.left.Says(f.where()))
			return f.finish(&node.Exit{Code: 71, Outcome: string(client.Failure), Text: text}, nil)
		case errors.Is(err, node.ErrLost):
			text := "the process that kept it was killed"
			if gone := (*fleet.Lost)(nil); errors.As(err, &gone) {
				text = err.Error()
			}
			return f.finish(&node.Exit{Code: 69, Outcome: string(client.Lost), Text: text}, f.salvage())
		case errors.Is(err, store.ErrFull): // it stays in the outbox until there is room
			f.log.Warn("take what a job says", "job", f.job.ID, "error", err)
		default:
			f.log.Error("follow a job", "job", f.job.ID, "error", err)
		}
		select {
		case <-time.After(time.Second):
		case <-f.ctx.Done():
			return nil
		}
	}
}

// begin writes down that the attempt starts, before it does.
func (f *follower) begin(tx *sql.Tx) error {
	if err := store.NewAttempt(tx, f.job.ID, &f.attempt); err != nil {
		return err
	}
	if err := store.SetState(tx, &f.job); err != nil {
		return err
	}
	if err := f.announce(tx, &f.job); err != nil {
		return err
	}
	return store.AddHappening(tx, f.job.ID, client.Happening{
		At: f.attempt.Started, Attempt: f.attempt.Number, Kind: "starting", Text: "it starts with " + slotsOn(f.attempt.Shares),
	})
}

func slotsOn(all []client.Share) string {
	text := ""
	for i, x := range all {
		if i > 0 {
			text += ", "
		}
		text += slotsIn(x.Slots) + " on " + x.Node
	}
	return text
}

// slotsIn counts slots in words.
func slotsIn(n int) string {
	if n == 1 {
		return "1 slot"
	}
	return fmt.Sprintf("%d slots", n)
}

// gang is the attempt as the back end knows it.
func (f *follower) gang(on []schedule.Share) node.Gang {
	return node.Gang{
		Job: f.job.ID, Attempt: f.attempt.Number, Document: f.job.Document, Shares: on, Code: f.job.Document.Code,
	}
}

// where names it.
func (f *follower) where() fleet.Ref {
	return ref(f.job.ID, f.attempt.Number, f.job.Document.Pool, f.attempt.Shares)
}

// start lets the back end start it; to do it again does nothing more.
func (f *follower) start() error {
	g, err := f.whole(shares(f.attempt.Shares))
	if err == nil {
		_, err = f.secrets()
	}
	if err == nil {
		_, err = f.lent()
	}
	if err != nil {
		return err
	}
	return f.back.Start(g)
}

// whole is the gang with what earlier attempts left in outputs/, which each of its nodes gets.
func (f *follower) whole(on []schedule.Share) (node.Gang, error) {
	g := f.gang(on)
	g.Token = f.fleet.JobToken(g.Job, g.Attempt)
	g.Secrets, _ = f.secrets() // one that is gone is missed where the attempt is started
	g.Lent, _ = f.lent()
	if g.Attempt == 1 {
		return g, nil
	}
	all, err := f.store.Artifacts(f.ctx, f.job.ID)
	for _, a := range all {
		g.Outputs = append(g.Outputs, snapshot.File{Path: a.Path, Mode: 0o644, Size: a.Size, Hash: a.Hash})
	}
	return g, err
}

// finish writes down how the attempt ended and what the job is then, in one transaction with the last records.
func (f *follower) finish(e *node.Exit, b *batch) error {
	if err := f.do(func() { // an elastic job may have had others than at first
		if a := f.l.attempt; a != nil && a.Number == f.attempt.Number {
			f.attempt.Shares = a.Shares
		}
		e = f.l.gang.instead(e, b)
	}); err != nil {
		return err
	}
	if b != nil && len(f.attempt.Shares) > 1 {
		if err := f.elsewhere(b); err != nil {
			return err
		}
	}
	f.ended = true
	now := f.now().UTC()
	a := f.attempt
	a.Ended, a.Outcome, a.Code, a.Text = now, client.Outcome(e.Outcome), e.Code, e.Text
	var then client.Job
	var written *writing
	if err := f.do(func() {
		l := f.l
		l.finishing = true
		f.over()
		then = f.next(l, &a)
		failures := l.failures
		f.machine.Ended(then.ID, now)
		used := store.Project{Name: then.Document.Project, Used: f.machine.Used(then.Document.Project, now), At: now}
		written = f.Server.write(f.ctx, l, func(tx *sql.Tx) error {
			if b != nil {
				if err := f.write(tx, b); err != nil {
					return err
				}
			}
			return f.close(tx, &then, &a, failures, used)
		})
		f.dirty = true
	}); err != nil {
		f.ended = false
		return err
	}
	if <-written.done; !written.ok { // its slots are free, and its records stay in the outbox
		f.ended = false
		return nil
	}
	f.announced()
	f.meters.attemptEnded(a.Outcome)
	if then.State.Ended() {
		f.meters.jobEnded(then.State)
	}
	err := f.do(func() {
		l := f.l
		l.job = then
		l.finishing, l.attempt, l.stop, l.elastic, l.gang = false, nil, "", elastic{}, gang{}
		f.seat(l)
		if l.job.State == job.Queued {
			f.machine.Submit(ask(l))
		}
		if l.job.State.Ended() {
			delete(f.live, l.job.ID)
		}
		f.dirty = true
	})
	f.news.wake(then.ID)
	f.news.wake(0)
	f.parts.Wait() // so that nothing starts there any more
	f.forget(f.where())
	return err
}

// close writes an attempt's end.
func (f *follower) close(tx *sql.Tx, then *client.Job, a *client.Attempt, failures int, used store.Project) error {
	if err := store.EndAttempt(tx, then.ID, a); err != nil {
		return err
	}
	if err := store.SetState(tx, then); err != nil {
		return err
	}
	if err := f.announce(tx, then); err != nil {
		return err
	}
	if err := store.SetFailures(tx, then.ID, failures); err != nil {
		return err
	}
	if err := store.SetUsed(tx, used); err != nil {
		return err
	}
	return store.AddHappening(tx, then.ID, client.Happening{
		At: a.Ended, Attempt: a.Number, Kind: string(a.Outcome), Text: ending(a, then.State),
	})
}

// next is what becomes of a job whose attempt has ended: others see it when it is written down.
func (s *Server) next(l *live, a *client.Attempt) (j client.Job) {
	j = l.job
	again := false
	if a.Outcome != client.Lost {
		l.lost = 0
	}
	switch a.Outcome {
	case client.Success:
		j.State = job.Finished
	case client.Stopped:
		j.State = job.Cancelled
	case client.Preempted, client.Held:
		again = true
	case client.Lost:
		l.lost++
		again = l.lost < lostMost
	case client.OutOfMemory:
		if again = !l.alone && s.neighbours(l, a); !again { // nobody but itself is to blame
			l.failures++
			again = l.failures <= j.Document.Retries
		}
		l.alone = true
	case client.Failure:
		l.failures++
		again = l.failures <= j.Document.Retries
	}
	switch {
	case again && (l.stop == client.Stopped):
		j.State = job.Cancelled
	case again && l.stop == client.Held:
		j.State = job.Paused
		return j
	case again:
		j.State = job.Queued
		return j
	case !j.State.Ended():
		j.State = job.Failed
	}
	j.Ended, j.ExitCode, j.Text = a.Ended, a.Code, a.Text
	return j
}

// besideFor is how long before the end of an attempt that ran out of memory others may have left its nodes to have had
// a part in that: what the kernel ends, and what is told of it, takes its time, and it may have ended them first.
const besideFor = time.Minute

// neighbours says whether others run on the nodes of an attempt, or have just left them.
func (s *Server) neighbours(l *live, a *client.Attempt) bool {
	if !l.beside.IsZero() && s.now().Sub(l.beside) < besideFor {
		return true
	}
	for _, x := range a.Shares {
		for id := range s.parts.on[x.Node] {
			if holds(x) && id != l.job.ID {
				return true
			}
		}
	}
	return false
}

// ending tells how an attempt ended and what comes then.
func ending(a *client.Attempt, then job.State) string {
	text := string(a.Outcome)
	if a.Text != "" {
		text += ": " + a.Text
	}
	switch then {
	case job.Queued:
		text += "; it queues again"
	case job.Paused:
		text += "; it is paused"
	}
	return text
}

// forget removes what is left of an attempt on its nodes, and makes its lines small.
func (s *Server) forget(r fleet.Ref) {
	if err := s.left.Forget(r); err != nil {
		s.log.Warn("remove the folder of a job", "job", r.Job, "error", err)
		return
	}
	err := s.store.Do(context.WithoutCancel(s.ctx), func(tx *sql.Tx) error {
		if err := store.Compact(tx, r.Job, r.Attempt); err != nil {
			return err
		}
		return store.Forgotten(tx, r.Job, r.Attempt)
	})
	if err != nil && !errors.Is(err, store.ErrClosed) {
		s.log.Warn("forget an attempt", "job", r.Job, "error", err)
	}
}

var _ Backend = (*fleet.Fleet)(nil)
