package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hora/internal/hosttest"
)

// lively is a program that a test talks to while it runs.
type lively struct {
	t    *testing.T
	cmd  *exec.Cmd
	mu   sync.Mutex // guards said
	said bytes.Buffer
	more chan struct{}
	over chan struct{}
}

// start runs cmd and ends it with the test, or after a minute.
func start(t *testing.T, cmd *exec.Cmd) *lively {
	t.Helper()
	l := &lively{t: t, cmd: cmd, more: make(chan struct{}, 1), over: make(chan struct{})}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	go func() {
		defer close(l.over)
		_, _ = io.Copy(l, r) // until its last process has ended
		_ = cmd.Wait()       // its exit code tells
	}()
	late := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		late.Stop()
		cmd.Process.Kill()
		<-l.over
		r.Close()
	})
	return l
}

func (l *lively) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.said.Write(p)
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (l *lively) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.String()
}

// await returns once the program has said all of want.
func (l *lively) await(want ...string) {
	l.t.Helper()
	for {
		missing := ""
		for _, w := range want {
			if !strings.Contains(l.text(), w) {
				missing = w
			}
		}
		if missing == "" {
			return
		}
		select {
		case <-l.more:
		case <-l.over:
			if strings.Contains(l.text(), missing) {
				continue
			}
			l.t.Fatalf("it ended without %q; it said\n%s", missing, l.text())
		}
	}
}

func (l *lively) signal(s syscall.Signal) {
	l.t.Helper()
	if err := l.cmd.Process.Signal(s); err != nil {
		l.t.Fatal(err)
	}
}

// end waits for the program's exit code and last line.
func (l *lively) end() (code int, last string) {
	<-l.over
	lines := strings.Split(strings.TrimSpace(l.text()), "\n")
	return l.cmd.ProcessState.ExitCode(), lines[len(lines)-1]
}

// listener is a worker that tells of the signals it gets, and ends by those that ask for it.
const listener = `trap 'echo got USR1' USR1; trap 'echo got USR2' USR2; for s in INT TERM HUP QUIT; do trap "echo got $s; exit 9" $s; done
echo up on $HORA_HOST; while :; do sleep 0.02; done`

// heard is a line of each of two ranks.
func heard(format string, a ...any) []string {
	text := fmt.Sprintf(format, a...)
	return []string{"[0]<stdout>:" + text + "\n", "[1]<stdout>:" + text + "\n"}
}

func TestWorkersGetTheLaunchersSignals(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(self(t), "run", "-np", "2", "sh", "-c", listener)
			cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1")
			l := start(t, cmd)
			host, _ := os.Hostname()
			l.await(heard("up on %s", host)...)
			l.signal(syscall.SIGUSR1)
			l.await(heard("got USR1")...)
			l.signal(syscall.SIGUSR2)
			l.await(heard("got USR2")...)
			l.signal(sig)
			l.await(heard("got %s", name)...)
			if code, last := l.end(); code != 128+int(sig) || last != "hora: stopped by SIG"+name {
				t.Errorf("exit code %d, last line %q", code, last)
			}
		})
	}
}

func TestWorkersOnOtherHostsGetTheLaunchersSignals(t *testing.T) {
	n := hosttest.Up(t, "server1", "server2")
	a := n.Hosts[0]
	program := a.Install(self(t), "hora")
	for name, sig := range map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP} {
		l := start(t, a.Command(context.Background(), "env", "HORA_TEST_PROGRAM=1", program, "run", "-np", "2", "-H", "server1:1,server2:1", "sh", "-c", listener))
		l.await("[0]<stdout>:up on server1\n", "[1]<stdout>:up on server2\n")
		l.signal(syscall.SIGUSR1)
		l.await(heard("got USR1")...)
		l.signal(sig)
		l.await(heard("got %s", name)...)
		if code, last := l.end(); code != 128+int(sig) || last != "hora: stopped by SIG"+name {
			t.Errorf("exit code %d, last line %q", code, last)
		}
		for _, h := range n.Hosts {
			if left := h.Count("__agent|sleep 0.02"); left > 0 {
				t.Errorf("%s: %d processes are left on %s", name, left, h.Name)
			}
		}
	}
}

// A hang-up that nohup has had ignored reaches nobody.
func TestAnIgnoredHangUpStaysIgnored(t *testing.T) {
	cmd := exec.Command("nohup", self(t), "run", "-np", "2", "sh", "-c", listener)
	cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1")
	l := start(t, cmd)
	host, _ := os.Hostname()
	l.await(heard("up on %s", host)...)
	l.signal(syscall.SIGHUP)
	l.signal(syscall.SIGUSR1)
	l.await(heard("got USR1")...)
	l.signal(syscall.SIGTERM)
	if code, _ := l.end(); code != 143 || strings.Contains(l.text(), "got HUP") {
		t.Errorf("exit code %d\n%s", code, l.text())
	}
}

// Ctrl-C ends a launcher that still waits for a host, or for what the host says of its addresses; other signals do not.
func TestSignalsWhileHostsAreReached(t *testing.T) {
	n := hosttest.Up(t, "server1", "server2")
	a, b := n.Hosts[0], n.Hosts[1]
	program := a.Install(self(t), "hora")
	stopped := func(l *lively, when string) {
		t.Helper()
		l.signal(syscall.SIGUSR1)
		l.await("warning: SIGUSR1 came " + when + ": there are no workers yet to pass it on to")
		began := time.Now()
		l.signal(syscall.SIGINT)
		if code, last := l.end(); code != 130 || last != "hora: stopped by SIGINT "+when {
			t.Errorf("exit code %d\n%s", code, l.text())
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("it took %v", took)
		}
	}
	run := func(more ...string) *lively {
		t.Helper()
		args := append([]string{"env", "HORA_TEST_PROGRAM=1", program, "run", "--start-timeout", "50", "-np", "2", "-H", "server1:1,server2:1"}, more...)
		return start(t, a.Command(context.Background(), append(args, "true")...))
	}
	// A name server that does not answer.
	if code, _, errs := a.Output(5*time.Second, "sh", "-ec", "echo nameserver 10.77.0.99 >/etc/resolv.conf; echo hosts: files dns >/etc/nsswitch.conf"); code != 0 {
		t.Fatal(errs)
	}
	l := start(t, a.Command(context.Background(), "env", "HORA_TEST_PROGRAM=1", program, "run", "-H", "server1:1,far.away:1", "true"))
	l.await("hora: looking up the name of host far.away; ")
	stopped(l, "while host names were being looked up")
	// An agent that greets and hears of nothing does not answer what it is asked.
	deaf := filepath.Join(b.Home, "deaf")
	if err := os.WriteFile(deaf, []byte("#!/bin/sh\nsleep 1000 | "+b.Install(self(t), "hora")+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	l = run("--remote-hora", filepath.Join(filepath.Dir(program), "deaf"))
	l.await("hora: waiting for host server2 to say which addresses it reaches")
	stopped(l, "while hosts were being reached")
	b.Cable(false)
	l = run()
	l.await("hora: no answer yet from server2")
	stopped(l, "while hosts were being reached")
	if left := a.Count("^ssh |__agent"); left > 0 {
		t.Errorf("%d processes are left", left)
	}
}
