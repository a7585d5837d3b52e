package server

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
	"hora/server/store"
)

// said is a log whose lines are heard as they come.
type said chan string

func (s said) Write(p []byte) (int, error) {
	s <- string(bytes.TrimSpace(p))
	return len(p), nil
}

// oldThings adds a job that ended then and is kept for an hour, and a token that expires a week later.
func oldThings(t *testing.T, st *store.Store, then time.Time) {
	t.Helper()
	priority := 50
	old := &client.Job{State: job.Finished, Queued: then, Document: client.Document{
		Project: "a", Priority: &priority, Spec: job.Spec{Command: []string{"true"}},
	}}
	old.Ended = then
	if err := st.Do(t.Context(), func(tx *sql.Tx) error {
		id, err := store.NewJob(tx, old, []byte(`{"spec": {"command": ["true"]}}`))
		if err == nil {
			old.ID = id
			err = store.SetState(tx, old)
		}
		if err == nil {
			err = store.SetRetention(tx, &client.Retention{Jobs: 3600})
		}
		if err == nil {
			week := store.Token{Scope: store.ScopeJoin, Pool: "p", Expires: then.AddDate(0, 0, 7)}
			err = store.AddToken(tx, "secret", week)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestAWrongClockRemovesNothing: while the clock is ten years ahead, and for a day after it was set right, no job and
// no token goes for its age; then what is kept no longer does.
func TestAWrongClockRemovesNothing(t *testing.T) {
	st, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	ctx, cancel := context.WithCancel(t.Context())
	first := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	oldThings(t, st, first)
	there := func() (jobs int, token bool) {
		if err := st.Read(ctx, func(tx *sql.Tx) error {
			return tx.QueryRow("SELECT count(*) FROM jobs").Scan(&jobs)
		}); err != nil {
			t.Fatal(err)
		}
		_, token, err := st.Token(ctx, "secret")
		if err != nil {
			t.Fatal(err)
		}
		return jobs, token
	}
	var now atomic.Pointer[time.Time]
	heard := make(said, 100)
	s := &Server{
		store: st, ctx: ctx, expires: make(chan struct{}), now: func() time.Time { return *now.Load() },
		log: slog.New(slog.NewTextHandler(heard, nil)),
	}
	set := func(at time.Time) { now.Store(&at) }
	set(first)
	done := make(chan struct{})
	go func() { s.tendRetention(); close(done) }()
	look := func(at time.Time) { // taken when the loop waits, so that the look before is through
		s.expires <- struct{}{}
		set(at)
		s.expires <- struct{}{}
		s.expires <- struct{}{}
	}
	hour := func(n int) time.Time { return first.Add(time.Duration(n) * time.Hour) }
	for _, at := range []time.Time{first.AddDate(10, 0, 0), first.AddDate(10, 0, 0).Add(time.Hour), hour(2), hour(25)} {
		look(at)
		if jobs, token := there(); jobs != 1 || !token {
			t.Fatalf("at %v %d jobs of 1 are there, token %v", at, jobs, token)
		}
	}
	look(hour(26))
	if jobs, token := there(); jobs != 0 || !token {
		t.Fatalf("a day after it was set right %d jobs are there, token %v", jobs, token)
	}
	for day := 3; day <= 9; day += 2 {
		look(hour(24 * day))
	}
	if _, token := there(); token {
		t.Error("a token that expired a day ago is there")
	}
	cancel()
	<-done
	close(heard)
	var all []string
	for line := range heard {
		all = append(all, line)
	}
	if warned := strings.Count(strings.Join(all, "\n"), "the clock went more than three days at once"); warned != 2 {
		t.Errorf("it was said %d times of 2:\n%s", warned, strings.Join(all, "\n"))
	}
}
