package server

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"hora/server/store"
)

// What becomes of a job is decided in the loop, and written down beside it: by who asked, who ends a job, and who
// follows its attempt. Each write of a job waits for the one before, so that the store never goes back to what was: a
// job that runs and stands there as queued would run twice after a restart, and one that has ended would run again.

// writing is one such write.
type writing struct {
	before *writing
	tried  chan struct{} // closed when it has been tried once
	err    error         // of that try
	done   chan struct{} // closed when it is written down, or the server ends
	ok     bool          // it is written down
}

// write has a change of a job written down after those before it, whoever made them; in the loop. What cannot be
// written down is tried again until it can: the loop goes on with what it has decided, and the store catches up. ctx
// says who did it.
func (s *Server) write(ctx context.Context, l *live, f func(tx *sql.Tx) error) *writing {
	w := &writing{before: l.last, tried: make(chan struct{}), done: make(chan struct{})}
	l.last = w
	ctx = context.WithoutCancel(ctx)
	id := l.job.ID
	s.wg.Go(func() {
		defer close(w.done)
		if w.before != nil {
			<-w.before.done
			w.before = nil
		}
		w.err = s.store.Do(ctx, f)
		w.ok = w.err == nil
		close(w.tried)
		for err := w.err; err != nil && !errors.Is(err, store.ErrClosed); w.ok = err == nil {
			s.log.Error("write down what becomes of a job", "job", id, "error", err)
			select {
			case <-time.After(time.Second):
			case <-s.ctx.Done():
				return
			}
			err = s.store.Do(ctx, f)
		}
	})
	return w
}

// wait returns when it is written down, or with why it is not yet.
func (w *writing) wait(ctx context.Context) error {
	select {
	case <-w.tried:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-w.done:
		if w.ok {
			return nil
		}
	default:
	}
	return w.err
}
