package secret

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// GateConfig says whom a Gate lets in and what happens then.
type GateConfig struct {
	Secret Secret
	Host   string // this host's name, for error texts
	// Accept judges a peer that has proved the secret; see Server.
	Accept func(Identity) (Identity, error)
	// Enter gets each proven connection, on a goroutine of the gate that Close
	// waits for: it must return soon after the context ends. It owns the
	// connection, whose deadline is clear.
	Enter func(ctx context.Context, conn net.Conn, peer Identity)
	// Timeout bounds each proof; 0: ProofTimeout.
	Timeout time.Duration
	// Unproven bounds the connections in mid-proof; when one more comes, the
	// oldest is closed, so that strangers who say nothing keep nobody out. 0: 256.
	Unproven int
	// Where names the listener in what Strangers are told: "at rank 3's port".
	Where     string
	Strangers *Strangers // hears of refused connections; nil: nobody does
}

// Unproven is how many connections may be in mid-proof where another bound is not given.
const Unproven = 256

// Room is the Unproven of a gate that n peers may dial at once: as many as they are, as far as a quarter of the
// descriptors that this process may have goes. Who is dropped nevertheless dials again.
func Room(n int) int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err == nil && uint64(n) > uint64(l.Cur)/4 {
		n = int(uint64(l.Cur) / 4)
	}
	return max(Unproven, n)
}

// Gate lets through a listener only connections that have proved the secret.
type Gate struct {
	cfg    GateConfig
	ln     net.Listener
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex // guards the rest; never held over I/O
	closed   bool
	unproven list.List // of net.Conn, oldest first
	places   map[net.Conn]*list.Element
}

// NewGate starts to accept from ln, which it owns from now on.
func NewGate(ln net.Listener, cfg GateConfig) (*Gate, error) {
	if cfg.Secret.IsZero() || cfg.Accept == nil || cfg.Enter == nil {
		ln.Close()
		return nil, errors.New("open gate: it needs a secret and the functions Accept and Enter")
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = ProofTimeout
	}
	if cfg.Unproven <= 0 {
		cfg.Unproven = Unproven
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := &Gate{cfg: cfg, ln: ln, cancel: cancel, places: map[net.Conn]*list.Element{}}
	g.wg.Add(1)
	go g.accept(ctx)
	return g, nil
}

// Addr is the listener's address.
func (g *Gate) Addr() net.Addr { return g.ln.Addr() }

// Close stops accepting, closes what is in mid-proof and waits for the gate's
// goroutines. Connections that were let through are their owners'.
func (g *Gate) Close() error {
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	var open []net.Conn
	for c := g.shift(); c != nil; c = g.shift() {
		open = append(open, c)
	}
	g.mu.Unlock()
	var err error
	if first {
		g.cancel()
		err = g.ln.Close()
		for _, c := range open {
			c.Close()
		}
	}
	g.wg.Wait()
	return err
}

func (g *Gate) accept(ctx context.Context) {
	defer g.wg.Done()
	for pause := time.Millisecond; ; {
		conn, err := g.ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors, most likely: strangers' are taken back, and others may give some back.
			g.cfg.Strangers.Refuse(g.cfg.Where, fmt.Errorf("accept connection: %w", err))
			if oldest := g.oldest(); oldest != nil {
				oldest.Close()
				pause = time.Millisecond // until its goroutine has let go of it
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			pause = min(2*pause, time.Second)
			continue
		}
		pause = time.Millisecond
		if !g.admit(conn) {
			conn.Close()
			return
		}
		go g.prove(ctx, conn)
	}
}

func (g *Gate) admit(conn net.Conn) bool {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return false
	}
	var oldest net.Conn
	if g.unproven.Len() >= g.cfg.Unproven {
		oldest = g.shift()
	}
	g.places[conn] = g.unproven.PushBack(conn)
	g.wg.Add(1)
	g.mu.Unlock()
	if oldest != nil {
		oldest.Close()
	}
	return true
}

// shift takes the oldest connection in mid-proof off the list, nil when there is none; mu is held.
func (g *Gate) shift() net.Conn {
	first := g.unproven.Front()
	if first == nil {
		return nil
	}
	c := g.unproven.Remove(first).(net.Conn)
	delete(g.places, c)
	return c
}

// oldest is shift for whoever does not hold mu.
func (g *Gate) oldest() net.Conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shift()
}

// release takes conn off the list and reports whether it was still there.
func (g *Gate) release(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.places[conn]
	if at == nil {
		return false
	}
	g.unproven.Remove(at)
	delete(g.places, conn)
	return true
}

func (g *Gate) prove(ctx context.Context, conn net.Conn) {
	defer g.wg.Done()
	from := remote(conn)
	peer, err := Server(conn, g.cfg.Secret, g.cfg.Host, g.cfg.Accept, time.Now().Add(g.cfg.Timeout))
	if ours := g.release(conn); !ours {
		conn.Close()
		err = fmt.Errorf("prove secret: %s had not when %d others waited for their proof too", from, g.cfg.Unproven)
	}
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, errWordless) {
			g.cfg.Strangers.Refuse(g.cfg.Where, err)
		}
		return
	}
	g.cfg.Enter(ctx, conn, peer)
}
