package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"hora/internal/secret"
	"hora/launch/environ"
	"hora/launch/machine"
	"hora/launch/protocol"
)

// Guest is what an agent that has come by itself says of itself.
type Guest struct {
	Name  string // of its machine
	ID    string // equal for agents of one machine
	Slots int    // how many workers it takes
	Node  string // what its machine is to be called, "" leaves that to the hub
}

func (g *Guest) introduce(to *protocol.Greeting, env []string) {
	if g != nil {
		to.Name, to.ID, to.Slots, to.Node, to.Devices = g.Name, g.ID, g.Slots, g.Node, environ.Devices(env)
	}
}

// Purpose is what a connection to a hub says it is for while it proves the secret.
const Purpose = "agent"

// stagger is how much later than the address before it an address is tried.
const stagger = 200 * time.Millisecond

// Dial connects to the hub at the first of some addresses that answers, proves the secret and goes on in TLS. host is
// this machine's name.
func Dial(ctx context.Context, addrs []string, s secret.Secret, host string, limit time.Duration) (net.Conn, error) {
	cert, err := secret.NewCertificate()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type answer struct {
		conn net.Conn
		err  error
	}
	answers := make(chan answer, len(addrs))
	for i, addr := range addrs {
		go func() {
			select {
			case <-time.After(time.Duration(i) * stagger):
				conn, err := knock(ctx, addr, s, host, cert)
				answers <- answer{conn, err}
			case <-ctx.Done():
				answers <- answer{nil, ctx.Err()}
			}
		}()
	}
	var told error
	for n := range addrs {
		a := <-answers
		if a.err == nil {
			left := len(addrs) - n - 1
			go func() { // another address may have answered too
				for range left {
					if late := <-answers; late.conn != nil {
						late.conn.Close()
					}
				}
			}()
			return a.conn, nil
		}
		var refused *secret.RefusedError
		if told == nil || errors.As(a.err, &refused) {
			told = a.err
		}
	}
	return nil, fmt.Errorf("reach the hub at %s: %w", strings.Join(addrs, ","), told)
}

// knock connects to one address.
func knock(ctx context.Context, addr string, s secret.Secret, host string, cert *secret.Certificate) (net.Conn, error) {
	d := net.Dialer{}
	d.SetMultipathTCP(false)
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	me := secret.Identity{Purpose: Purpose, Rank: secret.Anyone, Peer: secret.Anyone, Host: host, Cert: cert.Hash}
	peer, err := secret.Client(conn, s, me, deadline)
	if err != nil {
		return nil, err
	}
	machine.Lively(conn, cutOff)
	return cert.Seal(ctx, conn, peer, true)
}

// cutOff is after how long without an answer the connection to a hub counts as broken. While there are workers the
// hub's silence is noticed sooner.
const cutOff = 20 * time.Second

// awaitOver has an agent that has come by itself hear how the job ends, after its own part has.
func (a *agent) awaitOver() {
	if a.cfg.Guest == nil {
		return
	}
	for !a.over && !a.gone && !a.orphaned {
		select {
		case e := <-a.events:
			switch e := e.(type) {
			case command:
				if e.kind == protocol.CmdOver {
					a.obey(e)
				}
			case hungUp:
				a.gone = true
			}
		case <-a.cfg.Ended:
			return
		case sig := <-a.cfg.Signals:
			if asksToEnd(sig) { // SIGPIPE is of a hub that was killed, and another may follow
				return
			}
		}
	}
}

// networkNames says by which interface a worker reaches rank 0's host to the libraries that would guess it.
func networkNames(env []string) []string {
	name := machine.InterfaceTo(environ.Lookup(env, "MASTER_ADDR"))
	if name == "" {
		return env
	}
	return environ.Default(environ.Default(env, "GLOO_SOCKET_IFNAME", name), "NCCL_SOCKET_IFNAME", name)
}
