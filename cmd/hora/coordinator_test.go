package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/event"
	"hora/launch"
)

// coordinatorOf waits for the process that keeps a job's state directory.
func coordinatorOf(t *testing.T, dir string) int {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-tick.C {
		open, _ := filepath.Glob("/proc/[0-9]*/fd/*")
		for _, fd := range open {
			if to, err := os.Readlink(fd); err == nil && to == filepath.Join(dir, "journal") {
				pid, _ := strconv.Atoi(strings.Split(fd, "/")[2])
				return pid
			}
		}
	}
	t.Fatal("there is no coordinator")
	return 0
}

// TestAJobThatLosesItsCoordinatorAndAHost: the program's own coordinator is killed and started again, a host gives
// notice and its worker moves, and the report has it all.
func TestAJobThatLosesItsCoordinatorAndAHost(t *testing.T) {
	dir := t.TempDir()
	state, story := filepath.Join(dir, "state"), filepath.Join(dir, "story")
	notice, enough := filepath.Join(dir, "notice"), filepath.Join(dir, "enough")
	lines, wait := followed(t, enough, "run", "-np", "2", "-H", "localhost:1,127.0.0.1:2", "--restarts", "2",
		"--report", story, "--coordinator-state", state, "--drain-on", "sh:[ $HORA_HOST = localhost ] && [ -e "+notice+" ]")
	follow(t, lines, "world of 2 as ", 2)
	syscall.Kill(coordinatorOf(t, state), syscall.SIGKILL)
	follow(t, lines, "started again from "+state, 1)
	if err := os.WriteFile(notice, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	follow(t, lines, "localhost is about to go: notice by [ $HORA_HOST = localhost ]", 1)
	follow(t, lines, "world of 2 as rank 0 on 127.0.0.1", 1)
	if err := os.WriteFile(enough, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	rest := strings.Join(wait(), "\n")
	var r event.Report
	b, err := os.ReadFile(story)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil || len(r.Epochs) != 2 || r.ExitCode != 0 || r.Restarts != 0 || r.Left == nil || *r.Left != 2 ||
		r.Epochs[1].Hosts["127.0.0.1"] != 2 {
		t.Fatalf("%v: the report is\n%s", err, b)
	}
	if g, c := r.Epochs[0].Gone, r.Epochs[1].Recovery; g == nil || g.Rank != 0 || g.Host != "localhost" ||
		!strings.Contains(g.Reason, "notice by ") || c == nil || c.Seconds <= 0 {
		t.Errorf("the report is\n%s", b)
	}
	if !strings.Contains(rest, ", 0 restarts used, 2 left") {
		t.Errorf("the last lines are\n%s", rest)
	}
}

// TestTheKilledLaunchersCoordinatorEnds when nobody adopts the job, and so do the workers, their detached children
// among them.
func TestTheKilledLaunchersCoordinatorEnds(t *testing.T) {
	dir := t.TempDir()
	mark := fmt.Sprintf("HORA_TEST_MARK=launcher-%d", os.Getpid())
	cmd := exec.Command(self(t), "run", "-np", "2", "--restarts", "1", "--coordinator-state", dir, "sh", "-c", "(setsid sleep 1000 &); echo up; sleep 1000")
	cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1", "HORA_ADOPT_TIMEOUT=1", mark)
	l := start(t, cmd)
	l.await(heard("up")...)
	pid := coordinatorOf(t, dir)
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !bytes.Contains(environ, []byte(mark)) || pid == cmd.Process.Pid {
		t.Fatalf("the coordinator, process %d, is no child that carries the mark: %v", pid, err)
	}
	l.signal(syscall.SIGKILL)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(15 * time.Second); ; <-tick.C {
		var left []string
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(mark)) {
				left = append(left, filepath.Dir(f))
			}
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %v (the coordinator was %d)\n%s", left, pid, l.text())
		}
	}
	r := command(t, t.TempDir(), "hora", "run", "--adopt", dir)
	if r.code != launch.ExitHost || !strings.Contains(r.err, "the job's agents are gone (") || !strings.Contains(r.err, "they wait 1s for somebody") {
		t.Errorf("who comes too late: %+v", r)
	}
}
