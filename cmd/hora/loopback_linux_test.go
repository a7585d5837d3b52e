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

// listening waits until programs and their children listen at n TCP addresses, and says which are not the loopback's.
func listening(t *testing.T, n int, pids ...int) (far []string) {
	t.Helper()
	var at []string
	for limit := time.Now().Add(20 * time.Second); len(at) < n; {
		if time.Now().After(limit) {
			t.Fatalf("it listens at %v", at)
		}
		at, far = at[:0], far[:0]
		for _, pid := range pids {
			for _, ear := range ears(t, pid) {
				if ear[0] == '@' {
					continue
				}
				at = append(at, ear)
				if !strings.HasPrefix(ear, "127.0.0.1:") {
					far = append(far, ear)
				}
			}
		}
	}
	return far
}

// uneven is the environment of a worker that works until a file is there.
func uneven(end string) []string {
	return []string{"HORA_TEST_PROGRAM=", "HORA_TEST_WORKER=uneven", "HORA_TEST_STOP=" + end}
}

// A job that is on one host, and cannot go to another, listens on the loopback alone: its coordinator and its ranks.
func TestAJobOnOneHostListensToNobodyElse(t *testing.T) {
	for name, flags := range map[string]string{
		"plain": "-np 2", "tcp": "-np 2 --env HORA_LINKS=tcp", "two names": "-H localhost:1,127.0.0.1:1", "elastic": "-np 2 --restarts 1",
		"told a network": "-np 2 --network-interface lo",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := filepath.Join(t.TempDir(), "end")
			args := append([]string{"run"}, strings.Fields(flags)...)
			for _, e := range uneven(end) {
				args = append(args, "--env", e)
			}
			cmd := exec.Command(self(t), append(args, self(t))...)
			cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1")
			l := start(t, cmd)
			if open := listening(t, 3, cmd.Process.Pid); len(open) > 0 {
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
}

// So do ranks that somebody starts by hand, or another launcher on one host.
func TestRanksByHandOnOneHostListenToNobodyElse(t *testing.T) {
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
				cmd.Env = append(append(os.Environ(), uneven(end)...), "HORA_RUN_DIR="+dir, "HORA_SIZE=2", fmt.Sprintf("HORA_RANK=%d", rank))
				for _, e := range env {
					cmd.Env = append(cmd.Env, strings.ReplaceAll(e, "%d", strconv.Itoa(rank)))
				}
				all = append(all, start(t, cmd))
				pids = append(pids, cmd.Process.Pid)
			}
			if open := listening(t, 3, pids...); len(open) > 0 {
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
