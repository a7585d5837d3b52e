package server

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"

	"hora/server/store"
)

// TestWritesOfAJobKeepTheirOrder: a write that fails is tried again before the next one of that job is, and who waits
// for it hears of the failure.
func TestWritesOfAJobKeepTheirOrder(t *testing.T) {
	st, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	s := &Server{store: st, log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	l := &live{}
	var order []int
	tries := 0
	first := s.write(s.ctx, l, func(*sql.Tx) error {
		if tries++; tries == 1 {
			return errors.New("no room")
		}
		order = append(order, 1)
		return nil
	})
	var rest []*writing
	for n := 2; n <= 5; n++ {
		rest = append(rest, s.write(s.ctx, l, func(*sql.Tx) error { order = append(order, n); return nil }))
	}
	other := s.write(s.ctx, &live{}, func(*sql.Tx) error { return nil })
	if err := other.wait(t.Context()); err != nil {
		t.Errorf("another job's write waits for this one's: %v", err)
	}
	if err := first.wait(t.Context()); err == nil || err.Error() != "no room" {
		t.Errorf("the first try answers %v", err)
	}
	for _, w := range rest {
		if err := w.wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if want := []int{1, 2, 3, 4, 5}; !slices.Equal(order, want) {
		t.Errorf("they are written in the order %v", order)
	}
	if err := first.wait(t.Context()); err != nil {
		t.Errorf("it is written down at last, and answers %v", err)
	}
	s.wg.Wait()
}
