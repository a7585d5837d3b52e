package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"hora/job"
	"hora/launch/machine"
	"hora/server/client"
)

// smallMemory makes a control group of so many bytes, or skips the test.
func smallMemory(t *testing.T, limit string) string {
	t.Helper()
	var why error
	for _, above := range machine.Cgroup("", "memory") {
		dir := filepath.Join(above, fmt.Sprintf("hora-server-test-%d", os.Getpid()))
		if why = os.Mkdir(dir, 0o755); why != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		for _, name := range []string{"memory.limit_in_bytes", "memory.max"} {
			if why = os.WriteFile(filepath.Join(dir, name), []byte(limit), 0o644); why == nil {
				return dir
			}
		}
	}
	t.Skipf("needs a control group of memory: %v", why)
	return ""
}

// move puts a process and those below it into a group; what they start later is there too.
func move(t *testing.T, dir string, pid int) {
	t.Helper()
	err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range tasks {
		all, _ := os.ReadFile(file)
		for _, child := range strings.Fields(string(all)) {
			if n, err := strconv.Atoi(child); err == nil {
				move(t, dir, n)
			}
		}
	}
}

// TestOutOfMemoryBesideOthers: the kernel ends a job that has a neighbour. It comes back when it has the node for
// itself, and needs none of its retries for that; one that was alone has failed.
func TestOutOfMemoryBesideOthers(t *testing.T) {
	group := smallMemory(t, strconv.Itoa(600<<20))
	s := newSite(t, 2)
	move(t, group, s.cmd.Process.Pid)
	file := func(name string) string { return filepath.Join(s.dir, name) }
	neighbour := s.submit(shell(1, "until [ -e "+file("end")+" ]; do sleep 0.05; done"))
	s.until(neighbour.ID, in(job.Running))
	const twice = "[ -e %[1]s ] && exec echo again; >%[1]s; exec tail /dev/zero"
	greedy := s.submit(shell(1, fmt.Sprintf(twice, file("tried"))))
	s.eventually("the kernel has ended it, and it queues again", func() bool {
		j, err := s.client.Job(context.Background(), greedy.ID)
		return err == nil && j.State == job.Queued && len(j.Attempts) == 1 && j.Reason != nil && j.Reason.Code != "next"
	})
	s.kill()
	s.up()
	move(t, group, s.cmd.Process.Pid)
	j, err := s.client.Job(context.Background(), greedy.ID)
	if err != nil {
		t.Fatal(err)
	}
	if j.Attempts[0].Outcome != client.OutOfMemory ||
		!strings.Contains(j.Reason.Text, "needs 1 slot where nothing else runs, 1 is free, beside other jobs") {
		t.Errorf("after its first attempt it is %+v, since %+v", j, j.Reason)
	}
	if err := os.WriteFile(file("end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.until(greedy.ID, ended)
	j, err = s.client.Job(context.Background(), greedy.ID)
	if err != nil || j.State != job.Finished || len(j.Attempts) != 2 || !strings.Contains(s.text(greedy.ID), "again") {
		t.Errorf("it ended as %+v, %v: %s", j, err, s.text(greedy.ID))
	}
	if n := j.Attempts[len(j.Attempts)-1]; n.Started.Before(s.until(neighbour.ID, ended).Ended) {
		t.Errorf("it came back at %v, beside its neighbour", n.Started)
	}
	own := s.submit(shell(1, "exec tail /dev/zero"))
	if j := s.until(own.ID, ended); j.State != job.Failed || !strings.Contains(j.Text, "out of memory") {
		t.Errorf("one that was alone ended as %+v", j)
	}
	d := shell(1, fmt.Sprintf(twice, file("alone")))
	d.Retries = 1
	j = s.until(s.submit(d).ID, ended)
	j, err = s.client.Job(context.Background(), j.ID)
	if err != nil || j.State != job.Finished || len(j.Attempts) != 2 {
		t.Errorf("one that was alone and may be retried ended as %+v, %v", j, err)
	}
}

// TestOutOfMemoryInItsOwnWords: a job that says that memory is out, the device's for one, and exits is a failure like
// any other.
func TestOutOfMemoryInItsOwnWords(t *testing.T) {
	s := newSite(t, 2)
	d := shell(1, "echo 'RuntimeError: CUDA out of memory' >&2; exit 1")
	d.Retries = 1
	j := s.until(s.submit(d).ID, ended)
	j, err := s.client.Job(context.Background(), j.ID)
	if err != nil || j.State != job.Failed || len(j.Attempts) != 2 {
		t.Fatalf("it ended as %+v, %v", j, err)
	}
	for _, a := range j.Attempts {
		if a.Outcome != client.Failure || !strings.Contains(a.Text, "CUDA out of memory") {
			t.Errorf("attempt %d ended as %s: %s", a.Number, a.Outcome, a.Text)
		}
	}
}
