package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hora/job"
	"hora/server/client"
)

// TestFreshNodes: a job of --fresh runs on nodes that its pool makes for it, for which idle ones make way. Nobody else
// runs there, a server that was killed knows them, and they end with the job.
func TestFreshNodes(t *testing.T) {
	s := newSite(t, 1)
	if r := s.hora("pool", "add", "two", "--provider", "local", "--min", "1", "--max", "2", "--node", "cores=1", "--idle", "1s"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.eventually("a warm node is there", func() bool { return len(s.ready("two")) == 1 })
	warm := s.ready("two")[0]
	until := func(name string) string {
		return fmt.Sprintf("until [ -e %s ]; do sleep 0.05; done", filepath.Join(s.dir, name))
	}
	r := s.hora("submit", "--no-code", "--fresh", "--pool", "two", "-np", "2", "sh", "-c", until("first")+"; echo done on $HORA_CROSS_RANK")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.until(1, in(job.Running))
	j, err := s.client.Job(context.Background(), 1)
	if err != nil || len(j.Attempts) != 1 || len(j.Attempts[0].Shares) != 2 {
		t.Fatalf("%+v, %v", j, err)
	}
	for _, x := range j.Attempts[0].Shares {
		if x.Node == warm || !strings.HasSuffix(x.Node, "-job1") {
			t.Errorf("the job runs on node %s", x.Node)
		}
	}
	d := shell(1, "true")
	d.Pool = "two"
	other := s.submit(d)
	d.Fresh = true
	later := s.submit(d)
	s.kill()
	s.up()
	s.eventually("both nodes are back", func() bool { return len(s.ready("two")) == 2 })
	for _, id := range []int64{other.ID, later.ID} {
		j, err := s.client.Job(context.Background(), id)
		if err != nil || j.State != job.Queued || j.Reason == nil || j.Reason.Code == "never" {
			t.Errorf("job %d beside it: %+v, %v", id, j, err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.dir, "first"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if j := s.until(1, ended); j.State != job.Finished || !strings.Contains(s.text(1), "done on 1") {
		t.Errorf("it ended as %+v: %s", j, s.text(1))
	}
	for _, id := range []int64{other.ID, later.ID} {
		if j := s.until(id, ended); j.State != job.Finished {
			t.Errorf("job %d after it ended as %+v", id, j)
		}
	}
	s.eventually("only a warm node is left", func() bool {
		all := s.ready("two")
		return len(all) == 1 && !strings.Contains(all[0], "job")
	})
	for _, c := range []struct {
		change func(*client.Document)
		want   string
	}{
		{func(d *client.Document) { d.Pool = "default" }, "makes no nodes"},
		{func(d *client.Document) { d.Node = warm }, "give one of them"},
	} {
		d := shell(1, "true")
		d.Pool, d.Fresh = "two", true
		c.change(&d)
		_, err := s.client.Submit(context.Background(), d, "")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v was answered %v and not with %q", d, err, c.want)
		}
	}
}

// TestFreshAmongOthers: a pool may have no more nodes, and there are always more jobs for the one that it has. One that
// waits for a node of its own comes before those of a lower priority all the same: the node makes way for its.
func TestFreshAmongOthers(t *testing.T) {
	s := newSite(t, 1)
	if r := s.hora("pool", "add", "one", "--provider", "local", "--min", "0", "--max", "1", "--node", "cores=1"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	d := shell(1, "sleep 0.2")
	d.Pool, d.Priority = "one", new(10)
	var others []int64
	for range 40 {
		others = append(others, s.submit(d).ID)
	}
	s.until(others[1], ended)
	d = shell(1, "true")
	d.Pool, d.Priority, d.Fresh = "one", new(100), true
	id := s.submit(d).ID
	s.until(id, ended)
	fresh, err := s.client.Job(context.Background(), id)
	if err != nil || len(fresh.Attempts) != 1 || fresh.State != job.Finished {
		t.Fatalf("it ended as %+v, %v", fresh, err)
	}
	began := fresh.Attempts[0]
	if !strings.HasSuffix(began.Shares[0].Node, fmt.Sprintf("-job%d", fresh.ID)) {
		t.Errorf("it ran on %+v", began.Shares)
	}
	before := 0
	for _, id := range others {
		j, err := s.client.Job(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range j.Attempts {
			if a.Started.Before(began.Started) && a.Started.After(fresh.Queued) {
				before++
			}
		}
	}
	if before > 3 {
		t.Errorf("%d jobs of a lower priority began while it waited", before)
	}
}
