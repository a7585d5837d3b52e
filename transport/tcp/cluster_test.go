package tcp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"hora/internal/secret"
	"hora/transport"
)

// world is n processes' worth of nodes in this process, on loopback.
type world struct {
	t     testing.TB
	nodes []*Node
	peers []Peer
	log   *safeBuffer
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}
func (s *safeBuffer) String() string { s.mu.Lock(); defer s.mu.Unlock(); return s.b.String() }

func newWorld(t testing.TB, n int, set func(*NodeConfig)) *world {
	t.Helper()
	w := &world{t: t, log: &safeBuffer{}}
	key := secret.New()
	for r := range n {
		l, err := Listen(context.Background(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cfg := NodeConfig{
			Secret: key, Job: "test", Epoch: 1, Rank: r, Host: fmt.Sprintf("host%d", r),
			Log: slog.New(slog.NewTextHandler(w.log, nil)),
		}
		log := cfg.Log // tests want to hear of each stranger
		cfg.Strangers = secret.NewStrangers(func(r secret.Refused) { log.Warn(r.String()) }).Telling(1000, time.Minute)
		if set != nil {
			set(&cfg)
		}
		w.peers = append(w.peers, Peer{Rank: r, Host: cfg.Host, Addrs: l.Addrs()})
		node, err := NewNode(l, cfg)
		if err != nil {
			t.Fatal(err)
		}
		w.nodes = append(w.nodes, node)
	}
	t.Cleanup(w.close)
	return w
}

func (w *world) close() {
	var wg sync.WaitGroup
	for _, n := range w.nodes {
		wg.Go(func() { n.Close() })
	}
	wg.Wait()
}

// open opens one group of all.
func (w *world) open(group uint64, set func(*MeshConfig)) []*Mesh {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	meshes := make([]*Mesh, len(w.nodes))
	errs := make([]error, len(w.nodes))
	var wg sync.WaitGroup
	for r, n := range w.nodes {
		wg.Go(func() {
			cfg := MeshConfig{Group: group, Rank: r, Peers: w.peers, Oversubscribed: true}
			if set != nil {
				set(&cfg)
			}
			meshes[r], errs[r] = n.Open(ctx, cfg)
		})
	}
	wg.Wait()
	for r, err := range errs {
		if err != nil {
			w.t.Fatalf("rank %d: %v\n%s", r, err, w.log)
		}
	}
	return meshes
}

// each runs f for every rank at once and returns the errors.
func each(meshes []*Mesh, f func(m *Mesh) error) []error {
	errs := make([]error, len(meshes))
	var wg sync.WaitGroup
	for r, m := range meshes {
		wg.Go(func() { errs[r] = f(m) })
	}
	wg.Wait()
	return errs
}

func must(t testing.TB, errs []error) {
	t.Helper()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
}

// pattern fills p with what rank sends in operation seq.
func pattern(p []byte, rank int, seq uint64) {
	g := rand.NewPCG(uint64(rank)+1, seq)
	for i := 0; i+8 <= len(p); i += 8 {
		v := g.Uint64()
		for k := range 8 {
			p[i+k] = byte(v >> (8 * k))
		}
	}
	for i := len(p) &^ 7; i < len(p); i++ {
		p[i] = byte(rank) + byte(seq) + byte(i)
	}
}

// ring sends n bytes to the right and checks what comes from the left.
func ring(m *Mesh, seq uint64, n int) error {
	m.Begin(transport.Stamp{Seq: seq, Print: 7}, time.Time{})
	right, left := (m.Rank()+1)%m.Size(), (m.Rank()+m.Size()-1)%m.Size()
	out, in, want := make([]byte, n), make([]byte, n), make([]byte, n)
	pattern(out, m.Rank(), seq)
	pattern(want, left, seq)
	if err := m.Exchange(right, out, left, in); err != nil {
		return err
	}
	if !bytes.Equal(in, want) {
		return fmt.Errorf("operation %d: %d bytes came, but other ones", seq, n)
	}
	return nil
}

var _ io.Writer = (*safeBuffer)(nil)
