package tcp

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"hora/internal/secret"
	"hora/internal/wire"
	"hora/transport"
)

// endable is a context that end ends; asked is closed when Err has said so for the first time.
type endable struct {
	context.Context
	done, asked chan struct{}
	once        sync.Once
}

func newEndable(t *testing.T) *endable {
	return &endable{Context: t.Context(), done: make(chan struct{}), asked: make(chan struct{})}
}

func (e *endable) end()                  { close(e.done) }
func (e *endable) Done() <-chan struct{} { return e.done }

func (e *endable) Err() error {
	select {
	case <-e.done:
		e.once.Do(func() { close(e.asked) })
		return context.Canceled
	default:
		return nil
	}
}

// held is the address of a way to addr on which up and down pass on the first bytes of each direction; what comes then
// waits until release is closed.
func held(t *testing.T, addr string, up, down func(to io.Writer, from io.Reader), release <-chan struct{}) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); ln.Close(); wg.Wait() })
	pump := func(to, from net.Conn, first func(io.Writer, io.Reader)) {
		first(to, from)
		select {
		case <-release:
			io.Copy(to, from)
			to.(*net.TCPConn).CloseWrite()
		case <-ctx.Done():
		}
	}
	wg.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				near.Close()
				continue
			}
			context.AfterFunc(ctx, func() { near.Close(); far.Close() })
			wg.Go(func() { pump(far, near, up) })
			wg.Go(func() { pump(near, far, down) })
		}
	})
	return ln.Addr().String()
}

func all(to io.Writer, from io.Reader) { io.Copy(to, from) }

// hello is passed on alone: the dialling end waits for the proof of the accepting one, which has sent it and has the
// connection.
func hello(to io.Writer, from io.Reader) { io.CopyN(to, from, int64(wire.HelloBytes)) }

// greeting is passed on alone of what the dialling end says in TLS. It has the connection when it has sent the rest,
// for which the accepting one waits.
func greeting(t *testing.T) func(io.Writer, io.Reader) {
	claim := claimBytes(t)
	return func(to io.Writer, from io.Reader) {
		io.CopyN(to, from, claim)
		head := make([]byte, 5) // of a record: its kind, two bytes of version, two of length
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		to.Write(head)
		io.CopyN(to, from, int64(binary.BigEndian.Uint16(head[3:])))
	}
}

type counted struct {
	net.Conn
	n int64
}

func (c *counted) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return c.Conn.Write(b)
}

// claimBytes is what a client writes to prove the secret.
func claimBytes(t *testing.T) int64 {
	t.Helper()
	near, far := net.Pipe()
	key, end := secret.New(), time.Now().Add(10*time.Second)
	id := secret.Identity{Purpose: "count", Job: "test"}
	done := make(chan error, 1)
	go func() {
		_, err := secret.Server(far, key, "far", secret.Expect(id), end)
		done <- err
	}()
	c := &counted{Conn: near}
	if _, err := secret.Client(c, key, id, end); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return c.n
}

// halfMade is a group of two that one rank has already; the connections are still on their way to the other, which is
// making it.
type halfMade struct {
	has     *Mesh
	ctx     *endable // of the other's Open
	release chan struct{}
	opened  chan error // what the other's Open said
	other   *Mesh      // then
}

func halfMake(t *testing.T, late int) *halfMade {
	t.Helper()
	h := &halfMade{ctx: newEndable(t), release: make(chan struct{}), opened: make(chan error, 1)}
	up, down, tls := all, hello, false
	if late == 1 { // the higher rank accepts
		up, down, tls = greeting(t), all, true
	}
	w := newWorld(t, 2, func(c *NodeConfig) { c.TLS = tls })
	open := func(ctx context.Context, rank int) (*Mesh, error) {
		peers := slices.Clone(w.peers)
		peers[1].Addrs = []string{held(t, w.peers[1].Addrs[0], up, down, h.release)}
		return w.nodes[rank].Open(ctx, MeshConfig{Group: 1, Rank: rank, Peers: peers, Oversubscribed: true})
	}
	go func() {
		var err error
		h.other, err = open(h.ctx, late)
		h.opened <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var err error
	if h.has, err = open(ctx, 1-late); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.has.Close() })
	select {
	case err := <-h.opened:
		t.Fatalf("rank %d was to be still making the group: %v", late, err)
	default:
	}
	return h
}

var bothEnds = map[string]int{"dialling": 0, "accepting": 1}

// TestWhatIsOnItsWayIsWaitedFor: the context of a rank that makes a group ends when another has the connections between
// them, and with them the group, and this one is about to have them. It has the group too.
func TestWhatIsOnItsWayIsWaitedFor(t *testing.T) {
	for name, late := range bothEnds {
		t.Run(name, func(t *testing.T) {
			h := halfMake(t, late)
			h.ctx.end()
			<-h.ctx.asked // Open knows that its time is up
			close(h.release)
			if err := <-h.opened; err != nil {
				t.Fatalf("rank %d has the group, rank %d says: %v", 1-late, late, err)
			}
			defer h.other.Close()
			must(t, each([]*Mesh{h.has, h.other}, func(m *Mesh) error {
				m.Begin(transport.Stamp{Seq: 1}, time.Now().Add(10*time.Second))
				var in [1]byte
				return m.Exchange(1-m.Rank(), []byte{7}, 1-m.Rank(), in[:])
			}))
		})
	}
}

// TestWhatNeverComesIsNotWaitedForLong: a connection that stays on its way does not keep Open.
func TestWhatNeverComesIsNotWaitedForLong(t *testing.T) {
	for name, late := range bothEnds {
		t.Run(name, func(t *testing.T) {
			h := halfMake(t, late)
			h.ctx.end()
			select {
			case err := <-h.opened:
				if err == nil {
					t.Fatal("there is no connection, and Open has a group")
				}
			case <-time.After(20 * lingerTime):
				t.Fatal("Open still waits")
			}
		})
	}
}
