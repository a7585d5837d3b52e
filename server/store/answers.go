package store

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"
)

// What a call with an idempotency key has answered is kept, so that the same call again answers the same and does
// nothing. That it was made at all stands in the transaction of what it did first.

// Claim is that a call is made with a key.
type Claim struct {
	ID      string // of caller and key: a hash, from which neither is found
	Request string // of what was sent: a hash for this claim alone
	At      time.Time
	written atomic.Bool
}

// Written says whether the call has written anything, and that it was made with it.
func (c *Claim) Written() bool { return c.written.Load() }

type claimKey struct{}

// WithClaim has the first Do of this context write c down with what it writes.
func WithClaim(ctx context.Context, c *Claim) context.Context {
	return context.WithValue(ctx, claimKey{}, c)
}

// claiming adds the claim of a context, if it has one that is not written, to a write.
func claiming(ctx context.Context, f func(*sql.Tx) error) (with func(*sql.Tx) error, failed func()) {
	c, _ := ctx.Value(claimKey{}).(*Claim)
	if c == nil {
		return f, func() {}
	}
	return along(f, &c.written, func(tx *sql.Tx) error { return c.keep(tx, nil) })
}

// MadeBefore says whether the call of a context, which has a key, was made before: what it writes is on the disk then,
// and the server ended before its answer was kept. tx is that of the call's first write.
func MadeBefore(ctx context.Context, tx *sql.Tx) (before bool, err error) {
	c, _ := ctx.Value(claimKey{}).(*Claim)
	if c == nil {
		return false, nil
	}
	return before, tx.QueryRow("SELECT EXISTS (SELECT 1 FROM answers WHERE id = ?)", c.ID).Scan(&before)
}

// What is known of keys: for so long, and of so many calls.
const (
	keysFor     = 7 * 24 * time.Hour
	answersMost = 10_000
	keysMost    = 1_000_000 // of submissions, of which nothing is kept but the job's number
)

func (c *Claim) keep(tx *sql.Tx, answer []byte) error {
	r, err := tx.Exec("INSERT OR REPLACE INTO answers (id, request, at, answer) VALUES (?, ?, ?, ?)", c.ID, c.Request, nanos(c.At), answer)
	if err != nil {
		return err
	}
	seq, err := r.LastInsertId()
	if err != nil {
		return err
	}
	_, err = tx.Exec("DELETE FROM answers WHERE seq <= ?", seq-answersMost)
	return err
}

// SetAnswer keeps what a call has answered.
func SetAnswer(tx *sql.Tx, c *Claim, answer []byte) error { return c.keep(tx, answer) }

// DropAnswer forgets a call that was refused after all.
func DropAnswer(tx *sql.Tx, c *Claim) error {
	_, err := tx.Exec("DELETE FROM answers WHERE id = ?", c.ID)
	return err
}

// Answer finds a call with the same key: what was sent, and what was answered, nil where that is not known.
func (s *Store) Answer(ctx context.Context, id string) (request string, answer []byte, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		err := tx.QueryRow("SELECT request, answer FROM answers WHERE id = ?", id).Scan(&request, &answer)
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return err
	})
	return request, answer, err
}

// Key ties an idempotency key, and the hash of what was sent with it, to the job that it made.
func Key(tx *sql.Tx, key, request string, job int64, now time.Time) error {
	_, err := tx.Exec("INSERT INTO keys (key, request, job, at) VALUES (?, ?, ?, ?)", key, request, job, nanos(now))
	return err
}

// ByKey answers the job that a key has made, 0 for none, and what was sent; "" where an earlier release kept it.
func ByKey(tx *sql.Tx, key string) (id int64, request string, err error) {
	err = tx.QueryRow("SELECT job, request FROM keys WHERE key = ?", key).Scan(&id, &request)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return id, request, err
}

// ExpireKeys forgets answers that are old, and keys of submissions that are old, or too many.
func (s *Store) ExpireKeys(ctx context.Context, now time.Time) error {
	return s.Do(ctx, func(tx *sql.Tx) error {
		if _, err := tx.Exec("DELETE FROM answers WHERE at < ?", nanos(now.Add(-keysFor))); err != nil {
			return err
		}
		_, err := tx.Exec("DELETE FROM keys WHERE at < max(?, coalesce((SELECT at FROM keys ORDER BY at DESC LIMIT 1 OFFSET ?), 0))",
			nanos(now.Add(-keysFor)), keysMost)
		return err
	})
}
