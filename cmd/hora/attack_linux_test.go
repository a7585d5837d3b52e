package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hora/internal/secret"
	"hora/internal/wire"
)

// family is a process and all that came of it.
func family(t *testing.T, pid int) map[int]bool {
	t.Helper()
	above := map[int]int{}
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		text := string(b)
		id, _ := strconv.Atoi(text[:strings.IndexByte(text, ' ')])
		if f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]); len(f) > 1 {
			above[id], _ = strconv.Atoi(f[1])
		}
	}
	found := map[int]bool{pid: true}
	for grown := true; grown; {
		grown = false
		for id, parent := range above {
			if found[parent] && !found[id] {
				found[id], grown = true, true
			}
		}
	}
	return found
}

// ears are the addresses at which a process and its descendants listen: "127.0.0.1:80", "[::]:80", "@name".
func ears(t *testing.T, pid int) (list []string) {
	t.Helper()
	inodes := map[string]bool{}
	for id := range family(t, pid) {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", id))
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil {
				if inode, ok := strings.CutPrefix(to, "socket:["); ok {
					inodes[strings.TrimSuffix(inode, "]")] = true
				}
			}
		}
	}
	rows := func(name string) (out [][]string) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			out = append(out, strings.Fields(line))
		}
		return out[1:]
	}
	for _, f := range rows("unix") { // Num RefCount Protocol Flags Type St Inode Path
		if len(f) == 8 && f[3] == "00010000" && inodes[f[6]] {
			list = append(list, f[7])
		}
	}
	for name, any := range map[string]string{"tcp": "0.0.0.0", "tcp6": "[::]"} {
		for _, f := range rows(name) {
			if f[3] != "0A" || !inodes[f[9]] {
				continue
			}
			host, port, _ := strings.Cut(f[1], ":")
			n, _ := strconv.ParseUint(port, 16, 16)
			switch {
			case strings.Trim(host, "0") == "":
				host = any
			case host == "0100007F":
				host = "127.0.0.1"
			}
			list = append(list, fmt.Sprintf("%s:%d", host, n))
		}
	}
	return list
}

// harass has strangers of all kinds at an address until stop is closed, and counts them.
func harass(addr string, stop <-chan struct{}) (n int) {
	network := "tcp"
	if addr[0] == '@' {
		network = "unix"
	}
	noise := make([]byte, 4096)
	rand.Read(noise)
	wrong := secret.New()
	var idle []net.Conn
	defer func() {
		for _, c := range idle {
			c.Close()
		}
	}()
	for {
		select {
		case <-stop:
			return n
		default:
		}
		c, err := net.DialTimeout(network, addr, time.Second)
		if err != nil {
			continue // its queue is full
		}
		n++
		switch n % 6 {
		case 0:
			if len(idle) < 400 {
				idle = append(idle, c)
				continue
			}
		case 1:
			c.Write(noise)
		case 2:
			c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
		case 3:
			c.Write(wire.AppendHello(nil, wire.Hello{Version: wire.Version + 1}))
		case 4:
			c.Write(wire.AppendHello(nil, wire.Hello{Version: wire.Version})[:20])
		case 5:
			secret.Client(c, wrong, secret.Identity{Purpose: "tcp data", Job: "x", Rank: 1}, time.Now().Add(time.Second))
		}
		c.Close()
	}
}

