package tcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/internal/jobtest"
	"hora/internal/secret"
	"hora/transport"
)

// Real processes: the test binary starts itself as a rank when this variable is set.
const rankVariable = "HORA_TCP_TEST_RANK"

// rankSpec is what a rank process gets, on its environment; its peers' addresses
// come on stdin once all have printed theirs.
type rankSpec struct {
	Rank, Size  int
	Secret      string
	PeerTimeout time.Duration
	Bytes       int
	Listen      string // "": loopback
	IdleRank    int    // never takes part in an operation; -1: none
	TLS         bool
	Bench       int    // so many small allreduces instead of the ring; prints ns each
	Core        int    // bind to this core; -1: none
	Mesh        string // JSON of a MeshConfig whose tuning fields count
}

func TestMain(m *testing.M) {
	if spec := os.Getenv(rankVariable); spec != "" {
		if err := beRank(spec); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// beRank exchanges around the ring until an operation fails, and prints that.
func beRank(text string) error {
	var s rankSpec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	key, err := secret.Parse([]byte(s.Secret))
	if err != nil {
		return err
	}
	if s.Listen == "" {
		s.Listen = "127.0.0.1:0"
	}
	l, err := Listen(context.Background(), s.Listen)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.Encode(l.Addrs())
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	var peers []Peer
	if err := json.Unmarshal(line, &peers); err != nil {
		return err
	}
	n, err := NewNode(l, NodeConfig{
		Secret: key, Job: "test", Rank: s.Rank, Host: peers[s.Rank].Host,
		PeerTimeout: s.PeerTimeout, TLS: s.TLS,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cfg := MeshConfig{Group: 1, Rank: s.Rank, Peers: peers, Oversubscribed: true}
	if s.Mesh != "" {
		var tuning struct {
			Lanes, StripeBytes, SocketBytes, Polls, Yields int
			Oversubscribed                                 bool
		}
		if err := json.Unmarshal([]byte(s.Mesh), &tuning); err != nil {
			return err
		}
		cfg.Lanes, cfg.StripeBytes, cfg.SocketBytes = tuning.Lanes, tuning.StripeBytes, tuning.SocketBytes
		cfg.Polls, cfg.Yields, cfg.Oversubscribed = tuning.Polls, tuning.Yields, tuning.Oversubscribed
	}
	m, err := n.Open(ctx, cfg)
	if err != nil {
		return err
	}
	if s.Bench > 0 {
		return s.bench(m, n)
	}
	if s.Rank == s.IdleRank {
		fmt.Println("running")
		io.Copy(io.Discard, in)
		return n.Close()
	}
	for seq := uint64(1); ; seq++ {
		if seq == 20 {
			fmt.Println("running")
		}
		if err := ring(m, seq, s.Bytes); err != nil {
			again := ring(m, seq+1, 8)
			fmt.Println("failed", err, "| later:", again)
			return n.Close()
		}
		if seq%1000 == 0 && in.Buffered() > 0 {
			return n.Close()
		}
	}
}

// proc is one rank process.
type proc struct{ *jobtest.Process }

// spawn starts the ranks and returns when all are exchanging.
func spawn(t testing.TB, size int, set func(*rankSpec), wrap func(rank int, cmd *exec.Cmd)) []*proc {
	t.Helper()
	key := secret.New().Hex()
	procs := make([]*proc, size)
	peers := make([]Peer, size)
	for r := range size {
		spec := rankSpec{Rank: r, Size: size, Secret: key, PeerTimeout: 10 * time.Second, Bytes: 1000, IdleRank: -1}
		if set != nil {
			set(&spec)
		}
		text, _ := json.Marshal(spec)
		cmd := jobtest.Self(t, rankVariable+"="+string(text))
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if wrap != nil {
			wrap(r, cmd)
		}
		procs[r] = &proc{jobtest.Start(t, cmd)}
		t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // what it runs under, and what that runs
	}
	for r, p := range procs {
		peers[r] = Peer{Rank: r, Host: fmt.Sprintf("host%d", r)}
		if err := json.Unmarshal([]byte(p.next(t, 10*time.Second)), &peers[r].Addrs); err != nil {
			t.Fatal(err)
		}
	}
	list, _ := json.Marshal(peers)
	for _, p := range procs {
		p.Tell(string(list))
	}
	for r, p := range procs {
		if got := p.next(t, 20*time.Second); got != "running" {
			t.Fatalf("rank %d: %s", r, got)
		}
	}
	return procs
}

// next is the process's next line.
func (p *proc) next(t testing.TB, within time.Duration) string {
	t.Helper()
	line, ok := p.Next(within)
	if !ok {
		t.Fatal("the rank ended without a word")
	}
	return line
}

// allBut expects that every other rank fails within a bound, with an error that
// names the victim, and that its later operations fail too.
func allBut(t *testing.T, procs []*proc, victim int, within time.Duration, reasons ...string) {
	t.Helper()
	begun := time.Now()
	for r, p := range procs {
		if r == victim {
			continue
		}
		line := p.next(t, within)
		named := strings.Contains(line, fmt.Sprintf("lost rank %d on host host%d", victim, victim))
		because := false
		for _, reason := range reasons {
			because = because || strings.Contains(line, reason)
		}
		if !strings.HasPrefix(line, "failed") || !named || !because || strings.Contains(line, "later: <nil>") {
			t.Errorf("rank %d: %s", r, line)
		}
		t.Logf("rank %d after %v: %s", r, time.Since(begun).Round(time.Millisecond), line)
	}
	if d := time.Since(begun); d > within {
		t.Errorf("took %v, at most %v", d, within)
	}
}

func TestKilledRankEndsEveryWaitWithinASecond(t *testing.T) {
	for _, bytes := range []int{4, 1 << 18} {
		for _, size := range []int{2, 4} {
			t.Run(fmt.Sprintf("%d ranks, %d bytes", size, bytes), func(t *testing.T) {
				procs := spawn(t, size, func(s *rankSpec) { s.Bytes = bytes }, nil)
				procs[1].Cmd.Process.Kill()
				allBut(t, procs, 1, time.Second, reasonClosed, reasonReset)
			})
		}
	}
}

func TestKilledRankUnderTLS(t *testing.T) {
	procs := spawn(t, 3, func(s *rankSpec) { s.TLS = true }, nil)
	procs[2].Cmd.Process.Kill()
	allBut(t, procs, 2, time.Second, reasonClosed, reasonReset)
}

func TestStoppedRankIsLostAfterThePeerTimeout(t *testing.T) {
	// A rank that gets no processor for as long would be lost too, and the wrong one named.
	const silence = 2 * time.Second
	procs := spawn(t, 3, func(s *rankSpec) { s.PeerTimeout = silence }, nil)
	procs[1].Cmd.Process.Signal(syscall.SIGSTOP)
	allBut(t, procs, 1, 3*(silence+silence/3), "silent for 2s") // 2.5 s on a machine of one's own
	procs[1].Cmd.Process.Signal(syscall.SIGCONT)
	line := procs[1].next(t, 20*time.Second)
	if !strings.HasPrefix(line, "failed") {
		t.Errorf("the stopped rank went on: %s", line)
	}
}

// A whole job that is stopped for longer than the peer timeout and continued (a
// closed laptop) goes on.
func TestJobThatIsStoppedAsAWholeGoesOn(t *testing.T) {
	procs := spawn(t, 2, func(s *rankSpec) { s.PeerTimeout = 800 * time.Millisecond }, nil)
	for _, p := range procs {
		p.Cmd.Process.Signal(syscall.SIGSTOP)
	}
	<-time.After(1500 * time.Millisecond)
	for _, p := range procs {
		p.Cmd.Process.Signal(syscall.SIGCONT)
	}
	select {
	case line := <-procs[0].Lines:
		t.Fatal(line)
	case line := <-procs[1].Lines:
		t.Fatal(line)
	case <-time.After(2 * time.Second):
	}
}

func TestRankThatLeavesInOrderSaysSo(t *testing.T) {
	meshes := newWorld(t, 3, nil).open(1, nil)
	must(t, each(meshes, func(m *Mesh) error { return ring(m, 1, 100) }))
	errs := each(meshes, func(m *Mesh) error {
		if m.Rank() == 1 {
			return m.Close()
		}
		return ring(m, 2, 100)
	})
	for _, r := range []int{0, 2} {
		if r == 0 && errs[r] == nil {
			continue // it had only to send to rank 1
		}
		var lost *transport.PeerLostError
		if !errors.As(errs[r], &lost) || lost.Rank != 1 || !lost.Left() {
			t.Errorf("rank %d: %v", r, errs[r])
		}
	}
	if errs[1] != nil {
		t.Error(errs[1])
	}
}

// The last thing that a rank sends before it leaves arrives, whatever its size.
func TestWhatWasSentBeforeLeavingArrives(t *testing.T) {
	for _, tls := range []bool{false, true} {
		meshes := newWorld(t, 2, func(c *NodeConfig) { c.TLS = tls }).open(1, nil)
		must(t, each(meshes, func(m *Mesh) error {
			m.Begin(transport.Stamp{Seq: 1, Print: 1}, time.Time{})
			b := make([]byte, 300_000)
			if m.Rank() == 0 {
				pattern(b, 0, 1)
				if err := m.Send(1, b); err != nil {
					return err
				}
				return m.Close()
			}
			<-time.After(100 * time.Millisecond)
			if err := m.Recv(0, b); err != nil {
				return err
			}
			want := make([]byte, len(b))
			pattern(want, 0, 1)
			if string(b) != string(want) {
				return errors.New("other bytes came")
			}
			return nil
		}))
	}
}
