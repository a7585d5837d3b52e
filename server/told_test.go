package server_test

import (
	"context"
	"database/sql"
	"testing"

	"hora/job"
	"hora/job/schedule"
	"hora/server/client"
)

// TestNobodyIsToldWhatIsNotWritten: a job that has been given slots runs for others once that is on the disk. A server
// that is killed before finds it queued, and nothing of it has started.
func TestNobodyIsToldWhatIsNotWritten(t *testing.T) {
	c := newCluster(t, map[string]int{})
	s := newSite(t, c)
	id := s.submit(1, 0)
	held, release, over := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		over <- s.store.Do(context.Background(), func(*sql.Tx) error {
			close(held)
			<-release
			return nil
		})
	}()
	<-held
	c.with(func() { c.zones["here"] = 1 })
	look := func(j client.Job) bool {
		if j.State != job.Queued || !j.Started.IsZero() || len(j.Attempts) > 0 {
			t.Fatalf("while nothing can be written down it is %s since %v, with attempts %+v", j.State, j.Started, j.Attempts)
		}
		return len(j.Shares) == 1 && j.Reason.Code == schedule.CodeNext && j.Reason.Text == "it starts with 1 slot on here"
	}
	s.becomes("it is given its slot", func() bool { return look(s.job(id)) })
	queue, err := s.client.Jobs(t.Context(), nil, "", "", 10)
	if err != nil || len(queue.Jobs) != 1 || !look(queue.Jobs[0]) {
		t.Errorf("the queue is %+v, %v", queue, err)
	}
	if is, err := s.client.About(t.Context()); err != nil || is.Queued != 1 || is.Running != 0 {
		t.Errorf("the server has %+v, %v", is, err)
	}
	close(release)
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	c.gang(id, 1)
	if j := s.job(id); j.State != job.Running || j.Started.IsZero() || len(j.Attempts) != 1 {
		t.Errorf("then it is %s since %v, with attempts %+v", j.State, j.Started, j.Attempts)
	}
}