// Strangers at every address that a job listens at, for seconds on end: the job goes on, and its output has a few lines
// about them, with their number; without them it has none.
func TestStrangersAtAllOfAJobsAddresses(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	for name, env := range map[string]string{"shared memory": "HORA_LINKS=auto", "tcp": "HORA_LINKS=tcp"} {
		t.Run(name, func(t *testing.T) {
			end := filepath.Join(t.TempDir(), "end")
			cmd := exec.Command(self(t), "run", "-np", "8", "--env", "HORA_TEST_PROGRAM=", "--env", "HORA_TEST_WORKER=uneven",
				"--env", "HORA_TEST_STOP="+end, "--env", env, self(t))
			cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1")
			l := start(t, cmd)
			var at []string
			for limit := time.Now().Add(20 * time.Second); len(at) < 9; at = ears(t, cmd.Process.Pid) {
				if time.Now().After(limit) {
					t.Fatalf("the job listens at %v", at)
				}
			}
			span := time.Second
			if os.Getenv("HORA_SOAK") == "1" {
				span = 5 * time.Second
			}
			stop := make(chan struct{})
			time.AfterFunc(span, func() { close(stop) })
			var mu sync.Mutex // guards all
			all := 0
			var each sync.WaitGroup
			for _, addr := range at {
				each.Go(func() {
					n := harass(addr, stop)
					mu.Lock()
					all += n
					mu.Unlock()
				})
			}
			each.Wait()
			if err := os.WriteFile(end, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			code, _ := l.end()
			lines := strings.Count(l.text(), "\n")
			t.Logf("%d strangers in %v at %d addresses: %d lines\n%s", all, span, len(at), lines, l.text())
			if code != 0 || lines > 10 || !strings.Contains(l.text(), "hora: warning: refused a connection at ") {
				t.Errorf("exit code %d, %d lines", code, lines)
			}
			m := regexp.MustCompile(`refused (\d+) more connections`).FindStringSubmatch(l.text())
			if m == nil {
				t.Error("nobody says how many there were")
			} else if n, _ := strconv.Atoi(m[1]); n < all/100 || n > all {
				// most push each other out before they are looked at
				t.Errorf("it says %d, of %d", n, all)
			}
		})
	}
}

// A launcher that may have 1,024 descriptors, and 1,500 strangers at its port who say nothing and come back when they
// are sent away: a rank that is killed is replaced at once, by one restart.
func TestIdleStrangersDoNotBurnRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	enough := filepath.Join(t.TempDir(), "enough")
	port := strconv.Itoa(freePort(t))
	cmd := exec.Command("sh", "-c", `ulimit -n 1024; exec "$0" "$@"`, self(t), "run", "-np", "2", "--restarts", "2", "--port", port,
		"--env", "HORA_TEST_PROGRAM=", "--env", "HORA_TEST_WORKER=elastic", "--env", "ENOUGH="+enough, self(t))
	cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1")
	l := start(t, cmd)
	l.await("world of 2 as rank 0", "world of 2 as rank 1")
	ctx, cancel := context.WithCancel(t.Context())
	var strangers, first sync.WaitGroup
	for range 1500 {
		first.Add(1)
		strangers.Go(func() {
			arrived := sync.OnceFunc(first.Done)
			defer arrived()
			again := time.NewTicker(200 * time.Millisecond)
			defer again.Stop()
			for {
				if c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second); err == nil {
					leave := context.AfterFunc(ctx, func() { c.Close() })
					arrived()
					c.Read(make([]byte, 1))
					leave()
					c.Close()
				}
				select {
				case <-again.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	defer strangers.Wait()
	defer cancel()
	first.Wait()
	m := regexp.MustCompile(`as rank 1 on \S+ pid (\d+)`).FindStringSubmatch(l.text())
	if m == nil {
		t.Fatal(l.text())
	}
	pid, _ := strconv.Atoi(m[1])
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	for end := killed.Add(20 * time.Second); strings.Count(l.text(), "world of 2 as rank 1") < 2; {
		select {
		case <-l.more:
		case <-l.over:
			t.Fatalf("the job ended:\n%s", l.text())
		case <-time.After(time.Second):
		}
		if time.Now().After(end) {
			t.Fatalf("rank 1 is not replaced:\n%s", l.text())
		}
	}
	t.Logf("replaced after %v", time.Since(killed))
	if err := os.WriteFile(enough, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, last := l.end(); code != 0 || strings.Contains(l.text(), "2 restarts used") {
		t.Errorf("exit code %d: %s\n%s", code, last, l.text())
	}
}
