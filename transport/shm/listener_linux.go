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
	purpose   = "shared memory"
	proofTime = 5 * time.Second
	claimTime = 2 * time.Minute // how long a proved connection waits for its group to open
	maxParked = 4096
)

// Listener is where the other ranks of the host find this process. It serves all
// groups of a job whose lowest local rank this process is.
type Listener struct {
	ln   *net.UnixListener
	gate *secret.Gate
	cfg  ListenConfig
	done chan struct{} // closed by Close

	mu     sync.Mutex // guards the rest; never held over I/O or a channel
	closed bool
	groups map[groupKey]*claims

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
	if cfg.Strangers == nil {
		log := cfg.Log
		cfg.Strangers = secret.NewStrangers(func(r secret.Refused) { log.Warn(r.String()) })
	}
	where := "at the socket of shared memory on " + cfg.Host
	l := &Listener{ln: ln, cfg: cfg, done: make(chan struct{}), groups: map[groupKey]*claims{}}
	l.gate, err = secret.NewGate(door{ln, where, cfg.Strangers}, secret.GateConfig{
		Secret: s, Host: cfg.Host, Accept: l.judge, Enter: l.enter, Timeout: proofTime, Where: where,
		Strangers: cfg.Strangers,
	})
	if err != nil {
		return nil, err
	}
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
	var stale []claim
	for key, g := range l.groups {
		stale = append(stale, g.ready...)
		g.ready = nil
		delete(l.groups, key)
	}
	l.mu.Unlock()
	if first {
		close(l.done)
	}
	err := l.gate.Close()
	for _, c := range stale {
		c.drop()
	}
	l.work.Wait()
	return err
}

// door lets in processes of this user alone, by the kernel's word, before they have said anything: others cost nothing
// more.
type door struct {
	*net.UnixListener
	where     string
	strangers *secret.Strangers
}

// visitor is a connection of a process of this user.
type visitor struct {
	*net.UnixConn
	pidfd int // of that process; -1: unknown
	once  sync.Once
}

func (d door) Accept() (net.Conn, error) {
	for {
		conn, err := d.AcceptUnix()
		if err != nil {
			return nil, err
		}
		pidfd, err := credentials(conn)
		if err == nil {
			return &visitor{UnixConn: conn, pidfd: pidfd}, nil
		}
		conn.Close()
		d.strangers.Refuse(d.where, err)
	}
}

// judge accepts ranks of this job.
func (l *Listener) judge(id secret.Identity) (secret.Identity, error) {
	me := secret.Identity{
		Purpose: purpose, Job: l.cfg.Job, Epoch: id.Epoch, Group: id.Group,
		Rank: secret.Anyone, Peer: secret.Anyone, Host: l.cfg.Host,
	}
	if id.Rank < 0 {
		return me, errors.New("a rank is needed")
	}
	return me, secret.Match(me, id)
}

// enter parks a connection that has proved itself for its group.
func (l *Listener) enter(_ context.Context, conn net.Conn, peer secret.Identity) {
	v := conn.(*visitor)
	c := claim{peer.Rank, v.UnixConn, v.pidfd, time.Now()}
	stale := []claim{c}
	l.mu.Lock()
	if !l.closed {
		stale = l.park(groupKey{peer.Epoch, peer.Group}, c)
	}
	l.mu.Unlock()
	for _, c := range stale {
		c.drop()
	}
}

func (c claim) drop() {
	c.conn.Close()
	closeFD(c.pidfd)
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

// Close ends a connection that has not proved itself, and forgets whose it is. The gate closes one from two goroutines.
func (v *visitor) Close() error {
	v.once.Do(func() { closeFD(v.pidfd) })
	return v.UnixConn.Close()
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
