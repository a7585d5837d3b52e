package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
	"hora/server/node"
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

// saves is a job that, when it is told to end, saves for longer than a job has that is cancelled, and ends as if
// nothing were amiss. It goes on from what each of its ranks has saved.
const saves = `n=$(cat outputs/n.$HORA_RANK 2>/dev/null || echo 0)
save() {
	i=0
	while [ $i -lt 120 ]; do sleep 0.05; i=$((i+1)); done
	echo $((n+1)) > outputs/n.$HORA_RANK
	echo saved
	exit 0
}
trap save TERM
echo begins at $n
[ $n = 0 ] || exit 0
while :; do sleep 0.05; done`

// TestAPreemptedJobSavesWhenItIsTold: a preemptible job of a fixed size, on one node or more, has the time to save when
// it is told to end, and goes on from that.
func TestAPreemptedJobSavesWhenItIsTold(t *testing.T) {
	for _, nodes := range [][]string{{"one"}, {"one", "two"}} {
		t.Run(fmt.Sprint(len(nodes)), func(t *testing.T) {
			t.Parallel() // it waits, most of the time
			s := labOf(t, nodes...)
			low, high, np := 10, 90, 2*len(nodes)
			d := shell(np, saves)
			d.Priority, d.Preemptible, d.Pool = &low, true, "lab"
			first := s.submit(d)
			s.eventually("all have begun", func() bool { return strings.Count(s.text(first.ID), "begins at 0") == np })
			urgent := shell(np, "true")
			urgent.Priority, urgent.Pool = &high, "lab"
			before := s.until(s.submit(urgent).ID, ended)
			j := s.until(first.ID, ended)
			if j.State != job.Finished || len(j.Attempts) != 2 || j.Attempts[0].Outcome != client.Preempted {
				t.Errorf("it ended as %+v", j)
			} else if j.Attempts[0].Ended.After(before.Started) {
				t.Errorf("the urgent one started at %v, and it ended at %v", before.Started, j.Attempts[0].Ended)
			}
			if text := s.text(first.ID); strings.Count(text, "saved") != np || strings.Count(text, "begins at 1") != np {
				t.Errorf("what it saved did not come along: %q", text)
			}
		})
	}
}

// labOf is a site with a pool of nodes of two slots each.
func labOf(t *testing.T, nodes ...string) *site {
	s := newSite(t, 1)
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	for _, n := range nodes {
		s.joining(n, "lab")
	}
	return s
}

// TestACancelledJobIsNotWaitedFor: one that has been preempted and is cancelled while it saves, or before its next
// commit, is ended sooner.
func TestACancelledJobIsNotWaitedFor(t *testing.T) {
	for least, told := range []string{"echo told", "echo cancelled"} { // an elastic one gets no signal but for that
		t.Run(fmt.Sprint(least), func(t *testing.T) {
			t.Parallel() // it waits, most of the time
			s := newSite(t, 1)
			low, high := 10, 90
			d := shell(1, "trap '"+told+"' TERM; echo begins; while :; do sleep 0.05; done")
			d.Priority, d.Preemptible, d.Spec.MinNP = &low, true, least
			first := s.submit(d)
			s.eventually("it has begun", func() bool { return strings.Contains(s.text(first.ID), "begins") })
			urgent := shell(1, "true")
			urgent.Priority = &high
			s.submit(urgent)
			s.eventually("it is told", func() bool {
				said := strings.Contains(s.hora("job", fmt.Sprint(first.ID)).out, "it was told to end: preempted")
				return said && (least > 0 || strings.Contains(s.text(first.ID), "told"))
			})
			asked := time.Now()
			if r := s.hora("cancel", fmt.Sprint(first.ID)); r.code != 0 {
				t.Fatalf("%+v", r)
			}
			j := s.until(first.ID, ended)
			if took := time.Since(asked); j.State != job.Cancelled || len(j.Attempts) != 1 || took > node.Notice/2 {
				t.Errorf("it ended after %v as %+v", took, j)
			}
			if text := s.text(first.ID); least > 0 && !strings.Contains(text, "cancelled") {
				t.Errorf("it was not told: %q", text)
			}
		})
	}
}

// TestAnElasticJobIsPreemptedAtItsCommit: one that gives all its slots away ends at a commit, and its next attempt goes
// on from what it had saved by then: no step is lost, and none done twice.
func TestAnElasticJobIsPreemptedAtItsCommit(t *testing.T) {
	t.Parallel() // it waits, most of the time
	c, _ := elasticSiteOf(t, 2, func(d *client.Document) {
		d.Preemptible = true
		d.Spec.Command[2] = "export " + savesIn + "=outputs/steps; " + d.Spec.Command[2]
	}, "one", "two")
	c.by(4)
	high := 90
	urgent := shell(4, "true")
	urgent.Pool, urgent.Priority = "lab", &high
	if j := c.until(c.submit(urgent).ID, ended); j.State != job.Finished {
		t.Errorf("the urgent one ended as %+v", j)
	}
	c.eventually("it goes on", func() bool { return strings.Contains(c.text(c.id), "goes on after step") })
	c.by(4)
	if err := os.WriteFile(c.enough, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	j := c.until(c.id, ended)
	if j.State != job.Finished || len(j.Attempts) != 2 || j.Attempts[0].Outcome != client.Preempted {
		t.Errorf("it ended as %+v", j)
	}
	text := c.text(c.id)
	if strings.Contains(text, "SIGTERM") {
		t.Error("its workers did not leave at a commit")
	}
	missingSteps(t, text)
	for step, n := range stepsOf(text) {
		if n > 4 {
			t.Errorf("step %s was done %d times by four ranks", step, n)
		}
	}
	if strings.Contains(text, "goes on after step 0\n") {
		t.Error("it begins anew")
	}
}

// stepsOf counts who has done each.
func stepsOf(text string) map[string]int {
	had := map[string]int{}
	for _, m := range aStep.FindAllStringSubmatch(text, -1) {
		had[m[1]]++
	}
	return had
}
