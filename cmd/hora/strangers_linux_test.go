package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// A launcher whose port gets 1,000 connections of strangers stays small, and its job goes on.
func TestAThousandStrangersAtTheLauncher(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector, which needs memory of its own")
	}
	here := filepath.Join(t.TempDir(), "go")
	port := strconv.Itoa(freePort(t))
	cmd := exec.Command(self(t), "run", "-np", "2", "--port", port, "--env", "HORA_TEST_PROGRAM=", "--env", "HORA_TEST_WORKER=1",
		"sh", "-c", `echo up; until [ -e "$0" ]; do sleep 0.02; done; exec "$1"`, here, self(t))
	cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1")
	l := start(t, cmd)
	l.await(heard("up")...)
	before := peak(t, cmd.Process.Pid)
	garbage := bytes.Repeat([]byte("HORA\xff garbage "), 64)
	for i := range 1000 {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			c.Write(garbage)
		}
	}
	if err := os.WriteFile(here, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	l.await("rank 0 of 2 on ", "rank 1 of 2 on ")
	after := peak(t, cmd.Process.Pid)
	t.Logf("hora run with 2 workers: at most %.1f MB resident; with 1,000 strangers %.1f MB", before, after)
	if after > 100 {
		t.Errorf("the launcher had %.1f MB resident, at most 100", after)
	}
	if code, last := l.end(); code != 0 {
		t.Errorf("exit code %d: %s", code, last)
	}
}

// peak is the most memory that a process had resident, in megabytes.
func peak(t *testing.T, pid int) float64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(b)
	if err != nil || m == nil {
		t.Fatalf("%v: %s", err, b)
	}
	kb, _ := strconv.ParseFloat(string(m[1]), 64)
	return kb * 1024 / 1e6
}
