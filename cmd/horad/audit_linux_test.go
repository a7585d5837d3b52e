package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"hora/server/client"
	"hora/server/store"
)

// checkedAtOnce is how many records one call follows, where it does not say how many.
const checkedAtOnce = 10_000

// fillAudit adds records to those of a server that is not there, up to a number.
func (s *site) fillAudit(to int64) {
	s.t.Helper()
	st, err := store.Open(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	defer st.Close()
	all, err := st.Deeds(s.t.Context(), 0, 1)
	if err != nil || len(all) != 1 {
		s.t.Fatal(all, err)
	}
	if err := st.Do(s.t.Context(), func(tx *sql.Tx) error {
		for n := all[0].ID; n < to; n++ {
			d := client.Deed{At: time.Unix(n, 0), Who: "ana", What: "cancel", Target: fmt.Sprintf("/jobs/%d/cancel", n), Status: 200}
			if err := store.AddDeed(tx, d); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
}

// TestMoreRecordsThanOneCallFollows: a check goes on with a further call from where the one before came, and finds what
// was changed, removed or put in another's place there, and at the boundary; the first page says nothing of it.
func TestMoreRecordsThanOneCallFollows(t *testing.T) {
	s := newSite(t, 1)
	ctx := context.Background()
	if _, err := s.client.SetQuota(ctx, "vision", client.Quota{Slots: 1}); err != nil { // the first record
		t.Fatal(err)
	}
	s.kill()
	const records = checkedAtOnce + 500
	s.fillAudit(records)
	s.up()
	is, err := s.client.CheckDeeds(ctx)
	if err != nil || is.Records != records || is.Broken != "" || is.Next != "" {
		t.Fatalf("of %d records that are whole: %+v, %v", records, is, err)
	}
	if d, err := s.client.Deeds(ctx, "", 1); err != nil || d.Deeds[0].Hash != is.Hash || d.Deeds[0].ID != records {
		t.Errorf("the last record is %+v, %v, and not that of hash %s", d, err, is.Hash)
	}
	first := func() client.Chain {
		t.Helper()
		var c client.Chain
		answer, text := s.call("GET", "/api/v1/audit/check", "")
		if err := json.Unmarshal([]byte(text), &c); err != nil || answer.StatusCode != 200 {
			t.Fatalf("the first page answers %s, %s", answer.Status, text)
		}
		return c
	}
	if c := first(); c.Records != checkedAtOnce || c.Next != fmt.Sprint(checkedAtOnce) || c.Broken != "" {
		t.Errorf("the first page says %+v", c)
	}
	keep := func(id int) string { return fmt.Sprintf("CREATE TABLE kept AS SELECT * FROM audit WHERE id = %d", id) }
	const back = "INSERT OR REPLACE INTO audit SELECT * FROM kept; DROP TABLE kept"
	for _, c := range []struct {
		id     int
		change string
		first  string // what the first page says
		whole  string
	}{
		{10_200, "UPDATE audit SET who = 'owner' WHERE id = 10200", "", "record 10200 was changed after it was written"},
		{10_300, "DELETE FROM audit WHERE id = 10300", "", "record 10300 is missing: record 10301 follows record 10299"},
		{10_001, "DELETE FROM audit WHERE id = 10001", "", "record 10001 is missing: record 10002 follows record 10000"},
		{10_000, "UPDATE audit SET hash = 'x' WHERE id = 10000", "record 10000 was changed", "record 10000 was changed"},
		{10_000, "DELETE FROM audit WHERE id = 10000", "record 10000 is missing", "record 10000 is missing"},
	} {
		s.change(keep(c.id))
		s.change(c.change)
		if is := first(); c.first == "" && is.Broken != "" || !strings.Contains(is.Broken, c.first) {
			t.Errorf("%s: the first page says %+v", c.change, is)
		}
		is, err := s.client.CheckDeeds(ctx)
		if err != nil || !strings.Contains(is.Broken, c.whole) {
			t.Errorf("%s: %+v, %v", c.change, is, err)
		}
		if c.id == 10_300 {
			r := s.hora("audit", "--verify")
			if r.code != 1 || !strings.Contains(r.errs, "the records are not what they were: "+c.whole) {
				t.Errorf("%s: %+v", c.change, r)
			}
		}
		s.change(back)
	}
	if r := s.hora("audit", "--verify"); r.code != 0 || !strings.HasPrefix(r.out, fmt.Sprint(records, " records, none changed")) {
		t.Errorf("put back: %+v", r)
	}
}
