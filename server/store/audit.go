package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"hora/server/client"
)

// Each record of who did what has the hash of the one before it, and its own: of that and of all that it says. Who
// changes or removes a record must change all that follow; who has noted the last hash elsewhere sees even that.

// Deed is a record that is written with the first write of the call it is about, in the same transaction, or by itself.
type Deed struct {
	client.Deed
	written atomic.Bool
}

// Written says whether it is on the disk, or on its way there.
func (d *Deed) Written() bool { return d.written.Load() }

type deedKey struct{}

// WithDeed has the first Do of this context write d down with what it writes.
func WithDeed(ctx context.Context, d *Deed) context.Context {
	return context.WithValue(ctx, deedKey{}, d)
}

// noting adds the deed of a context, if it has one that is not written, to a write.
func noting(ctx context.Context, f func(*sql.Tx) error) (with func(*sql.Tx) error, failed func()) {
	d, _ := ctx.Value(deedKey{}).(*Deed)
	if d == nil {
		return f, func() {}
	}
	return along(f, &d.written, func(tx *sql.Tx) error { return AddDeed(tx, d.Deed) })
}

// along has the first write that comes of some write one thing more down. Who is told that its write has come to
// nothing calls failed: the next one, which may be the same once more, takes it along then.
func along(
	f func(*sql.Tx) error, written *atomic.Bool, more func(*sql.Tx) error,
) (with func(*sql.Tx) error, failed func()) {
	if written.Load() {
		return f, func() {}
	}
	mine := false // the writer's until it has answered
	with = func(tx *sql.Tx) error {
		if err := f(tx); err != nil {
			return err
		}
		if !written.CompareAndSwap(false, true) {
			return nil
		}
		mine = true
		return more(tx)
	}
	return with, func() {
		if mine {
			written.Store(false)
		}
	}
}

// link is a record's hash.
func link(before string, d *client.Deed) string {
	b, _ := json.Marshal([]any{before, d.ID, nanos(d.At), d.Who, d.Address, d.What, d.Target, d.Status, d.Text})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// AddDeed writes a record down.
func AddDeed(tx *sql.Tx, d client.Deed) error {
	before := ""
	err := tx.QueryRow("SELECT id, hash FROM audit ORDER BY id DESC LIMIT 1").Scan(&d.ID, &before)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	d.ID++
	_, err = tx.Exec("INSERT INTO audit (id, at, who, address, what, target, status, text, before, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		d.ID, nanos(d.At), d.Who, d.Address, d.What, d.Target, d.Status, d.Text, before, link(before, &d))
	return err
}

// Note writes a record down by itself.
func (s *Store) Note(ctx context.Context, d client.Deed) error {
	return s.Do(ctx, func(tx *sql.Tx) error { return AddDeed(tx, d) })
}

const deedColumns = "id, at, who, address, what, target, status, text, before, hash"

func scanDeed(scan func(...any) error, d *client.Deed, before *string) error {
	var when int64
	err := scan(&d.ID, &when, &d.Who, &d.Address, &d.What, &d.Target, &d.Status, &d.Text, before, &d.Hash)
	d.At = at(when)
	return err
}

// Deeds lists records below a number, the newest first; below 0 all of them.
func (s *Store) Deeds(ctx context.Context, below int64, limit int) (all []client.Deed, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT "+deedColumns+" FROM audit WHERE ? = 0 OR id < ? ORDER BY id DESC LIMIT ?", below, below, limit)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var d client.Deed
			var before string
			if err := scanDeed(rows.Scan, &d, &before); err != nil {
				return err
			}
			all = append(all, d)
		}
		return rows.Err()
	})
	return all, err
}

// CheckDeeds follows the chain after a record, for so many, and answers how far it came and the last hash there, or the
// first record that does not fit. From there it goes on with a next call, where there is more.
func (s *Store) CheckDeeds(ctx context.Context, after int64, limit int) (c client.Chain, err error) {
	c.Records = after
	err = s.Read(ctx, func(tx *sql.Tx) error {
		if after > 0 { // what its hash tells was followed by the call before
			if err := tx.QueryRow("SELECT hash FROM audit WHERE id = ?", after).Scan(&c.Hash); errors.Is(err, sql.ErrNoRows) {
				c.Broken = fmt.Sprintf("record %d is missing", after)
				return nil
			} else if err != nil {
				return err
			}
		}
		rows, err := tx.Query("SELECT "+deedColumns+" FROM audit WHERE id > ? ORDER BY id LIMIT ?", after, limit+1)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if c.Records == after+int64(limit) {
				c.Next = strconv.FormatInt(c.Records, 10)
				return nil
			}
			var d client.Deed
			var before string
			if err := scanDeed(rows.Scan, &d, &before); err != nil {
				return err
			}
			if c.Records++; !follows(&c, &d, before) {
				return nil
			}
			c.Hash = d.Hash
		}
		return rows.Err()
	})
	return c, err
}

// follows says whether a record follows what stands before it, and what is wrong where it does not.
func follows(c *client.Chain, d *client.Deed, before string) bool {
	switch {
	case d.ID != c.Records:
		c.Broken = fmt.Sprintf("record %d is missing: record %d follows record %d", c.Records, d.ID, c.Records-1)
	case before != c.Hash:
		c.Broken = fmt.Sprintf("record %d does not follow what stands before it: record %d was changed, or others were put in its place", d.ID, d.ID-1)
	case link(before, d) != d.Hash:
		c.Broken = fmt.Sprintf("record %d was changed after it was written", d.ID)
	}
	return c.Broken == ""
}
