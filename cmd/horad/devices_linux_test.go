package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"hora/job"
	"hora/server/client"
)

// TestDevicesAreDealt: jobs on one node have devices of their own, whoever was killed meanwhile; one that asks for none
// sees none, and what a job had is dealt again when it has ended, or has given it away.
func TestDevicesAreDealt(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, 1)
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	one := s.joining("one", "lab", "--gpus", "2", "--slots", "4")
	end := func(name string) string { return filepath.Join(s.dir, "end-"+name) }
	tells := func(name string, gpus int) int64 {
		d := shell(1, fmt.Sprintf("echo has=$CUDA_VISIBLE_DEVICES.$HORA_DEVICES; until [ -e %s ]; do sleep 0.05; done", end(name)))
		d.Pool, d.Spec.GPUsPerRank = "lab", gpus
		return s.submit(d).ID
	}
	has := func(id int64) string {
		var found string
		s.eventually(fmt.Sprintf("job %d tells what it has", id), func() bool {
			_, after, told := strings.Cut(s.text(id), "has=")
			found, _, _ = strings.Cut(after, "\n")
			return told
		})
		return found
	}
	first, second := tells("first", 1), tells("second", 1)
	got := []string{has(first), has(second)}
	if slices.Sort(got); !slices.Equal(got, []string{"0.", "1."}) {
		t.Errorf("two jobs have the devices %q", got)
	}
	if got := has(tells("none", 0)); got != "." {
		t.Errorf("a job that asks for no device sees %q", got)
	}
	third := tells("third", 1)
	s.eventually("the third waits", func() bool {
		j, err := s.client.Job(ctx, third)
		return err == nil && j.State == job.Queued && j.Reason != nil && strings.Contains(j.Reason.Text, "GPU")
	})
	s.kill()
	_ = one.Process.Signal(syscall.SIGKILL)
	_ = one.Wait()
	s.up()
	s.joining("one", "lab", "--gpus", "2", "--slots", "4")
	if err := os.WriteFile(end("second"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := has(third), has(second); got != want {
		t.Errorf("after the second job has ended the third one has %q, and not %q", got, want)
	}
	for _, name := range []string{"first", "third", "none"} {
		if err := os.WriteFile(end(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []int64{first, third} {
		if j := s.until(id, ended); j.State != job.Finished {
			t.Errorf("job %d ended as %+v", id, j)
		}
	}
	both := client.Document{Pool: "lab", Spec: job.Spec{Command: []string{"sh", "-c", "echo $RANK=$CUDA_VISIBLE_DEVICES"}, NP: 2, GPUsPerRank: 1}}
	id := s.submit(both).ID
	s.until(id, ended)
	if got := strings.Fields(s.text(id)); len(got) != 2 || got[0][len(got[0])-1] == got[1][len(got[1])-1] {
		t.Errorf("two ranks have the devices %q", got)
	}
}

// TestDevicesOfGangsAndElasticJobs: over two nodes no two ranks ever have one device, also while a job gives two away
// and gets two back. Each rank locks a file of its device's name for as long as it lives.
func TestDevicesOfGangsAndElasticJobs(t *testing.T) {
	s := newSite(t, 1)
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.joining("one", "lab", "--gpus", "2")
	dir := t.TempDir()
	var err error
	if s.nodes, err = os.Create(filepath.Join(dir, "said")); err != nil {
		t.Fatal(err)
	}
	s.joining("two", "lab", "--gpus", "2")
	s.shared(filepath.Join(dir, "said"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	work := func(np, least, priority int, command string) int64 {
		d := shell(np, fmt.Sprintf("case $PWD in */one/*) node=one;; */two/*) node=two;; esac; echo has=$node; "+
			"exec 9>%s/$node.$CUDA_VISIBLE_DEVICES; flock -n 9 || echo clash; %s", dir, command))
		d.Pool, d.Spec.MinNP, d.Spec.GPUsPerRank, d.Priority = "lab", least, 1, &priority
		return s.submit(d).ID
	}
	c := &counting{site: s, enough: filepath.Join(dir, "enough")}
	c.id = work(4, 2, 10, countsIn+"="+c.enough+" exec "+self)
	c.by(4)
	end := filepath.Join(dir, "end")
	gang := work(2, 0, 50, "until [ -e "+end+" ]; do sleep 0.05; done")
	s.until(gang, in(job.Running))
	c.by(2)
	s.eventually("the gang tells what it has", func() bool { return strings.Count(s.text(gang), "has=") == 2 })
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.by(4)
	if j := c.finish(); j.State != job.Finished {
		t.Errorf("the elastic job ended as %+v", j)
	}
	if j := s.until(gang, ended); j.State != job.Finished {
		t.Errorf("the gang ended as %+v", j)
	}
	for id, ranks := range map[int64]int{c.id: 6, gang: 2} {
		said := s.text(id)
		if strings.Contains(said, "clash") || strings.Count(said, "has=") < ranks {
			t.Errorf("job %d: two ranks had one device:\n%s", id, said)
		}
	}
	if all, err := filepath.Glob(dir + "/*.[01]"); err != nil || len(all) != 4 {
		t.Errorf("the devices were %q, %v", all, err)
	}
}

// shared looks at what is said of two nodes that have the same devices of one machine, and of a third that has others.
func (s *site) shared(said string) {
	s.t.Helper()
	warns := func(name, other, devices string) string {
		return fmt.Sprintf("hora: node %s has %s of its machine, which node %s has too", name, devices, other)
	}
	s.eventually("the second node says it", func() bool {
		b, _ := os.ReadFile(said)
		return strings.Contains(string(b), warns("two", "one", "GPUs 0, 1"))
	})
	var none string
	s.extra, none = append(s.extra, "CUDA_VISIBLE_DEVICES=5,6"), "node three"
	three := s.joining("three", "lab")
	s.extra = s.extra[:len(s.extra)-1]
	s.eventually("all nodes are there", func() bool { return len(s.ready("lab")) == 3 })
	r := s.hora("nodes")
	for _, want := range []string{warns("one", "two", "GPUs 0, 1"), warns("two", "one", "GPUs 0, 1")} {
		if !strings.Contains(r.errs, want) {
			s.t.Errorf("no line %q in\n%s", want, r.errs)
		}
	}
	if strings.Contains(r.errs, none) {
		s.t.Errorf("a node with devices of its own is told of:\n%s", r.errs)
	}
	_ = three.Process.Signal(syscall.SIGTERM)
	_ = three.Wait()
}
