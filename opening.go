package hora

import (
	"context"
	"slices"
	"time"
)

// opening is a group that is being made.
type opening struct {
	ranks []int
	end   context.CancelCauseFunc
}

// together returns a context for making a group, which ends when a member is lost or has
// left: it would be waited for in vain. The caller calls done.
func (w *World) together(ctx context.Context, ranks []int) (_ context.Context, done func()) {
	ctx, end := context.WithCancelCause(ctx)
	o := &opening{ranks, end}
	w.mu.Lock()
	w.openings[o] = struct{}{}
	err := w.ended
	for _, r := range ranks {
		if err == nil {
			err = w.absent[r]
		}
	}
	w.mu.Unlock()
	if err != nil {
		end(err)
	}
	return ctx, func() {
		w.mu.Lock()
		delete(w.openings, o)
		w.mu.Unlock()
		end(nil)
	}
}

// missed returns why a group was not made: the loss of a member, if that is what it was. The word of it may be on its
// way when another rank's comes first.
func missed(ctx context.Context, err error) error {
	t := time.NewTimer(lastWord)
	defer t.Stop()
	select {
	case <-ctx.Done():
		if cause := context.Cause(ctx); cause != ctx.Err() {
			return cause
		}
	case <-t.C:
	}
	return err
}

// miss ends the making of groups that err concerns, -1 for all, now and later. The caller
// holds mu.
func (w *World) miss(rank int, err error) {
	if rank >= 0 && w.absent[rank] == nil {
		w.absent[rank] = err
	}
	for o := range w.openings {
		if rank < 0 || slices.Contains(o.ranks, rank) {
			o.end(err)
		}
	}
}

// left hears that a rank has left on purpose.
func (w *World) left(rank int, host string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.miss(rank, &PeerLostError{Rank: rank, Host: host, Reason: "has left the job"})
}
