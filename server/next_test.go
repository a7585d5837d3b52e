package server

import (
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
)

// TestOutOfMemoryAgain: a job that ran out of memory beside others comes back alone, at nobody's cost. One that was
// alone needs one of its retries for that.
func TestOutOfMemoryAgain(t *testing.T) {
	now := time.Unix(1000, 0)
	s := &Server{now: func() time.Time { return now }}
	l := &live{beside: now, job: client.Job{ID: 1, Document: client.Document{Retries: 2}}}
	for i, want := range []job.State{job.Queued, job.Queued, job.Queued, job.Failed} {
		l.job.State = job.Running
		j := s.next(l, &client.Attempt{Number: i + 1, Outcome: client.OutOfMemory})
		if j.State != want || !l.alone {
			t.Errorf("after attempt %d it is %s, and not %s; alone: %v", i+1, j.State, want, l.alone)
		}
		now = now.Add(2 * besideFor)
	}
}
