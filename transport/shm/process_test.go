//go:build linux

package shm

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hora/internal/jobtest"
	"hora/internal/secret"
	"hora/transport"
)

// The tests start real ranks: this binary again, with the role in its environment.
// A rank reads one command a line from its standard input and answers with one line.
const rankEnv = "HORA_SHM_TEST_RANK"

// role is what a rank is started with.
type role struct {
	Rank     int
	Ranks    []int
	Leader   string
	Secret   string
	Timeout  time.Duration
	CPU      int // -1: unbound
	Crowded  bool
	FileSize uint64        // RLIMIT_FSIZE, 0: none
	Patience time.Duration // of Open; 0: 20 s
}

func TestMain(m *testing.M) {
	if env := os.Getenv(rankEnv); env != "" {
		os.Exit(runRank(env))
	}
	os.Exit(m.Run())
}

func parseSecret(text string) (s secret.Secret, err error) {
	b, err := hex.DecodeString(text)
	copy(s[:], b)
	return s, err
}

// runRank is the main function of a started rank.
func runRank(env string) int {
	var r role
	if err := json.Unmarshal([]byte(env), &r); err != nil {
		panic(err)
	}
	if r.CPU >= 0 {
		var set unix.CPUSet
		set.Set(r.CPU)
		bindAll(&set)
	}
	if r.FileSize > 0 {
		unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: r.FileSize, Max: r.FileSize})
	}
	s, _ := parseSecret(r.Secret)
	cfg := Config{
		Secret: s, Job: "test", Host: "here", Rank: r.Rank, Ranks: r.Ranks, Leader: r.Leader,
		PeerTimeout: r.Timeout, Oversubscribed: r.Crowded,
	}
	if r.Rank == r.Ranks[0] {
		ln, err := Listen(s, ListenConfig{Job: "test", Host: "here"})
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		defer ln.Close()
		cfg.Listener = ln
		fmt.Println("at", ln.Addr())
	}
	patience := 20 * time.Second
	if r.Patience > 0 {
		patience = r.Patience
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := Open(ctx, cfg)
	if err != nil {
		fmt.Printf("error unavailable=%v %v\n", errors.As(err, new(*UnavailableError)), err)
		return 1
	}
	fmt.Println("open", l.Oversubscribed())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		name, arg, _ := strings.Cut(in.Text(), " ")
		f := commands[name]
		if f == nil {
			fmt.Println("error no command", name)
			continue
		}
		start := time.Now()
		text, err := f(l, arg)
		if err != nil {
			fmt.Printf("error %dms %v\n", time.Since(start).Milliseconds(), err)
			continue
		}
		fmt.Println("ok", text)
	}
	l.Close()
	return 0
}

// bindAll binds every thread of this process.
func bindAll(set *unix.CPUSet) {
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, t := range tasks {
		tid := 0
		fmt.Sscan(t.Name(), &tid)
		unix.SchedSetaffinity(tid, set)
	}
}

// commands are what a rank can be told to do.
var commands = map[string]func(l *Link, arg string) (string, error){
	"barriers": func(l *Link, arg string) (string, error) { // from, count
		var from, n uint64
		fmt.Sscan(arg, &from, &n)
		for seq := from; seq < from+n; seq++ {
			if err := barrier(l, seq); err != nil {
				return "", err
			}
		}
		return "", nil
	},
	"send": func(l *Link, arg string) (string, error) { // seq, to, bytes
		var seq uint64
		var to, n int
		fmt.Sscan(arg, &seq, &to, &n)
		l.Begin(transport.Stamp{Seq: seq}, time.Time{})
		return "", l.Send(to, make([]byte, n))
	},
	"recv": func(l *Link, arg string) (string, error) {
		var seq uint64
		var from, n int
		fmt.Sscan(arg, &seq, &from, &n)
		l.Begin(transport.Stamp{Seq: seq}, time.Time{})
		return "", l.Recv(from, make([]byte, n))
	},
	"buffer": func(l *Link, arg string) (string, error) {
		n := 0
		fmt.Sscan(arg, &n)
		_, err := l.Buffer(context.Background(), n)
		return "", err
	},
	"pingpong": pingPong,
	"exchange": exchange,
}

func barrier(l *Link, seq uint64) error {
	b := l.board
	l.Begin(transport.Stamp{Seq: seq, Print: 1}, time.Time{})
	b.Arrive(nil)
	for seat := range b.Seats() {
		if _, _, err := b.AwaitArrival(seat, -1); err != nil {
			return err
		}
	}
	return nil
}

