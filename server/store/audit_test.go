package store

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"hora/server/client"
)

// TestADeedOfACommitThatFailed: a write whose commit came to nothing, as on a full disk, is made again with its record;
// and so is the key of its call.
func TestADeedOfACommitThatFailed(t *testing.T) {
	s := open(t, t.TempDir())
	d := &Deed{Deed: client.Deed{At: time.Now(), Who: "ana", What: "cancel", Target: "/jobs/7/cancel", Status: 200}}
	claim := &Claim{ID: "of ana", Request: "cancel 7", At: time.Now()}
	ctx := WithClaim(WithDeed(t.Context(), d), claim)

	// Three writes in one commit, of which the last one finds the disk full: that takes all of them back.
	waits, begun := make(chan struct{}), make(chan struct{})
	answers := make(chan error, 3)
	write := func(ctx context.Context, f func(*sql.Tx) error) { go func() { answers <- s.Do(ctx, f) }() }
	queued := func(n int) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); len(s.asks) != n; <-time.After(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d writes wait, and not %d", len(s.asks), n)
			}
		}
	}
	write(t.Context(), func(*sql.Tx) error { close(begun); <-waits; return nil })
	<-begun
	change := func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO users (name, added) VALUES ('max', 1)")
		return err
	}
	write(ctx, change)
	queued(1)
	write(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec("ROLLBACK")
		return errors.Join(ErrFull, err)
	})
	queued(2)
	close(waits)
	failed := 0
	for range 3 {
		if err := <-answers; err != nil {
			failed++
		}
	}
	if failed != 2 || d.Written() || claim.Written() {
		t.Errorf("%d of 3 writes failed, and 2 were in one commit; the record is written: %v, the key: %v", failed, d.Written(), claim.Written())
	}
	if err := s.Do(ctx, change); err != nil {
		t.Fatal(err)
	}
	all, err := s.Deeds(t.Context(), 0, 10)
	if err != nil || len(all) != 1 || all[0].Who != "ana" || !d.Written() {
		t.Errorf("the change was made with the second try, and its records are %+v, %v", all, err)
	}
	if request, _, err := s.Answer(t.Context(), claim.ID); err != nil || request != claim.Request {
		t.Errorf("of its key is kept %q, %v", request, err)
	}
}
