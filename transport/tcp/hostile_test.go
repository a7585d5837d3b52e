package tcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/internal/secret"
	"hora/internal/wire"
	"hora/transport"
)

// stranger connects to a node.
func stranger(t *testing.T, p Peer) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// shut expects that the other side closes c without a word beyond its hello.
func shut(t *testing.T, name string, c net.Conn, atMost int) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(15 * time.Second))
	got, err := io.ReadAll(c)
	var nerr net.Error
	if errors.As(err, &nerr) && nerr.Timeout() {
		t.Errorf("%s: the connection stays open", name)
	}
	if len(got) > atMost {
		t.Errorf("%s: was told %d bytes", name, len(got))
	}
}

func TestStrangersAreShutOutAndTheJobGoesOn(t *testing.T) {
	w := newWorld(t, 2, nil)
	meshes := w.open(1, nil)
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		must(t, each(meshes, func(m *Mesh) error {
			for seq := uint64(1); ; seq++ {
				end := byte(0)
				select {
				case <-stop:
					end = 1
				default:
				}
				m.Begin(transport.Stamp{Seq: seq, Print: 1}, time.Time{})
				out, in := []byte{end}, []byte{0}
				o := 1 - m.Rank()
				if err := m.Exchange(o, out, o, in); err != nil {
					return err
				}
				if out[0]|in[0] != 0 {
					return nil
				}
			}
		}))
	})
	hello := wire.AppendHello(nil, wire.Hello{Version: wire.Version})
	var frame [wire.HeaderBytes]byte
	wire.Header{Kind: wire.FrameData, Len: 1 << 40, Seq: 1, Print: 1}.Put(frame[:])
	noise := make([]byte, 1<<16)
	rand.Read(noise)
	for name, bytes := range map[string][]byte{
		"http":             []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"pickle":           []byte("\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00cos\nsystem\n"),
		"frame":            frame[:],
		"control message":  wire.AppendControl(nil, wire.Control{Kind: wire.ControlPoison, Group: 1, Lost: 1, Text: []byte("x")}),
		"noise":            noise,
		"hello, then junk": append(hello[:len(hello):len(hello)], noise...),
		"old version":      wire.AppendHello(nil, wire.Hello{Version: 0}),
	} {
		c := stranger(t, w.peers[0])
		c.Write(bytes)
		shut(t, name, c, wire.HelloBytes)
	}
	// Truncated: half a hello, then gone.
	stranger(t, w.peers[1]).Write(hello[:10])
	// Slow: says nothing at all, a hundred times over.
	for range 100 {
		stranger(t, w.peers[0])
	}
	close(stop)
	running.Wait()
	for _, want := range []string{"not hora's", "version 0", "prove"} {
		if !strings.Contains(w.log.String(), want) {
			t.Errorf("no log line says %q:\n%s", want, w.log)
		}
	}
	// And the node still lets its peers in.
	must(t, each(w.open(2, nil), func(m *Mesh) error { return ring(m, 1, 1000) }))
}

