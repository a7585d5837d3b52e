package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// What is removed for its age cannot be had back, so that a clock that is wrong for an hour must not decide on it.
const (
	stepMost = 3 * 24 * time.Hour // the longest that a server is away, or stands still, without a word about it
	evenFor  = 24 * time.Hour     // how long the clock must have run without a step of more
)

// Clock is what a store knows of the clock of its machine.
type Clock struct {
	last  time.Time // when it was looked at
	since time.Time // its last long step; zero where none is known
}

// Look takes the clock's word, and says until when nothing may be removed for its age: zero where all may be.
func (s *Store) Look(ctx context.Context, now time.Time) (until time.Time, err error) {
	err = s.Do(ctx, func(tx *sql.Tx) error {
		var last, since int64
		err := tx.QueryRow("SELECT last, since FROM clock").Scan(&last, &since)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		c := Clock{at(last), at(since)}
		until = c.look(now)
		_, err = tx.Exec("INSERT OR REPLACE INTO clock (id, last, since) VALUES (1, ?, ?)", nanos(c.last), nanos(c.since))
		return err
	})
	return until, err
}

func (c *Clock) look(now time.Time) (until time.Time) {
	if step := now.Sub(c.last); !c.last.IsZero() && (step > stepMost || step < -stepMost) {
		c.since = now
	}
	c.last = now
	if end := c.since.Add(evenFor); !c.since.IsZero() && now.Before(end) {
		return end
	}
	return time.Time{}
}

// ExpirePasses removes tokens of people, of pools and of nodes that expired a day ago.
func (s *Store) ExpirePasses(ctx context.Context, now time.Time) error {
	return s.Do(ctx, func(tx *sql.Tx) error {
		for _, table := range []string{"passes", "tokens"} {
			if _, err := tx.Exec("DELETE FROM "+table+" WHERE expires > 0 AND expires < ?", nanos(now.AddDate(0, 0, -1))); err != nil {
				return err
			}
		}
		return nil
	})
}
