package rendezvous

import (
	"context"
	"net"
	"testing"
	"time"

	"hora/internal/secret"
)

// pusher is a listener whose first connections are proved and then closed before a hello is read: what happens to a
// worker that strangers push out at that very moment.
type pusher struct {
	net.Listener
	key  secret.Secret
	left int
}

func (p *pusher) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err != nil || p.left == 0 {
			return c, err
		}
		p.left--
		me := secret.Identity{Purpose: Purpose, Rank: secret.Anyone, Peer: secret.Anyone}
		secret.Server(c, p.key, "here", secret.Expect(me), time.Now().Add(5*time.Second))
		c.Close()
	}
}

// TestWhoIsPushedOutAfterItsProofDialsAgain: strangers at the port cost no worker.
func TestWhoIsPushedOutAfterItsProofDialsAgain(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	key := secret.New()
	s := Serve(context.Background(), &pusher{ln, key, 5}, Config{Secret: key, Size: 2})
	t.Cleanup(func() { s.Close() })
	_, epochs := joined(t, ln.Addr().String(), key, 2, nil)
	if epochs[0].Size != 2 {
		t.Errorf("the epoch has %d ranks", epochs[0].Size)
	}
}
