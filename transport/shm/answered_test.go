//go:build linux

package shm

import (
	"context"
	"errors"
	"testing"
	"time"

	"hora/internal/secret"
)

// heard is a context that ends when what is said to the leader gets bounded by it: after the
// dialling, before the answer.
type heard struct {
	context.Context
	done chan struct{}
}

func (h *heard) Done() <-chan struct{} { return h.done }

func (h *heard) Err() error {
	select {
	case <-h.done:
		return context.Canceled
	default:
		return nil
	}
}

// AfterFunc is what context.AfterFunc calls.
func (h *heard) AfterFunc(f func()) func() bool {
	close(h.done)
	go f() // the caller holds a lock
	return func() bool { return false }
}

// TestAnAnsweredRankHasTheMemory: a rank whose context ends while the leader answers has the
// link as all others have it. One of them may have left at once, and that is why the context
// ended; an error here alone would leave the others with a group that this rank is not in.
func TestAnAnsweredRankHasTheMemory(t *testing.T) {
	s := secret.New()
	ln, err := Listen(s, ListenConfig{Job: t.Name(), Host: "h"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	open := func(ctx context.Context, rank int) (*Link, error) {
		return Open(ctx, Config{
			Secret: s, Job: t.Name(), Host: "h", Rank: rank, Ranks: []int{0, 1}, Listener: ln, Leader: ln.Addr(),
		})
	}
	ctx := &heard{t.Context(), make(chan struct{})}
	got := make(chan error, 1)
	go func() {
		l, err := open(ctx, 1)
		if err == nil {
			err = l.Close()
		}
		got <- err
	}()
	whole, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	select {
	case <-ctx.done: // the leader comes after that
	case <-whole.Done():
		t.Fatal("the other rank has not come")
	}
	l, err := open(whole, 0)
	if err := errors.Join(err, <-got); err != nil {
		t.Fatal(err)
	}
	l.Close()
}
