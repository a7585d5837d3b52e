package tcp

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"hora/internal/secret"
)

// dialTimeout bounds one attempt at one address; attempts are repeated until the
// context ends.
const dialTimeout = 3 * time.Second

// onDemandTime bounds the attempts to make a connection that is found missing
// after the group has opened; before that the caller of Open sets the bound.
const onDemandTime = 30 * time.Second

// dial connects to a peer at one of its addresses and proves the secret. It goes on
// trying until ctx ends, except where trying again cannot help. Who has given the connection its place calls end.
func (n *Node) dial(ctx context.Context, p Peer, purpose string, group uint64, lane uint32, bytes int) (net.Conn,
	error,
) {
	var last error
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		for _, addr := range p.Addrs {
			conn, err := n.dialOnce(ctx, addr, p, purpose, group, lane, bytes)
			if err == nil {
				return conn, nil
			}
			last = err
			n.mu.Lock()
			n.trouble[p.Rank] = err
			n.mu.Unlock()
			var version *secret.VersionError
			if errors.As(err, &version) {
				return nil, fmt.Errorf("connect to rank %d on host %s: %w", p.Rank, p.Host, err)
			}
		}
		if len(p.Addrs) == 0 {
			return nil, fmt.Errorf("connect to rank %d on host %s: it has no address", p.Rank, p.Host)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to rank %d on host %s at %v: %w; check that this host may reach it", p.Rank, p.Host, p.Addrs, last)
		case <-time.After(pause):
		}
	}
}

func (n *Node) dialOnce(ctx context.Context, addr string, p Peer, purpose string, group uint64, lane uint32,
	bytes int,
) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout, Control: controlSocket(bytes)} // keep-alives hold firewalls' state
	d.SetMultipathTCP(false)
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	me := n.identity(purpose, p.Rank, group, lane)
	if !n.begin(toPeer(me), true) {
		conn.Close()
		return nil, context.Canceled
	}
	proved := conn
	peer, err := secret.Client(conn, n.cfg.Secret, me, time.Now().Add(secret.ProofTimeout))
	if err == nil && n.cert != nil {
		proved, err = n.startTLS(ctx, conn, peer.Cert, true)
	}
	if err != nil {
		n.end(toPeer(me))
		return nil, err
	}
	return proved, nil
}

// startTLS goes on in TLS with the certificate that the peer has proved.
func (n *Node) startTLS(ctx context.Context, conn net.Conn, peer [sha256.Size]byte, client bool) (net.Conn, error) {
	t := tls.Server(conn, n.cert.TLS(peer))
	if client {
		t = tls.Client(conn, n.cert.TLS(peer))
	}
	conn.SetDeadline(time.Now().Add(secret.ProofTimeout))
	if err := t.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start TLS: %w", err)
	}
	conn.SetDeadline(time.Time{})
	return t, nil
}

// dialControl begins to connect the control connection to a process, unless that
// is going on; mu is held.
func (n *Node) dialControl(p Peer) {
	if n.closed || n.dialing[p.Rank] || len(p.Addrs) == 0 {
		return
	}
	n.dialing[p.Rank] = true
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		ctx, cancel := context.WithTimeout(n.ctx, onDemandTime)
		defer cancel()
		conn, err := n.dial(ctx, p, purposeControl, 0, 0, 0)
		n.mu.Lock()
		delete(n.dialing, p.Rank)
		n.mu.Unlock()
		if err != nil {
			if n.ctx.Err() == nil {
				n.cfg.Log.Warn("connect control", "error", err)
			}
			return
		}
		n.addLink(conn, p.Rank, p.Host)
		n.end(controlTo(p.Rank))
	}()
}
