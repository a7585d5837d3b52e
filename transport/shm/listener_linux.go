package shm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hora/internal/secret"
)

const (
	purpose     = "shared memory"
	proofTime   = 5 * time.Second
	claimTime   = 2 * time.Minute // how long a proved connection waits for its group to open
	maxUnproved = 64              // connections that may be proving at once
	maxParked   = 4096
)

// Listener is where the other ranks of the host find this process. It serves all
// groups of a job whose lowest local rank this process is.
type Listener struct {
	ln     *net.UnixListener
	secret secret.Secret
	cfg    ListenConfig
	slots  chan struct{} // one per connection that may be proving
	done   chan struct{} // closed by Close

	mu     sync.Mutex // guards the rest; never held over I/O or a channel
	closed bool
	groups map[groupKey]*claims
	open   map[*net.UnixConn]bool // connections that prove or wait here

	work sync.WaitGroup
}

// groupKey names a group within the job.
type groupKey struct{ epoch, group uint64 }

// claims are the connections of one group that nobody has taken yet.
type claims struct {
	ready []claim
	bell  chan struct{} // one token when ready has grown; nil while no Open waits
}

type claim struct {
	rank  int
	conn  *net.UnixConn
	pidfd int // -1: unknown
	since time.Time
}

// Listen opens the socket and starts to accept.
func Listen(s secret.Secret, cfg ListenConfig) (*Listener, error) {
	if s.IsZero() {
		return nil, errors.New("listen for shared memory: there is no secret; set HORA_SECRET_FILE")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	name := cfg.Addr
	if name == "" {
		var random [12]byte
		rand.Read(random[:])
		name = "@hora-" + hex.EncodeToString(random[:])
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, unavailable("listen on unix socket: %w", err)
	}
	l := &Listener{
		ln: ln, secret: s, cfg: cfg, slots: make(chan struct{}, maxUnproved), done: make(chan struct{}),
		groups: map[groupKey]*claims{}, open: map[*net.UnixConn]bool{},
	}
	l.work.Add(1)
	go l.accept()
	l.work.Go(func() { fenced() })
	return l, nil
}

// Addr is what the other ranks give as Config.Leader.
func (l *Listener) Addr() string { return l.ln.Addr().String() }

// Close ends all connections that no Link has taken and joins the goroutines.
func (l *Listener) Close() error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	var conns []*net.UnixConn
	for c := range l.open {
		conns = append(conns, c)
	}
	for key, g := range l.groups {
		for _, c := range g.ready {
			conns = append(conns, c.conn)
			closeFD(c.pidfd)
		}
		g.ready = nil
		delete(l.groups, key)
	}
	l.mu.Unlock()
	var err error
	if first {
		close(l.done)
		err = l.ln.Close()
	}
	for _, c := range conns {
		c.Close()
	}
	l.work.Wait()
	return err
}