// rank is a started rank.
type rank struct {
	*jobtest.Process
	t    testing.TB
	role role
}

func startRank(t testing.TB, r role, wrap ...string) *rank {
	t.Helper()
	env, _ := json.Marshal(r)
	cmd := jobtest.Self(t, rankEnv+"="+string(env))
	if len(wrap) > 0 {
		under := exec.Command(wrap[0], append(wrap[1:], cmd.Path)...)
		under.Env, under.Stderr = cmd.Env, cmd.Stderr
		cmd = under
	}
	p := &rank{jobtest.Start(t, cmd), t, r}
	t.Cleanup(func() {
		p.In.Close()
		p.Cmd.Process.Signal(syscall.SIGCONT)
		select { // an orderly end, if there can be one
		case <-p.Lines:
		case <-time.After(time.Second):
		}
	})
	return p
}

func (p *rank) tell(command string) { p.Tell(command) }

// hear returns the next line, which must come within the time.
func (p *rank) hear(within time.Duration) string {
	p.t.Helper()
	line, ok := p.Next(within)
	if !ok {
		return "ended"
	}
	return line
}

func (p *rank) want(within time.Duration, prefix string) string {
	p.t.Helper()
	line := p.hear(within)
	if !strings.HasPrefix(line, prefix) {
		p.t.Fatalf("heard %q, want %q", line, prefix)
	}
	return line
}

// startJob starts n ranks and waits until they are open.
func startJob(t testing.TB, n int, base role, wrap ...string) []*rank {
	t.Helper()
	if base.Secret == "" {
		s := secret.New()
		base.Secret = hex.EncodeToString(s[:])
	}
	for r := range n {
		base.Ranks = append(base.Ranks, r)
	}
	bound := base.CPU >= 0
	var out []*rank
	for r := range n {
		base.Rank = r
		if bound {
			base.CPU = r
		}
		p := startRank(t, base, wrap...)
		out = append(out, p)
		if r == 0 {
			base.Leader = strings.TrimPrefix(p.want(10*time.Second, "at "), "at ")
		}
	}
	for _, p := range out {
		p.want(20*time.Second, "open")
	}
	return out
}

func TestProcesses(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			ranks := startJob(t, n, role{CPU: -1})
			for _, p := range ranks {
				p.tell("barriers 1 20000")
			}
			for _, p := range ranks {
				p.want(20*time.Second, "ok")
			}
		})
	}
}

// TestKilled kills a rank while the others wait for it: in a board operation, in
// messages, and while buffers are being made.
func TestKilled(t *testing.T) {
	oneProcessor := []string{"taskset", "-c", "0"} // and so GOMAXPROCS=1
	for _, c := range []struct {
		name, waiting string
		wrap          []string
	}{
		{"board", "barriers 1 1000000000", nil},
		{"board on one processor", "barriers 1 1000000000", oneProcessor},
		{"recv", "recv 1 2 8", nil},
		{"send", "send 1 2 99999999", nil},
		{"send on one processor", "send 1 2 99999999", oneProcessor},
		{"buffer", "buffer 100000", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			ranks := startJob(t, 3, role{CPU: -1}, c.wrap...)
			ranks[0].tell(c.waiting)
			ranks[1].tell(c.waiting)
			if strings.HasPrefix(c.name, "board") {
				ranks[2].tell(c.waiting)
			}
			// Let them get into it: no answer for a while.
			for _, p := range ranks[:2] {
				select {
				case line := <-p.Lines:
					t.Fatalf("ended early: %q", line)
				case <-time.After(100 * time.Millisecond):
				}
			}
			start := time.Now()
			ranks[2].Cmd.Process.Kill()
			go ranks[2].Cmd.Process.Wait() // as a launcher would, so that the reason is known
			for _, p := range ranks[:2] {
				line := p.want(5*time.Second, "error")
				if took := time.Since(start); took > time.Second {
					t.Errorf("it took %v", took)
				}
				if !strings.Contains(line, "lost rank 2 on host here: process") {
					t.Errorf("heard %q", line)
				}
				t.Log(line, time.Since(start))
			}
			for _, p := range ranks[:2] { // and later operations as well
				p.tell("barriers 7 1")
				p.want(time.Second, "error")
			}
		})
	}
}

