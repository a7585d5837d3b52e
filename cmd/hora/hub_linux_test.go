package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hora/event"
	"hora/internal/hosttest"
	"hora/internal/secret"
)

// gathering is a hub, and agents that tests have go to it.
type gathering struct {
	t      *testing.T
	dir    string
	secret secret.Secret
	mark   string // in the environment of everything
	hub    *lasting
	agents []*lasting
}

// lasting is a process whose output is kept.
type lasting struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	mu    sync.Mutex
	text  bytes.Buffer
	ended chan struct{}
}

func (l *lasting) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lasting) said() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lasting) begin(t *testing.T) *lasting {
	t.Helper()
	l.cmd.Stdout, l.cmd.Stderr, l.ended = l, l, make(chan struct{})
	l.cmd.WaitDelay = time.Second
	var err error
	if l.in, err = l.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = l.cmd.Wait() // its state tells
		close(l.ended)
	}()
	t.Cleanup(func() {
		_ = l.cmd.Process.Kill()
		<-l.ended
	})
	return l
}

// code waits for the end.
func (l *lasting) code(t *testing.T, limit time.Duration) int {
	t.Helper()
	select {
	case <-l.ended:
	case <-time.After(limit):
		t.Fatalf("%v has not ended in %v; it said\n%s", l.cmd.Args, limit, l.said())
	}
	return l.cmd.ProcessState.ExitCode()
}

