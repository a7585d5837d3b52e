package secret

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
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
	Log      *slog.Logger // one line per refused connection; nil: none
}

// Gate lets through a listener only connections that have proved the secret.
type Gate struct {
	cfg    GateConfig
	ln     net.Listener
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex // guards the rest; never held over I/O
	closed   bool
	unproven []net.Conn // oldest first
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
		cfg.Unproven = 256
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := &Gate{cfg: cfg, ln: ln, cancel: cancel}
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
	open := g.unproven
	g.unproven = nil
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
			// Out of descriptors, most likely: others may give some back.
			g.cfg.Log.Warn("accept connection", "error", err)
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
	if len(g.unproven) >= g.cfg.Unproven {
		oldest = g.unproven[0]
		g.unproven = append(g.unproven[:0], g.unproven[1:]...)
	}
	g.unproven = append(g.unproven, conn)
	g.wg.Add(1)
	g.mu.Unlock()
	if oldest != nil {
		oldest.Close()
	}
	return true
}

// release takes conn off the list and reports whether it was still there.
func (g *Gate) release(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, c := range g.unproven {
		if c == conn {
			g.unproven = append(g.unproven[:i], g.unproven[i+1:]...)
			return true
		}
	}
	return false
}

func (g *Gate) prove(ctx context.Context, conn net.Conn) {
	defer g.wg.Done()
	from := remote(conn)
	peer, err := Server(conn, g.cfg.Secret, g.cfg.Host, g.cfg.Accept, time.Now().Add(g.cfg.Timeout))
	ours := g.release(conn)
	if err == nil && !ours {
		conn.Close()
		err = fmt.Errorf("prove secret: %s: too many connections wait for their proof", from)
	}
	if err != nil {
		if ctx.Err() == nil {
			g.cfg.Log.Warn("refused connection", "from", from, "error", err)
		}
		return
	}
	g.cfg.Enter(ctx, conn, peer)
}