// TestStopped stops a rank: it is lost after the peer timeout, and learns of it.
func TestStopped(t *testing.T) {
	ranks := startJob(t, 3, role{CPU: -1, Timeout: 2 * time.Second})
	for _, p := range ranks {
		p.tell("barriers 1 1000000000")
	}
	for _, p := range ranks {
		select {
		case line := <-p.Lines:
			t.Fatalf("ended early: %q", line)
		case <-time.After(100 * time.Millisecond):
		}
	}
	start := time.Now()
	ranks[1].Cmd.Process.Signal(syscall.SIGSTOP)
	for _, p := range []*rank{ranks[0], ranks[2]} {
		line := p.want(5*time.Second, "error")
		if took := time.Since(start); took < time.Second || took > 4*time.Second {
			t.Errorf("it took %v", took)
		}
		if !strings.Contains(line, "lost rank 1 on host here: silent for 2s") {
			t.Errorf("heard %q", line)
		}
	}
	ranks[1].Cmd.Process.Signal(syscall.SIGCONT)
	line := ranks[1].want(5*time.Second, "error")
	if !strings.Contains(line, "lost rank 1") {
		t.Errorf("the rank that was stopped heard %q", line)
	}
}

// TestShortStop stops a rank for less than the timeout: nothing happens.
func TestShortStop(t *testing.T) {
	ranks := startJob(t, 2, role{CPU: -1, Timeout: 8 * time.Second})
	for _, p := range ranks {
		p.tell("barriers 1 20000")
	}
	ranks[1].Cmd.Process.Signal(syscall.SIGSTOP)
	select {
	case line := <-ranks[0].Lines:
		if !strings.HasPrefix(line, "ok") {
			t.Fatal(line)
		}
	case <-time.After(700 * time.Millisecond):
	}
	ranks[1].Cmd.Process.Signal(syscall.SIGCONT)
	ranks[1].want(30*time.Second, "ok")
}

func TestOversubscribed(t *testing.T) {
	for _, c := range []struct {
		name string
		role role
	}{
		{"told", role{CPU: -1, Crowded: true}},
		{"same processor", role{CPU: -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var wrap []string
			if c.name != "told" {
				wrap = []string{"taskset", "-c", "0"}
			}
			ranks := startJob(t, 4, c.role, wrap...)
			for _, p := range ranks {
				p.tell("barriers 1 2000")
			}
			for _, p := range ranks {
				p.want(20*time.Second, "ok")
			}
		})
	}
}

// TestKilledAnytime kills a rank at a random moment, from before it connects to the
// middle of operations: the others end with an error, wherever they are.
func TestKilledAnytime(t *testing.T) {
	times := 8
	if testing.Short() {
		times = 2
	}
	for range times {
		delay := time.Duration(rand.IntN(40)) * time.Millisecond
		victim := rand.IntN(3)
		s := secret.New()
		base := role{CPU: -1, Secret: hex.EncodeToString(s[:]), Ranks: []int{0, 1, 2}, Patience: 3 * time.Second}
		ranks := []*rank{startRank(t, base)}
		base.Leader = strings.TrimPrefix(ranks[0].want(20*time.Second, "at "), "at ")
		for base.Rank = 1; base.Rank < 3; base.Rank++ {
			ranks = append(ranks, startRank(t, base))
		}
		for _, p := range ranks {
			p.tell("barriers 1 1000000000")
		}
		time.AfterFunc(delay, func() { ranks[victim].Cmd.Process.Kill() })
		for i, p := range ranks {
			if i == victim {
				continue
			}
			line := p.hear(20 * time.Second)
			if strings.HasPrefix(line, "open") {
				line = p.hear(20 * time.Second)
			}
			if !strings.HasPrefix(line, "error") {
				t.Errorf("rank %d killed after %v: rank %d said %q", victim, delay, i, line)
			}
		}
	}
}

// TestNoMemory gives the lowest rank too small a limit: every rank gets an error that
// says so and that TCP is open to them.
func TestNoMemory(t *testing.T) {
	s := secret.New()
	base := role{CPU: -1, Secret: hex.EncodeToString(s[:]), Ranks: []int{0, 1}, FileSize: 100 << 10}
	p0 := startRank(t, base)
	base.Leader = strings.TrimPrefix(p0.want(10*time.Second, "at "), "at ")
	base.Rank, base.FileSize = 1, 0
	p1 := startRank(t, base)
	for _, p := range []*rank{p0, p1} {
		line := p.want(10*time.Second, "error unavailable=true")
		if !strings.Contains(line, "ulimit -f") || !strings.Contains(line, "TCP") {
			t.Errorf("heard %q", line)
		}
	}
}
