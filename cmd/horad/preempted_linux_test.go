package main

import (
	"fmt"
	"strings"
	"testing"

	"hora/job"
	"hora/server/client"
)

// TestAPreemptedJobGoesOn: a preemptible job gives way to one of a higher priority, queues again with what it saved in
// outputs/, and that eats none of its retries, of which it has none.
func TestAPreemptedJobGoesOn(t *testing.T) {
	s := newSite(t, 1)
	low, high := 10, 90
	r := s.hora("submit", "--preemptible", "--priority", "10", "--no-code", "--", "sh", "-c", `n=$(cat outputs/n 2>/dev/null || echo 0)
echo $((n+1)) > outputs/n
echo begins at $n
[ $n = 0 ] || exit 0
while :; do sleep 0.05; done`)
	if r.code != 0 || r.out != "1\n" {
		t.Fatalf("%+v", r)
	}
	const first = 1
	s.eventually("it has begun", func() bool { return strings.Contains(s.text(first), "begins at 0") })

	same := shell(1, "true")
	same.Priority = &low
	waits := s.submit(same) // of no higher priority: nobody gives way to it
	urgent := shell(1, "true")
	urgent.Priority = &high
	before := s.until(s.submit(urgent).ID, ended)
	if before.State != job.Finished {
		t.Errorf("the urgent one ended as %+v", before)
	}
	j := s.until(first, ended)
	if j.State != job.Finished || len(j.Attempts) != 2 || j.Attempts[0].Outcome != client.Preempted {
		t.Fatalf("the preempted one ended as %+v", j)
	}
	if !j.Attempts[1].Started.After(before.Started) || j.Attempts[0].Ended.After(before.Started) {
		t.Errorf("the urgent one started at %v, between %v and %v", before.Started, j.Attempts[0].Ended, j.Attempts[1].Started)
	}
	if text := s.text(first); !strings.Contains(text, "begins at 1") {
		t.Errorf("what it saved did not come along: %q", text)
	}
	if w := s.until(waits.ID, ended); w.Started.Before(before.Started) {
		t.Errorf("one of no higher priority started at %v, before the urgent one", w.Started)
	}
}

// TestPriorityOfARunningJob: a preemptible job that was given a higher priority while it runs gives way to none of a
// lower one than that.
func TestPriorityOfARunningJob(t *testing.T) {
	s := newSite(t, 1)
	low := 10
	d := shell(1, "while :; do sleep 0.05; done")
	d.Priority, d.Preemptible, d.TimeLimit = &low, true, 3600
	first := s.submit(d)
	s.until(first.ID, in(job.Running))
	if r := s.hora("priority", fmt.Sprint(first.ID), "90"); r.code != 0 || !strings.Contains(r.out, "priority 90") {
		t.Fatalf("%+v", r)
	}
	second := s.submit(shell(1, "true")) // of 50
	var head client.Job
	s.eventually("the second one is decided on", func() bool { // which nobody who follows it is woken for
		var err error
		head, err = s.client.Job(t.Context(), second.ID)
		return err == nil && head.Reason != nil && !head.Reason.Start.IsZero()
	})
	if head.State != job.Queued || head.Reason.Code != "slots" {
		t.Errorf("the second one is decided on and is %s: %+v", head.State, head.Reason)
	}
	if r := s.hora("priority", fmt.Sprint(second.ID), "95"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.until(second.ID, in(job.Finished))
	s.hora("cancel", fmt.Sprint(first.ID))
	s.until(first.ID, ended)
}