// gather starts a hub, on a host or with nil on this machine.
func gather(t *testing.T, on *hosttest.Host, args ...string) *gathering {
	t.Helper()
	g := &gathering{
		t: t, dir: t.TempDir(), secret: secret.New(),
		mark: fmt.Sprintf("HUB_MARK=%d-%d", os.Getpid(), time.Now().UnixNano()),
	}
	file := filepath.Join(g.dir, "secret")
	if err := os.WriteFile(file, []byte(g.secret.Hex()), 0o600); err != nil {
		t.Fatal(err)
	}
	argv := append([]string{"hub", "--events", "events", "--until-stdin-ends", "--env", "HORA_TEST_PROGRAM="}, args...)
	if on == nil {
		argv = append([]string{"hub", "--secret-file", file}, argv[1:]...)
	} else {
		shared := on.Install(file, "hub-secret")
		if err := os.Chmod(filepath.Join(on.Home, "hub-secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		g.dir = on.Home // where it runs
		os.Remove(filepath.Join(g.dir, "events"))
		argv = append([]string{"hub", "--secret-file", shared}, argv[1:]...)
	}
	g.hub = &lasting{cmd: g.process(on, argv...)}
	g.hub.begin(t)
	return g
}

// process is this program on a host, where it has been installed, or with nil here.
func (g *gathering) process(on *hosttest.Host, args ...string) *exec.Cmd {
	own := []string{"HORA_TEST_PROGRAM=1", g.mark}
	if on == nil {
		cmd := exec.Command(self(g.t), args...)
		cmd.Dir, cmd.Env = g.dir, append(os.Environ(), own...)
		return cmd
	}
	return on.Command(context.Background(), append(append([]string{"env"}, own...), append([]string{"./hora"}, args...)...)...)
}

// await waits until the events have n of a kind, and returns all of it.
func (g *gathering) await(kind string, n int, limit time.Duration) (found []event.Event) {
	g.t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	end := time.After(limit)
	for {
		b, _ := os.ReadFile(filepath.Join(g.dir, "events"))
		found = found[:0]
		for line := range strings.Lines(string(b)) {
			if e, err := event.Unmarshal([]byte(line)); err == nil && event.NameOf(e) == kind &&
				strings.HasSuffix(line, "\n") {
				found = append(found, e)
			}
		}
		if len(found) >= n {
			return found
		}
		select {
		case <-look.C:
		case <-end:
			g.t.Fatalf("%d of %d times %s in %v:\n%s\nthe hub said\n%s", len(found), n, kind, limit, b, g.hub.said())
		}
	}
}

// agent has one go to the hub.
func (g *gathering) agent(on *hosttest.Host, env ...string) *lasting {
	g.t.Helper()
	return g.stranger(on, g.secret, env...)
}

func (g *gathering) stranger(on *hosttest.Host, s secret.Secret, env ...string) *lasting {
	g.t.Helper()
	at := g.await("listening", 1, 30*time.Second)[0].(*event.Listening)
	l := &lasting{cmd: g.process(on, "agent", "--hub", strings.Join(at.Addrs, ","))}
	l.cmd.Env = append(l.cmd.Env, env...)
	l.begin(g.t)
	io.WriteString(l.in, s.Hex()+"\n")
	g.agents = append(g.agents, l)
	return l
}

// left lists the processes that bear the mark.
func (g *gathering) left() (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(b, []byte(g.mark)) {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(f, "/")[2])
		pids = append(pids, pid)
	}
	return pids
}

// nothingLeft waits until none does.
func (g *gathering) nothingLeft(limit time.Duration) {
	g.t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for end := time.After(limit); len(g.left()) > 0; {
		select {
		case <-look.C:
		case <-end:
			for _, pid := range g.left() {
				b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				g.t.Errorf("process %d is left after %v: %q", pid, limit, b)
			}
			return
		}
	}
}

// TestAgentsThatCome: agents of one machine are one host, whose ranks are local to each other; the call reaches every
// worker and what each leaves comes back; a stranger is kept out; the agents end with the job's code.
func TestAgentsThatCome(t *testing.T) {
	dir := t.TempDir()
	call := bytes.Repeat([]byte("call"), 300_000)
	if err := os.WriteFile(filepath.Join(dir, "call"), call, 0o600); err != nil {
		t.Fatal(err)
	}
	g := gather(t, nil, "-np", "3", "--call", filepath.Join(dir, "call"), "--results", filepath.Join(dir, "out"), "--", "sh", "-c",
		`echo "$RANK is $HORA_LOCAL_RANK of $HORA_LOCAL_SIZE, host $HORA_CROSS_RANK of $HORA_CROSS_SIZE, agent $AGENT, $GLOO_SOCKET_IFNAME, $CUDA_VISIBLE_DEVICES"; [ $(stat -c %a $HORA_CALL) = 600 ]; cp $HORA_CALL $HORA_RESULT; echo $RANK >>$HORA_RESULT`)
	stranger := g.stranger(nil, secret.New())
	if code := stranger.code(t, 30*time.Second); code != 69 || !strings.Contains(stranger.said(), "has its secret") {
		t.Errorf("a stranger ends with %d: %s", code, stranger.said())
	}
	var agents []*lasting
	for i := range 3 {
		agents = append(agents, g.agent(nil, fmt.Sprintf("AGENT=%d", i), fmt.Sprintf("CUDA_VISIBLE_DEVICES=%d", 7-i)))
		g.await("registered", i+1, 30*time.Second)
	}
	if code := g.hub.code(t, 60*time.Second); code != 0 {
		t.Fatalf("exit code %d\n%s", code, g.hub.said())
	}
	for rank := range 3 {
		want := fmt.Sprintf("[%d]<stdout>:%d is %d of 3, host 0 of 1, agent %d, lo, 7,6,5\n", rank, rank, rank, rank)
		if !strings.Contains(g.hub.said(), want) {
			t.Errorf("no %q in\n%s", want, g.hub.said())
		}
		b, err := os.ReadFile(filepath.Join(dir, "out", fmt.Sprintf("rank.%d", rank)))
		if want := fmt.Sprintf("%s%d\n", call, rank); err != nil || string(b) != want {
			t.Errorf("rank %d left %d bytes, not %d: %v", rank, len(b), len(want), err)
		}
		if code := agents[rank].code(t, 10*time.Second); code != 0 {
			t.Errorf("agent %d ends with %d: %s", rank, code, agents[rank].said())
		}
	}
	all := g.await("registered", 3, time.Second)
	if e := all[2].(*event.Registered); e.Count != 3 || e.Wanted != 3 || e.Slots != 1 {
		t.Errorf("the last one registered as %+v", e)
	}
	if !strings.Contains(g.hub.said(), "strangers are kept out") {
		t.Errorf("nobody was told of the stranger:\n%s", g.hub.said())
	}
	g.nothingLeft(3 * time.Second)
}

// TestAFailureReachesTheAgents: the first failure is the hub's last line and every agent's code.
func TestAFailureReachesTheAgents(t *testing.T) {
	g := gather(t, nil, "-np", "2", "--results", filepath.Join(t.TempDir(), "out"), "--", "sh", "-c",
		`[ $RANK = 0 ] && exec sleep 100; echo "ValueError: bad" >&2; exit 3`)
	a, b := g.agent(nil), g.agent(nil)
	if code := g.hub.code(t, 30*time.Second); code != 3 || !strings.Contains(g.hub.said(), "exit code 3: ValueError: bad") {
		t.Errorf("exit code %d: %s", code, g.hub.said())
	}
	for _, l := range []*lasting{a, b} {
		if code := l.code(t, 10*time.Second); code != 3 || !strings.Contains(l.said(), "the job has ended: rank 1 on") {
			t.Errorf("an agent ends with %d: %s", code, l.said())
		}
	}
	g.nothingLeft(3 * time.Second)
}

// TestTooFewAgents: who has not come is counted, and given up in time; the agents that came hear of it.
func TestTooFewAgents(t *testing.T) {
	g := gather(t, nil, "-np", "4", "--start-timeout", "5", "--", "true")
	a := g.agent(nil)
	if code := g.hub.code(t, 30*time.Second); code != 75 || !strings.Contains(g.hub.said(), "1 of 4 workers has come in 5s: start more agents") ||
		!strings.Contains(g.hub.said(), "1 of 4 workers has come; ") {
		t.Errorf("exit code %d: %s", code, g.hub.said())
	}
	if code := a.code(t, 10*time.Second); code != 75 {
		t.Errorf("the agent ends with %d: %s", code, a.said())
	}
}

// TestNothingSurvivesAHub: whichever of its processes ends, nothing of the job is left a second later.
func TestNothingSurvivesAHub(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(g *gathering)
	}{
		{"the hub is killed", func(g *gathering) { g.hub.cmd.Process.Kill() }},
		{"the hub's input ends", func(g *gathering) { g.hub.in.Close() }},
		{"an agent's input ends", func(g *gathering) { g.agents[0].in.Close() }},
		{"an agent and what is above it are killed", func(g *gathering) {
			g.killBelow(g.agents[0].cmd.Process.Pid)
			g.agents[0].cmd.Process.Kill()
		}},
		{"an agent is killed", func(g *gathering) { g.killBelow(g.agents[1].cmd.Process.Pid) }},
		{"what is above an agent is killed", func(g *gathering) { g.agents[1].cmd.Process.Kill() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := gather(t, nil, "-np", "2", "--", "sh", "-c", `trap '' TERM; setsid sleep 1000 & while :; do sleep 1; done`)
			g.agent(nil)
			g.agent(nil)
			g.await("started", 2, 30*time.Second)
			c.end(g)
			g.nothingLeft(3 * time.Second)
			g.hub.code(t, 5*time.Second)
			its := fmt.Sprintf("hora-%d-*", g.agents[0].cmd.Process.Pid)
			if left, _ := filepath.Glob(filepath.Join(os.TempDir(), its)); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// killBelow kills the agent itself, below the process that looks after it.
func (g *gathering) killBelow(pid int) {
	g.t.Helper()
	var b []byte
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range all {
		more, _ := os.ReadFile(f)
		b = append(append(b, more...), ' ')
	}
	for _, f := range strings.Fields(string(b)) {
		child, _ := strconv.Atoi(f)
		if line, err := os.ReadFile("/proc/" + f + "/cmdline"); err == nil && bytes.Contains(line, []byte("--kept")) {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
	}
}

// TestAReplacementComes: where workers come and go, a job goes on without an agent that is killed and takes in one that
// comes later, at once.
func TestAReplacementComes(t *testing.T) {
	enough := filepath.Join(t.TempDir(), "enough")
	g := gather(t, nil, "-np", "2", "--min-np", "1", "--max-np", "2", "--env", "HORA_TEST_WORKER=elastic", "--env", "ENOUGH="+enough, "--", self(t))
	first := g.agent(nil)
	g.await("registered", 1, 30*time.Second)
	second := g.agent(nil)
	g.await("opened", 1, 30*time.Second)
	g.await("progress", 2, 30*time.Second) // for whoever follows the events
	g.killBelow(second.cmd.Process.Pid)
	second.cmd.Process.Kill()
	g.await("opened", 2, 30*time.Second)
	third := g.agent(nil)
	g.await("grown", 1, 5*time.Second)
	if e := g.await("opened", 3, 30*time.Second)[2].(*event.Opened); e.Size != 2 || len(e.Hosts) == 0 {
		t.Errorf("epoch %d has %d ranks", e.Epoch, e.Size)
	}
	if err := os.WriteFile(enough, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if code := g.hub.code(t, 60*time.Second); code != 0 {
		t.Errorf("exit code %d: %s", code, g.hub.said())
	}
	for _, l := range []*lasting{first, third} {
		if code := l.code(t, 10*time.Second); code != 0 {
			t.Errorf("an agent ends with %d: %s", code, l.said())
		}
	}
	g.nothingLeft(3 * time.Second)
}

// TestWhoStartedAnAgentHasEnded: an executor that is killed, say. The hub says that, and neither how its workers ended
// of it nor that somebody asked the agent to end.
func TestWhoStartedAnAgentHasEnded(t *testing.T) {
	for _, elastic := range []bool{false, true} {
		enough := filepath.Join(t.TempDir(), "enough")
		args, want := []string{"-np", "2", "--env", "HORA_TEST_WORKER=elastic", "--env", "ENOUGH=" + enough, "--", self(t)}, 69
		if elastic {
			args, want = append([]string{"--min-np", "1", "--max-np", "2"}, args...), 0
		}
		g := gather(t, nil, args...)
		g.agent(nil)
		g.await("registered", 1, 30*time.Second)
		second := g.agent(nil)
		g.await("progress", 2, 30*time.Second)
		second.in.Close()
		if elastic {
			g.await("opened", 2, 30*time.Second)
			if err := os.WriteFile(enough, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		code := g.hub.code(t, 60*time.Second)
		said := g.hub.said()
		if code != want || !strings.Contains(said, "what had started its agent there has ended") ||
			strings.Contains(said, "asked to end") || strings.Contains(said, "exit code 143") {
			t.Errorf("elastic %v: exit code %d: %s", elastic, code, said)
		}
		g.nothingLeft(3 * time.Second)
	}
}

// TestALargeResult: 300 MB arrive whole before the outcome is told.
func TestALargeResult(t *testing.T) {
	dir := t.TempDir()
	g := gather(t, nil, "-np", "1", "--results", dir, "--", "sh", "-c", `head -c 300000000 /dev/zero >$HORA_RESULT; echo end >>$HORA_RESULT; exit 7`)
	g.agent(nil)
	if code := g.hub.code(t, 90*time.Second); code != 7 {
		t.Errorf("exit code %d: %s", code, g.hub.said())
	}
	st, err := os.Stat(filepath.Join(dir, "rank.0"))
	if err != nil || st.Size() != 300_000_004 {
		t.Errorf("%v, %+v", err, st)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*part*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestAgentsOfTwoHosts: ranks of agents on two hosts reach each other, and a host that is cut off is a loss within
// seconds.
func TestAgentsOfTwoHosts(t *testing.T) {
	n := hosttest.Up(t, "server1", "server2", "driver")
	for _, h := range n.Hosts {
		h.Install(self(t), "hora")
	}
	g := gather(t, n.Hosts[2], "-np", "3", "--env", "HORA_TEST_WORKER=1", "--", "./hora")
	for i, h := range []*hosttest.Host{n.Hosts[0], n.Hosts[1], n.Hosts[0]} {
		g.agent(h)
		g.await("registered", i+1, 30*time.Second)
	}
	if code := g.hub.code(t, 60*time.Second); code != 0 {
		t.Fatalf("exit code %d: %s", code, g.hub.said())
	}
	for rank, host := range []string{"server1", "server1", "server2"} {
		if want := fmt.Sprintf("rank %d of 3 on %s sums 6;", rank, host); !strings.Contains(g.hub.said(), want) {
			t.Errorf("no %q in\n%s", want, g.hub.said())
		}
	}
	g = gather(t, n.Hosts[2], "-np", "2", "--", "sh", "-c", `echo "$GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME"; sleep 1000`)
	g.agent(n.Hosts[0])
	g.await("registered", 1, 30*time.Second)
	g.agent(n.Hosts[1])
	g.await("started", 2, 30*time.Second)
	for end := time.Now().Add(30 * time.Second); strings.Count(g.hub.said(), ":eth0 eth0\n") != 2; {
		if time.Now().After(end) {
			t.Fatalf("the interfaces are not told:\n%s", g.hub.said())
		}
		<-time.After(20 * time.Millisecond)
	}
	cut := time.Now()
	n.Hosts[1].Cable(false)
	if code := g.hub.code(t, 30*time.Second); code != 69 || !strings.Contains(g.hub.said(), "lost host server2: silent for 5s") {
		t.Errorf("exit code %d: %s", code, g.hub.said())
	}
	if took := time.Since(cut); took > 3*6*time.Second {
		t.Errorf("the loss was known after %v", took)
	}
	g.nothingLeft(3 * 11 * time.Second) // the one that is cut off looks for the hub for a while
}
