package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
)

// withAll is a job of a project with something of each kind, which ended then, and of which no node has anything more.
func withAll(t *testing.T, s *Store, project string, state job.State, ended time.Time) int64 {
	t.Helper()
	p := 50
	j := &client.Job{State: state, Queued: ended, Started: ended, Ended: ended, Document: client.Document{
		Project: project, Pool: "b", Priority: &p, Spec: job.Spec{Command: []string{"true"}},
	}}
	if err := s.Do(context.Background(), func(tx *sql.Tx) (err error) {
		if j.ID, err = NewJob(tx, j, []byte(`{"spec": {"command": ["true"]}}`)); err != nil {
			return err
		}
		return errors.Join(
			SetState(tx, j),
			AddLines(tx, j.ID, 1, []client.Line{{Attempt: 1, Number: 1, At: ended, Text: "said"}}),
			AddPoints(tx, j.ID, "loss", 0, []client.Point{{Step: 1, Value: 2}}),
			SetArtifact(tx, j.ID, client.Artifact{Path: "model", Size: 1, Hash: strings.Repeat("0", 64), At: ended}),
		)
	}); err != nil {
		t.Fatal(err)
	}
	return j.ID
}

// left lists the kinds of which a job has something.
func left(t *testing.T, s *Store, id int64) (kinds []string) {
	t.Helper()
	err := s.Read(context.Background(), func(tx *sql.Tx) error {
		for _, k := range kept {
			column, n := "job", 0
			if k.kind == "jobs" {
				column = "id"
			}
			err := tx.QueryRow("SELECT count(*) FROM "+k.table+" WHERE "+column+" = ?", id).Scan(&n)
			if err != nil {
				return err
			}
			if n > 0 {
				kinds = append(kinds, k.kind)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return kinds
}

// TestEachKindIsKeptForItsTime: of logs, metrics, artifacts and jobs goes what is kept no longer, and of nothing else
// anything; what is younger stays, as does what a project's own times keep, and a job that runs.
func TestEachKindIsKeptForItsTime(t *testing.T) {
	ctx, now := context.Background(), time.Now()
	all := []string{"logs", "metrics", "artifacts", "jobs"}
	for kind, r := range map[string]client.Retention{
		"logs": {Logs: 3600}, "metrics": {Metrics: 3600}, "artifacts": {Artifacts: 3600}, "jobs": {Jobs: 3600},
	} {
		s := open(t, t.TempDir())
		old := withAll(t, s, "a", job.Finished, now.Add(-2*time.Hour))
		stays := map[string]int64{
			"a younger one":            withAll(t, s, "a", job.Failed, now.Add(-time.Minute)),
			"one of a patient project": withAll(t, s, "patient", job.Finished, now.Add(-2*time.Hour)),
			"one that runs":            withAll(t, s, "a", job.Running, now.Add(-2*time.Hour)),
		}
		if err := s.Do(ctx, func(tx *sql.Tx) error {
			return errors.Join(SetRetention(tx, &r), SetRetention(tx, &client.Retention{Project: "patient", Jobs: 36000}))
		}); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Expire(ctx, now); n != 1 || err != nil {
			t.Errorf("%s: of %d jobs something was removed, %v", kind, n, err)
		}
		want := slices.DeleteFunc(slices.Clone(all), func(k string) bool { return k == kind || kind == "jobs" })
		if got := left(t, s, old); !slices.Equal(got, want) {
			t.Errorf("%s are kept for an hour: of an old job %q are left, and not %q", kind, got, want)
		}
		for what, id := range stays {
			if got := left(t, s, id); !slices.Equal(got, all) {
				t.Errorf("%s are kept for an hour: of %s only %q are left", kind, what, got)
			}
		}
		story, err := s.Happenings(ctx, old)
		says := len(story) == 1 && strings.Contains(story[0].Text, "removed: "+kind+" are kept for 1h0m0s")
		if err != nil || says == (kind == "jobs") {
			t.Errorf("%s: its story says %+v, %v", kind, story, err)
		}
	}
}
