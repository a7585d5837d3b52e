package store

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
)

// TestStatementsAreKept: a text is parsed once a connection, a statement whose rows are read is not lent again, one
// that fails works the next time, and a changed schema is seen.
func TestStatementsAreKept(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	do := func(query string, args ...any) error {
		return s.Do(ctx, func(tx *sql.Tx) error { _, err := tx.Exec(query, args...); return err })
	}
	for i := range 3 {
		if err := do("INSERT INTO quotas (project, slots, most, share) VALUES (?, ?, ?, ?)", fmt.Sprint("p", i), i, i, 0.5); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the same again is refused, and the statement is as good as before
		if do("INSERT INTO quotas (project, slots, most, share) VALUES (?, ?, ?, ?)", "p1", 1, 1, 0.5) == nil {
			t.Error("a project has two quotas")
		}
	}
	if err := do("INSERT INTO quotas (project, slots, most, share) VALUES (?, ?, ?, ?)", "p3", nil, 3, 0.5); err == nil {
		t.Error("what was bound before stands for what is NULL")
	}
	pairs := 0
	err = s.Do(ctx, func(tx *sql.Tx) error {
		const all = "SELECT project FROM quotas WHERE slots >= ? ORDER BY project"
		outer, err := tx.Query(all, 0)
		if err != nil {
			return err
		}
		defer outer.Close()
		for outer.Next() {
			inner, err := tx.Query(all, 1)
			if err != nil {
				return err
			}
			for inner.Next() {
				pairs++
			}
			if err := inner.Err(); err != nil {
				return err
			}
		}
		return outer.Err()
	})
	if err != nil || pairs != 3*2 {
		t.Errorf("a query within itself found %d pairs of 6: %v", pairs, err)
	}
	if _, err := s.write.Exec("ALTER TABLE quotas ADD COLUMN more INTEGER NOT NULL DEFAULT 7"); err != nil {
		t.Fatal(err)
	}
	if err := do("INSERT INTO quotas (project, slots, most, share) VALUES (?, ?, ?, ?)", "p4", 4, 4, 0.5); err != nil {
		t.Errorf("after a column was added: %v", err)
	}
	for i := range 3 * keepMost {
		if err := do(fmt.Sprintf("DELETE FROM quotas WHERE slots = %d", 1000+i)); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := s.write.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.Raw(func(c any) error {
		k, ok := c.(*keeping)
		if !ok {
			t.Fatalf("the connection is %T and keeps nothing", c)
		}
		p := k.all["INSERT INTO quotas (project, slots, most, share) VALUES (?, ?, ?, ?)"]
		if p == nil || p.lent || len(k.all) > keepMost {
			t.Errorf("%d statements are kept, and %v", len(k.all), p)
		}
		return nil
	})
}
