package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"hora/job"
	"hora/server/backend"
	"hora/server/client"
	"hora/server/snapshot"
	"hora/server/store"
)

// follow starts what follows the attempt of a job, or takes it up where an earlier server was.
func (s *Server) follow(l *live, adopted bool) {
	job, a, taken, stop := l.job, *l.attempt, l.taken, l.stop
	f := &follower{
		Server: s, l: l, job: job, attempt: a, taken: taken, turn: &sync.Mutex{}, parts: &sync.WaitGroup{},
		missed: map[string]int{}, silent: map[string]bool{},
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
	silent  map[string]bool // nodes of which a file was waited for in vain
	vain    bool            // a part of it has failed before all had come: what cannot be had is not asked for again
	began   *writing        // nil where an earlier server began it
	turn    *sync.Mutex     // held while the back end is asked to start its gang, which comes to it in order
	parts   *sync.WaitGroup // what is done beside; the loop adds to it while the attempt goes on
}

// beginning says whether the attempt of a job is decided and not written down yet. Nothing of it has started, and a
// server that is killed has not seen it: whoever was told that it runs would find it queued; in the loop.
func (l *live) beginning() bool {
	f := l.elastic.follower
	if l.attempt == nil || f == nil || f.began == nil {
		return false
	}
	select {
	case <-f.began.done:
		return !f.began.ok
	default:
		return true
	}
}

// state is a job's for others; in the loop.
func (l *live) state() job.State {
	if l.beginning() {
		return job.Queued
	}
	return l.job.State
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
			case errors.Is(err, backend.ErrLost):
				e := &backend.Exit{Code: backend.ExitHost, Outcome: string(client.Lost), Text: err.Error()}
				return f.finish(e, nil)
			case err != nil:
				return f.unstarted("it could not be started: " + err.Error())
			}
		}
		_ = f.do(func() { stop = f.l.stop }) // it may have been told to end before there was anything to tell
		if stop != "" {
			_ = f.back.Kill(f.where(), stop)
		}
		err := f.back.Watch(f.ctx, f.where(), f.taken, f.take)
		switch unbegun := (*backend.Unbegun)(nil); {
		case f.ended || err == nil:
			return err
		case f.ctx.Err() != nil:
			return nil
		case errors.As(err, &unbegun) && try < startTries:
			continue
		case errors.As(err, &unbegun):
			_ = f.back.Kill(f.where(), client.Failure) // should one come after all, it ends
			return f.unstarted(fmt.Sprintf("the process that should keep it ended %d times before it began: %s", startTries, unbegun.Says))
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

// unstarted is the end of an attempt that never began.
func (f *follower) unstarted(why string) error {
	return f.finish(&backend.Exit{Code: backend.ExitSystem, Outcome: string(client.Failure), Text: why}, nil)
}

// where names it.
func (f *follower) where() backend.Ref {
	return backend.RefOf(f.job.ID, f.attempt.Number, f.job.Document.Pool, f.attempt.Shares)
}

// start lets the back end start it; to do it again does nothing more.
func (f *follower) start() error {
	_, err := f.secrets()
	if err == nil {
		_, err = f.lent()
	}
	if err != nil {
		return err
	}
	return f.declare(false)
}

// declare has the back end start the gang with the shares that it has by now; where that is to tell one that runs, as
// long as it goes on.
func (f *follower) declare(tell bool) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	all, over := f.attempt.Shares, false
	if err := f.do(func() {
		if l := f.goesOn(); l != nil {
			all = slices.Clone(l.attempt.Shares)
		} else {
			over = tell
		}
	}); err != nil || over {
		return err
	}
	g, err := f.whole(all)
	if err != nil {
		return err
	}
	g.Tell = tell
	return f.back.Start(f.until, g)
}

// whole is the gang with what earlier attempts left in outputs/, which each of its nodes gets.
func (f *follower) whole(all []client.Share) (backend.Gang, error) {
	g := backend.Gang{
		Job: f.job.ID, Attempt: f.attempt.Number, Document: f.job.Document, Shares: all, Code: f.job.Document.Code,
		Token: f.jobToken(f.job.ID, f.attempt.Number),
	}
	g.Secrets, _ = f.secrets() // one that is gone is missed where the attempt is started
	g.Lent, _ = f.lent()
	if g.Attempt == 1 {
		return g, nil
	}
	saved, err := f.store.Artifacts(f.ctx, f.job.ID)
	for _, a := range saved {
		g.Outputs = append(g.Outputs, snapshot.File{Path: a.Path, Mode: 0o644, Size: a.Size, Hash: a.Hash})
	}
	return g, err
}

// finish writes down how the attempt ended and what the job is then, in one transaction with the last records.
func (f *follower) finish(e *backend.Exit, b *batch) error {
	if err := f.do(func() { // an elastic job may have had others than at first
		if a := f.l.attempt; a != nil && a.Number == f.attempt.Number {
			f.attempt.Shares = a.Shares
		}
		e, f.vain = f.l.gang.instead(e, b), f.l.gang.failed != nil
	}); err != nil {
		return err
	}
	if b != nil && b.others != nil {
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
			if backend.Holds(x) && id != l.job.ID {
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
func (s *Server) forget(r backend.Ref) {
	if err := s.back.Kill(r, backend.Over); err != nil {
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
