package hora

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"hora/elastic/rendezvous"
)

// fruitless is how many epochs in a row may break before their first commit.
const fruitless = 20

// Training is what RunElastic runs in every epoch: from where the state stands to the
// end of the work. It calls State.Commit and returns its error, and those of
// operations, as they are; anything else it returns ends the job on this rank.
type Training func(ctx context.Context, w *World) error

// RunElastic joins the job that cfg names and runs train until it returns nil on every
// rank. When a worker is lost, the others return to the last commit, join the next
// epoch over the connection they have, take in whoever replaces it, and go on; nobody
// is started again for it. When workers come, all go on with them after a commit.
//
// A SIGTERM makes this process commit, leave and return ErrDrained.
func RunElastic(ctx context.Context, cfg Config, state *State, train Training) error {
	if state.fault != nil {
		return state.fault
	}
	m, err := Enroll(cfg)
	if err != nil {
		return err
	}
	defer m.Close()
	state.news = m.News
	defer func() { state.news = nil }()
	defer m.onTerminate()()
	r := &elasticRun{m: m, state: state, train: train}
	for {
		more, err := r.epoch(ctx)
		if !more {
			return err
		}
	}
}

// elasticRun is the loop of RunElastic.
type elasticRun struct {
	m      *Membership
	state  *State
	train  Training
	epochs int
	vain   int       // epochs in a row without a commit
	broke  time.Time // when the last epoch ended here
	cause  error     // why it ended
	undone int       // steps done since the last commit then; -1 when the state does not count steps
}

// epoch joins an epoch and trains in it; more says that another follows.
func (r *elasticRun) epoch(ctx context.Context) (more bool, err error) {
	w, err := r.m.Join(ctx)
	if errors.Is(err, ErrDrained) {
		return false, errors.Join(err, r.m.Leave(ctx, r.m.Asked()))
	}
	if err != nil {
		return false, r.noMore(err)
	}
	r.epochs++
	err = r.begin(ctx, w)
	before := r.state.commits
	if err == nil {
		err = r.train(ctx, w)
	}
	if err == nil {
		err = r.finish(ctx, w)
		if err == nil {
			return false, r.m.Leave(ctx, "")
		}
	}
	r.broke, r.cause = time.Now(), err
	if r.vain++; r.state.commits > before {
		r.vain = 0
	}
	switch {
	case r.vain >= fruitless:
		return false, fmt.Errorf("%d epochs in a row broke before anything was committed: %w", r.vain, err)
	case errors.Is(err, ErrDrained):
		if left := r.m.Leave(ctx, r.m.Asked()); left != nil {
			err = errors.Join(err, left)
		}
		return false, err
	case errors.Is(err, ErrChanged): // ranks that hear of it later break off in the middle of a step
	case r.m.alone() || !r.m.broken(err):
		return false, err
	}
	r.undone = r.state.undone()
	if err := r.state.Restore(); err != nil {
		return false, err
	}
	return true, nil
}

// noMore returns why no epoch follows the last one, in the words of the loss that ended that.
func (r *elasticRun) noMore(err error) error {
	var no *rendezvous.JoinError
	var peer *PeerLostError
	switch {
	case !errors.As(r.cause, &peer):
		return err
	case errors.As(err, &no) && no.Final:
		return fmt.Errorf("%w; the job does not go on without it: hora run --restarts N replaces lost workers, --on-loss continue lets the others go on", peer)
	}
	return fmt.Errorf("%w; then: %w", peer, err)
}

// begin makes the state equal on all ranks.
func (r *elasticRun) begin(ctx context.Context, w *World) error {
	if r.epochs > 1 {
		for _, f := range r.state.resets {
			if err := f(w); err != nil {
				return fmt.Errorf("reset for epoch %d: %w", w.Epoch(), err)
			}
		}
	}
	if err := r.state.sync(ctx, w, false); err != nil {
		return err
	}
	if r.epochs > 1 {
		r.m.Recovered(time.Since(r.broke), r.undone, r.cause.Error())
	}
	return nil
}

// finish ends the work together: a loss before all ranks have finished is answered by
// one more epoch, a later one is none of the others' business.
func (r *elasticRun) finish(ctx context.Context, w *World) error {
	if err := Barrier(ctx, w.Group()); err != nil {
		return fmt.Errorf("finish training: %w", err)
	}
	done, err := r.m.Finish(ctx)
	if err == nil && !done {
		if err = r.m.News(); err == nil {
			err = ErrChanged
		}
	}
	return err
}

// onTerminate has SIGTERM drain this rank until the returned function is called.
func (m *Membership) onTerminate() (stop func()) {
	ch := make(chan os.Signal, 1)
	end := make(chan struct{})
	signal.Notify(ch, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ch:
			signal.Stop(ch) // a second one ends the process
			m.Drain("SIGTERM")
		case <-end:
		}
	}()
	return func() {
		signal.Stop(ch)
		close(end)
		<-done
	}
}
