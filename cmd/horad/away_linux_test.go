package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hora/job"
	"hora/server/client"
)

// waits asks until a job waits for a reason that says something, and not for another.
func (s *site) waits(id int64, code, says string) {
	s.t.Helper()
	last := client.Job{}
	s.eventually(fmt.Sprintf("job %d waits (%s) because %q", id, code, says), func() bool {
		j, err := s.client.Job(context.Background(), id)
		if err != nil || j.State != job.Queued {
			s.t.Fatalf("job %d is to wait because %q: %+v, %v; before: %+v", id, says, j, err, last.Reason)
		}
		last = j
		return j.Reason != nil && j.Reason.Code == code && strings.Contains(j.Reason.Text, says)
	})
}

// TestAGangKeepsItsNodesOverARestart: a gang of two nodes waits, the server is killed, and one of the nodes comes to
// the next server later than the other. Small jobs do not take the first one meanwhile.
func TestAGangKeepsItsNodesOverARestart(t *testing.T) {
	s := newSite(t, 1)
	s.port = s.url[strings.LastIndex(s.url, ":")+1:] // nodes come back to it
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.joining("one", "lab")
	two := s.joining("two", "lab")
	gate := filepath.Join(s.dir, "gate")
	d := shell(2, "until [ -e "+gate+" ]; do sleep 0.05; done")
	d.Pool, d.Node = "lab", "one"
	first := s.submit(d)
	s.until(first.ID, in(job.Running))
	d = client.Document{Spec: job.Spec{Command: []string{"true"}}, Nodes: 2, PerNode: 2, Pool: "lab"}
	gang := s.submit(d)
	s.waits(gang.ID, "slots", "needs 2 slots on each of 2 nodes at once")
	d = shell(2, "true")
	d.Pool = "lab"
	small := s.submit(d)
	d.Node = "two"
	named := s.submit(d)
	s.waits(small.ID, "turn", fmt.Sprintf("kept for job %d", gang.ID))

	s.kill()
	if err := two.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = two.Wait()
	s.up()
	s.eventually("the first node is back", func() bool { return len(s.ready("lab")) == 1 })
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.until(first.ID, in(job.Finished))
	s.waits(gang.ID, "nodes", "node two of pool lab is away: it starts when that is back")
	s.waits(named.ID, "nodes", "node two is away: it starts when that is back")
	s.waits(small.ID, "turn", fmt.Sprintf("kept for job %d", gang.ID))
	if r := s.hora("nodes"); r.code != 0 || !strings.Contains(r.out, "away") {
		t.Errorf("hora nodes: %+v", r)
	}

	s.joining("two", "lab")
	g, after := s.until(gang.ID, in(job.Finished)), s.until(small.ID, in(job.Finished))
	if len(g.Attempts) != 1 || !after.Started.After(g.Started) {
		t.Errorf("the gang started at %v in %d attempts, and the small job at %v", g.Started, len(g.Attempts), after.Started)
	}
	s.until(named.ID, in(job.Finished))
}

// TestANodeByName: jobs of --node run there and nowhere else, also where another is free, and one of no node is told.
func TestANodeByName(t *testing.T) {
	s := newSite(t, 1)
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.joining("one", "lab")
	s.joining("two", "lab")
	gate := filepath.Join(s.dir, "gate")
	var ids []int64
	for _, name := range []string{"two", "one", "two"} {
		r := s.hora("submit", "--no-code", "--pool", "lab", "--node", name, "-np", "2", "sh", "-c", "until [ -e "+gate+" ]; do sleep 0.05; done")
		if r.code != 0 {
			t.Fatalf("%+v", r)
		}
		ids = append(ids, int64(len(ids)+1))
	}
	s.until(1, in(job.Running))
	if r := s.hora("cancel", fmt.Sprint(s.until(2, in(job.Running)).ID)); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.until(2, ended)
	s.waits(3, "slots", "and node two has not got them free")
	r := s.hora("submit", "--no-code", "--pool", "lab", "--node", "three", "true")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.waits(4, "never", "no node of pool lab is called three")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"two", "one", "two"} {
		j := s.until(ids[i], ended)
		if len(j.Attempts) != 1 || len(j.Attempts[0].Shares) != 1 || j.Attempts[0].Shares[0].Node != want ||
			i != 1 && j.State != job.Finished {
			t.Errorf("job %d of node %s: %+v", j.ID, want, j)
		}
	}
	s.hora("cancel", "4")
	s.until(4, ended)
}

// TestAJobWhoseNodeIsAwaySaysSo: it runs, as far as anybody knows; that nothing is heard of it is said beside.
func TestAJobWhoseNodeIsAwaySaysSo(t *testing.T) {
	s := newSite(t, 1)
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	one := s.joining("one", "lab")
	gate := filepath.Join(t.TempDir(), "gate")
	d := shell(1, "until [ -e "+gate+" ]; do sleep 0.05; done")
	d.Pool = "lab"
	j := s.submit(d)
	s.until(j.ID, in(job.Running))
	if got, err := s.client.Job(context.Background(), j.ID); err != nil || got.Reason != nil {
		t.Errorf("it runs where all is well: %+v, %v", got.Reason, err)
	}
	if err := one.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = one.Wait()
	s.eventually("the job's node is away", func() bool {
		got, err := s.client.Job(context.Background(), j.ID)
		return err == nil && got.State == job.Running && got.Reason != nil && got.Reason.Code == "away"
	})
	for _, args := range [][]string{{"jobs"}, {"job", "1"}} {
		if r := s.hora(args...); !strings.Contains(r.out, "node one is away: the job goes on when that is back") {
			t.Errorf("hora %v: %+v", args, r)
		}
	}
	s.joining("one", "lab")
	s.eventually("it is back", func() bool {
		got, err := s.client.Job(context.Background(), j.ID)
		return err == nil && got.State == job.Running && got.Reason == nil
	})
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if j := s.until(j.ID, ended); j.State != job.Finished {
		t.Errorf("%+v", j)
	}
}
