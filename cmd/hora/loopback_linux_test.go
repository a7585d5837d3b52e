package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A job that is on one host, and cannot go to another, listens on the loopback alone: the coordinator, the ranks, those
// that somebody starts by hand too.
func TestAJobOnOneHostListensToNobodyElse(t *testing.T) {
	// listening waits until a program and its children listen at n TCP addresses that are not in known.
	listening := func(t *testing.T, n int, pids ...int) (at []string) {
		t.Helper()
		for limit := time.Now().Add(20 * time.Second); len(at) < n; {
			if time.Now().After(limit) {
				t.Fatalf("it listens at %v", at)
			}
			at = at[:0]
			for _, pid := range pids {
				for _, ear := range ears(t, pid) {
					if ear[0] != '@' {
						at = append(at, ear)
					}
				}
			}
		}
		return at
	}
	far := func(at []string) (all []string) {
		for _, a := range at {
			if !strings.HasPrefix(a, "127.0.0.1:") {
				all = append(all, a)
			}
		}
		return all
	}
	worker := func(end string) []string {
		return []string{"HORA_TEST_PROGRAM=", "HORA_TEST_WORKER=uneven", "HORA_TEST_STOP=" + end}
	}
	for name, flags := range map[string]string{
		"plain": "-np 2", "tcp": "-np 2 --env HORA_LINKS=tcp", "two names": "-H localhost:1,127.0.0.1:1", "elastic": "-np 2 --restarts 1",
		"told a network": "-np 2 --network-interface lo",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := filepath.Join(t.TempDir(), "end")
			args := append([]string{"run"}, strings.Fields(flags)...)
			for _, e := range worker(end) {
				args = append(args, "--env", e)
			}
			cmd := exec.Command(self(t), append(args, self(t))...)
			cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1")
			l := start(t, cmd)
			if open := far(listening(t, 3, cmd.Process.Pid)); len(open) > 0 {
				t.Errorf("it listens at %v", open)
			}
			if err := os.WriteFile(end, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if code, last := l.end(); code != 0 {
				t.Errorf("exit code %d: %s", code, last)
			}
		})
	}
	for name, env := range map[string][]string{
		"by hand": nil, "by hand at an address": {"HORA_ADDR=127.0.0.1:" + strconv.Itoa(freePort(t))},
		"one host's launcher": {"RANK=%d", "WORLD_SIZE=2", "LOCAL_RANK=%d", "LOCAL_WORLD_SIZE=2", "HORA_RANK=", "MASTER_ADDR=" + ownAddress(t), "MASTER_PORT=" + strconv.Itoa(freePort(t))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			end := filepath.Join(dir, "end")
			var pids []int
			var all []*lively
			for rank := range 2 {
				cmd := exec.Command(self(t))
				cmd.Env = append(append(os.Environ(), worker(end)...), "HORA_RUN_DIR="+dir, "HORA_SIZE=2", fmt.Sprintf("HORA_RANK=%d", rank))
				for _, e := range env {
					cmd.Env = append(cmd.Env, strings.ReplaceAll(e, "%d", strconv.Itoa(rank)))
				}
				all = append(all, start(t, cmd))
				pids = append(pids, cmd.Process.Pid)
			}
			if open := far(listening(t, 3, pids...)); len(open) > 0 {
				t.Errorf("they listen at %v", open)
			}
			if err := os.WriteFile(end, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			for _, l := range all {
				if code, last := l.end(); code != 0 {
					t.Errorf("exit code %d: %s", code, last)
				}
			}
		})
	}
}

// ownAddress is an address of this machine that others may reach, or the loopback's where it has none.
func ownAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}