func (l *Listener) accept() {
	defer l.work.Done()
	for {
		conn, err := l.ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, most likely: let others finish
			l.cfg.Log.Warn("accept on shared memory's socket failed", "err", err)
			select {
			case <-l.done:
				return
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		// By the kernel's word, before anything else: other users cost nothing more.
		pidfd, err := credentials(conn)
		if err != nil {
			l.cfg.Log.Warn("refused a connection to shared memory's socket", "err", err)
			conn.Close()
			continue
		}
		l.slots <- struct{}{} // proofs are bounded, so this is; the rest waits in the backlog
		if !l.track(conn) {
			<-l.slots
			conn.Close()
			closeFD(pidfd)
			return
		}
		l.work.Add(1)
		go func() {
			defer l.work.Done()
			defer func() { <-l.slots }()
			l.receive(conn, pidfd)
		}()
	}
}

func (l *Listener) track(conn *net.UnixConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.open[conn] = true
	return true
}

// receive has one connection prove itself and parks it for its group.
func (l *Listener) receive(conn *net.UnixConn, pidfd int) {
	peer, err := l.prove(conn)
	l.mu.Lock()
	delete(l.open, conn)
	if err == nil && l.closed {
		err = net.ErrClosed
	}
	var stale []claim
	if err == nil {
		stale = l.park(groupKey{peer.Epoch, peer.Group}, claim{peer.Rank, conn, pidfd, time.Now()})
	}
	l.mu.Unlock()
	for _, c := range stale {
		c.drop()
	}
	if err != nil {
		conn.Close()
		closeFD(pidfd)
		if !errors.Is(err, net.ErrClosed) {
			l.cfg.Log.Warn("refused a connection to shared memory's socket", "err", err)
		}
	}
}

func (c claim) drop() {
	c.conn.Close()
	closeFD(c.pidfd)
}

// prove has the peer prove the secret, and says who it is.
func (l *Listener) prove(conn *net.UnixConn) (secret.Identity, error) {
	accept := func(id secret.Identity) (secret.Identity, error) {
		me := secret.Identity{
			Purpose: purpose, Job: l.cfg.Job, Epoch: id.Epoch, Group: id.Group,
			Rank: secret.Anyone, Peer: secret.Anyone, Host: l.cfg.Host,
		}
		if id.Rank < 0 {
			return me, errors.New("a rank is needed")
		}
		return me, secret.Match(me, id)
	}
	return secret.Server(conn, l.secret, l.cfg.Host, accept, time.Now().Add(proofTime))
}

// park keeps c until its group takes it, and returns what has waited for too long.
// The caller holds l.mu.
func (l *Listener) park(key groupKey, c claim) (stale []claim) {
	total := 0
	for k, g := range l.groups {
		kept := g.ready[:0]
		for _, old := range g.ready {
			if c.since.Sub(old.since) > claimTime || k == key && old.rank == c.rank {
				stale = append(stale, old)
			} else {
				kept = append(kept, old)
			}
		}
		g.ready = kept
		total += len(kept)
		if len(kept) == 0 && g.bell == nil && k != key {
			delete(l.groups, k)
		}
	}
	if total >= maxParked {
		return append(stale, c)
	}
	g := l.groups[key]
	if g == nil {
		g = &claims{}
		l.groups[key] = g
	}
	g.ready = append(g.ready, c)
	if g.bell != nil {
		select {
		case g.bell <- struct{}{}:
		default:
		}
	}
	return stale
}

// take hands the connections of a group to got as they come, until got says that
// it has all or ctx ends.
func (l *Listener) take(ctx context.Context, key groupKey, got func(claim) (all bool)) error {
	l.mu.Lock()
	g := l.groups[key]
	if g == nil {
		g = &claims{}
		l.groups[key] = g
	}
	if g.bell != nil || l.closed {
		l.mu.Unlock()
		return errors.New("open shared memory: this group is being opened already, or the listener is closed")
	}
	g.bell = make(chan struct{}, 1)
	bell := g.bell
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		left := g.ready
		g.ready, g.bell = nil, nil
		if l.groups[key] == g {
			delete(l.groups, key)
		}
		l.mu.Unlock()
		for _, c := range left {
			c.drop()
		}
	}()
	for {
		l.mu.Lock()
		ready := g.ready
		g.ready = nil
		l.mu.Unlock()
		all := false
		for _, c := range ready {
			all = got(c) || all
		}
		if all {
			return nil
		}
		select {
		case <-bell:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.done:
			return net.ErrClosed
		}
	}
}

// credentials checks that the process at the other end belongs to this user and
// returns a pidfd of it (-1 where the kernel gives none). For the connecting side
// that is the process which listens.
func credentials(conn *net.UnixConn) (pidfd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, fmt.Errorf("ask who connects: %w", err)
	}
	pidfd = -1
	var inner error
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			inner = fmt.Errorf("ask who connects: %w", err)
			return
		}
		if want := uint32(unix.Geteuid()); cred.Uid != want {
			inner = fmt.Errorf("check user of process %d: it runs as user %d, this job as %d; start all ranks as one user", cred.Pid, cred.Uid, want)
			return
		}
		if p, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
			pidfd = p
			return
		}
		// Before Linux 6.5. The number may be reused by now, but then the other end of
		// conn is gone as well and the proof that follows fails.
		if cred.Pid > 0 {
			if p, err := unix.PidfdOpen(int(cred.Pid), 0); err == nil {
				pidfd = p
			}
		}
	})
	if err == nil {
		err = inner
	}
	return pidfd, err
}

func closeFD(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}