func TestProvenPeersAreJudgedToo(t *testing.T) {
	w := newWorld(t, 2, nil)
	n := w.nodes[0]
	me := n.identity(purposeData, 0, 1, 0)
	me.Rank = 1
	for want, change := range map[string]func(*secret.Identity){
		"job":            func(id *secret.Identity) { id.Job = "another" },
		"epoch":          func(id *secret.Identity) { id.Epoch = 9 },
		"rank 5 was":     func(id *secret.Identity) { id.Peer = 5 },
		"not a peer":     func(id *secret.Identity) { id.Rank = 0 },
		"no connection":  func(id *secret.Identity) { id.Purpose = "rendezvous" },
		"TLS":            func(id *secret.Identity) { id.Cert[0] = 1 },
		"is not a peer'": func(id *secret.Identity) { id.Rank = secret.Anyone },
	} {
		id := me
		change(&id)
		_, err := secret.Client(stranger(t, w.peers[0]), n.cfg.Secret, id, time.Now().Add(5*time.Second))
		var refused *secret.RefusedError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// prover makes, by hand, rank 0's data connection to m, which is rank 1.
func prover(t *testing.T, w *world, m *Mesh) net.Conn {
	t.Helper()
	id := w.nodes[0].identity(purposeData, 1, m.cfg.Group, 0)
	c := stranger(t, w.peers[1])
	if _, err := secret.Client(c, w.nodes[0].cfg.Secret, id, time.Now().Add(5*time.Second)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); ; {
		m.mu.Lock()
		there := m.ready[0] != nil
		m.mu.Unlock()
		if there {
			return c
		}
		if time.Now().After(end) {
			t.Fatal("the connection does not arrive")
		}
		runtime.Gosched()
	}
}

// Garbage on a proven connection breaks that connection; nothing of it is stored
// beyond what was asked for.
func TestGarbageOnAProvenConnection(t *testing.T) {
	for name, garbage := range map[string][]byte{
		"noise": make([]byte, 4096),
		"truncated": func() []byte {
			var b [wire.HeaderBytes]byte
			wire.Header{Kind: 1, Len: 9, Seq: 1, Print: 1}.Put(b[:])
			return b[:]
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2, nil)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			lazy := func(int) bool { return true }
			var meshes [2]*Mesh
			var wg sync.WaitGroup
			for r := range 2 {
				wg.Go(func() {
					var err error
					meshes[r], err = w.nodes[r].Open(ctx,
						MeshConfig{Group: 1, Rank: r, Peers: w.peers, Lazy: lazy, Oversubscribed: true})
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			m := meshes[1]
			c := prover(t, w, m)
			m.Begin(transport.Stamp{Seq: 1, Print: 1}, time.Time{})
			buf := make([]byte, 64)
			for i := range buf {
				buf[i] = 0xAA
			}
			if name == "noise" {
				rand.Read(garbage)
			}
			c.Write(garbage)
			if name == "truncated" {
				c.Close()
			}
			err := m.Recv(0, buf[:9])
			var lost *transport.PeerLostError
			if !errors.As(err, &lost) || lost.Rank != 0 {
				t.Fatal(err)
			}
			for i, b := range buf {
				if b != 0xAA {
					t.Fatalf("byte %d was written", i)
				}
			}
		})
	}
}

// An enormous or unequal length never reaches memory: it is a mismatch.
func TestOversizedFrameIsAMismatch(t *testing.T) {
	meshes := newWorld(t, 2, nil).open(1, nil)
	buf := make([]byte, 4096)
	must(t, each(meshes, func(m *Mesh) error {
		m.Begin(transport.Stamp{Seq: 1, Print: 1}, time.Time{})
		if m.Rank() == 1 {
			var mismatch *transport.MismatchError
			if err := m.Send(0, make([]byte, 32<<20)); !errors.As(err, &mismatch) {
				return err
			}
		} else {
			var mismatch *transport.MismatchError
			if err := m.Recv(1, buf[:100]); !errors.As(err, &mismatch) {
				return err
			}
		}
		_, err := m.Explain([]byte("x"))
		return err
	}))
	for i, b := range buf {
		if b != 0 {
			t.Fatalf("byte %d was written", i)
		}
	}
}

// A network that swallows everything: connections stay open and silent.
func TestSilentNetworkIsNoticed(t *testing.T) {
	w := newWorld(t, 2, func(c *NodeConfig) { c.PeerTimeout = 600 * time.Millisecond })
	p := newProxy(t, w.peers[1].Addrs[0])
	w.peers[1].Addrs = []string{p.addr}
	meshes := w.open(1, nil)
	must(t, each(meshes, func(m *Mesh) error { return ring(m, 1, 1000) }))
	p.swallow()
	begun := time.Now()
	errs := each(meshes, func(m *Mesh) error { return ring(m, 2, 1000) })
	for r, err := range errs {
		var lost *transport.PeerLostError
		if !errors.As(err, &lost) || lost.Rank != 1-r || !strings.Contains(lost.Reason, "silent for 600ms") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if d := time.Since(begun); d > 2*time.Second {
		t.Errorf("took %v", d)
	}
}

// proxy forwards connections until told to swallow what comes.
type proxy struct {
	addr string
	mu   sync.Mutex
	gone bool
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: ln.Addr().String()}
	t.Cleanup(func() { ln.Close() })
	copyAll := func(dst, src net.Conn) {
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if !p.gone { // a network that swallows everything swallows the end, too
				dst.Close()
			}
		}()
		b := make([]byte, 32<<10)
		for {
			n, err := src.Read(b)
			if err != nil {
				return
			}
			p.mu.Lock()
			gone := p.gone
			p.mu.Unlock()
			if !gone {
				dst.Write(b[:n])
			}
		}
	}
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			go copyAll(out, in)
			go copyAll(in, out)
		}
	}()
	return p
}

func (p *proxy) swallow() {
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
}

func TestNothingIsLeftBehind(t *testing.T) {
	count := func() (fds, goroutines int) {
		list, err := os.ReadDir("/dev/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list), runtime.NumGoroutine()
	}
	cycle := func(tls bool) {
		w := newWorld(t, 3, func(c *NodeConfig) { c.TLS = tls })
		meshes := w.open(1, nil)
		must(t, each(meshes, func(m *Mesh) error { return ring(m, 1, 10_000) }))
		if tls {
			meshes[0].Fail(errors.New("test"))
		}
		w.close()
		w.close() // twice is no harm
	}
	cycle(false)
	fds, goroutines := count()
	for i := range 4 {
		cycle(i%2 == 1)
	}
	// Runtime goroutines (timers of finished connections) may end a moment later.
	for end := time.Now().Add(5 * time.Second); ; {
		f, g := count()
		if f <= fds && g <= goroutines {
			return
		}
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d descriptors, %d goroutines; before %d and %d\n%s", f, g, fds, goroutines, buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
	}
}

func TestOpenNamesWhoIsMissing(t *testing.T) {
	w := newWorld(t, 3, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, r := range []int{0, 1} {
		wg.Go(func() {
			peers := append([]Peer(nil), w.peers...)
			peers[2].Addrs = []string{"127.0.0.1:1"}
			_, errs[i] = w.nodes[r].Open(ctx, MeshConfig{Group: 1, Rank: r, Peers: peers})
		})
	}
	wg.Wait()
	for r, err := range errs {
		if want := fmt.Sprintf("rank 2 on host host2 could not be reached from host%d at 127.0.0.1:1", r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d: %v, want %q", r, err, want)
		}
	}
}

// The other side uses another secret: one sentence, at once, not a time-out.
func TestOpenWithAnotherSecret(t *testing.T) {
	i := 0
	w := newWorld(t, 2, func(c *NodeConfig) {
		if i++; i == 2 {
			c.Secret = secret.New()
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for r := range 2 {
		wg.Go(func() {
			if _, err := w.nodes[r].Open(ctx, MeshConfig{Group: 1, Rank: r, Peers: w.peers}); err == nil {
				t.Error("opened")
			} else if r == 0 && !strings.Contains(err.Error(), "HORA_SECRET_FILE") {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
