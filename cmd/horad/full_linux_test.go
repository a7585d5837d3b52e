package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hora/job"
	"hora/server/client"
)

// smallDisk names, in a test that this one has started again in a namespace of its own, the folder to mount a disk at.
const smallDisk = "HORA_TEST_SMALL_DISK"

// TestTheServersDiskIsFull: nothing new is taken, in a sentence, what was taken is kept, and the job that runs ends as
// if nothing had been once there is room.
func TestTheServersDiskIsFull(t *testing.T) {
	if disk := os.Getenv(smallDisk); disk != "" {
		if err := syscall.Mount("none", disk, "tmpfs", 0, "size=24m"); err != nil {
			t.Fatal(err)
		}
		onFullDisk(t, disk)
		return
	}
	selected(t)
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0], "-test.run=^TestTheServersDiskIsFull$", "-test.v")
	c.Env = append(os.Environ(), builtIn+"="+bin, smallDisk+"="+t.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := c.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("needs root: a disk of its own is mounted")
	}
	if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		t.Fatalf("%v\n%s", err, out)
	}
}

func onFullDisk(t *testing.T, disk string) {
	s := newSiteIn(t, filepath.Join(disk, "server"), 1)
	goOn := filepath.Join(t.TempDir(), "go-on")
	runs := s.submit(shell(1, `i=0; until [ -e `+goOn+` ]; do echo line $i; i=$((i+1)); sleep 0.05; done; echo last $i`))
	s.eventually("the job has said something", func() bool { return strings.Contains(s.text(runs.ID), "line 3") })

	filler := filepath.Join(disk, "filler")
	fill(t, filler)
	held := shell(1, "true")
	held.Held = true
	var taken []int64
	var refused error
	for range 5000 { // there may be room left within the database's files
		j, err := s.client.Submit(context.Background(), held, client.Key())
		if refused = err; err != nil {
			break
		}
		taken = append(taken, j.ID)
	}
	full := func(what string, err error) {
		t.Helper()
		var f *client.Fault
		if !errors.As(err, &f) || f.Status != 507 || !strings.HasPrefix(f.Detail, "the server's disk is full: nothing new is taken until there is room") {
			t.Errorf("%s on a full disk: %v", what, err)
		}
	}
	full("a submission", refused)
	_, hash := contentOf(string(bytes.Repeat([]byte("x"), 1<<20)))
	full("content", s.client.Put(context.Background(), hash, bytes.NewReader(bytes.Repeat([]byte("x"), 1<<20))))
	if r := s.hora("submit", "--no-code", "true"); r.code == 0 || strings.Count(r.errs, "\n") != 1 ||
		!strings.Contains(r.errs, "the server's disk is full") {
		t.Errorf("hora submit on a full disk: %+v", r)
	}
	if r := s.hora("jobs"); r.code != 0 {
		t.Errorf("hora jobs on a full disk: %+v", r)
	}
	if j, err := s.client.Job(context.Background(), runs.ID); err != nil || j.State != job.Running {
		t.Errorf("the job that ran is %+v, %v", j, err)
	}

	if err := os.Remove(filler); err != nil { // first: the job writes its report where it is full
		t.Fatal(err)
	}
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if j := s.until(runs.ID, ended); j.State != job.Finished || len(j.Attempts) != 1 {
		t.Errorf("the job that ran ended as %+v", j)
	}
	lines := strings.Split(strings.TrimSpace(s.text(runs.ID)), "\n")
	for i, line := range lines {
		want := fmt.Sprintf("line %d", i)
		if i == len(lines)-1 {
			want = fmt.Sprintf("last %d", i)
		}
		if !strings.HasSuffix(line, want) {
			t.Fatalf("line %d of %d is %q, want %q", i, len(lines), line, want)
		}
	}
	for _, id := range taken {
		if j, err := s.client.Job(context.Background(), id); err != nil || j.State != job.Paused {
			t.Fatalf("job %d, which was acknowledged, is %+v, %v", id, j, err)
		}
	}
	if j := s.until(s.submit(shell(1, "true")).ID, ended); j.State != job.Finished {
		t.Errorf("with room again a job ends as %+v", j)
	}
}

// fill takes all room that is left on a disk.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}
