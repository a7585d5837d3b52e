package secret

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/internal/wire"
)

func pair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err = net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func soon() time.Time { return time.Now().Add(5 * time.Second) }

var (
	alice = Identity{Purpose: "test", Job: "job-1", Epoch: 3, Group: 9, Rank: 0, Peer: 1, Lane: 2, Host: "a"}
	bob   = Identity{Purpose: "test", Job: "job-1", Epoch: 3, Group: 9, Rank: 1, Peer: 0, Lane: 2, Host: "b"}
)

// meet runs both sides and returns what each found.
func meet(t *testing.T, cs, ss Secret, c, s Identity) (cp Identity, cerr error, sp Identity, serr error) {
	t.Helper()
	cc, sc := pair(t)
	var wg sync.WaitGroup
	wg.Go(func() { cp, cerr = Client(cc, cs, c, soon()) })
	wg.Go(func() { sp, serr = Server(sc, ss, s.Host, Expect(s), soon()) })
	wg.Wait()
	return cp, cerr, sp, serr
}

func TestBothSidesLearnWhoTheOtherIs(t *testing.T) {
	s := New()
	cp, cerr, sp, serr := meet(t, s, s, alice, bob)
	if cerr != nil || serr != nil || cp != bob || sp != alice {
		t.Fatalf("%+v %v\n%+v %v", cp, cerr, sp, serr)
	}
	long := strings.Repeat("long/", 100)
	a, b := alice, bob
	a.Job, b.Job, a.Host, a.Purpose, b.Purpose = long, long, long, long, long
	if _, cerr, _, serr = meet(t, s, s, a, b); cerr != nil || serr != nil {
		t.Fatal(cerr, serr)
	}
	b.Job += "x"
	if _, cerr, _, serr = meet(t, s, s, a, b); cerr == nil || serr == nil {
		t.Fatal("names that differ after the cut were taken for equal")
	}
}

func TestAnotherSecretIsRefusedOnBothSides(t *testing.T) {
	_, cerr, _, serr := meet(t, New(), New(), alice, bob)
	if !errors.Is(cerr, ErrProof) || !errors.Is(serr, ErrProof) {
		t.Fatal(cerr, serr)
	}
	if _, cerr, _, serr = meet(t, Secret{}, Secret{}, alice, bob); cerr == nil || serr == nil {
		t.Fatal("no secret was good enough")
	}
}

func TestRefusalNamesTheDifference(t *testing.T) {
	s := New()
	cert := Identity{Cert: [32]byte{1}}.Cert
	for want, change := range map[string]func(*Identity){
		"is a connection": func(id *Identity) { id.Purpose = "other" },
		"job-2":           func(id *Identity) { id.Job = "job-2" },
		"epoch 4":         func(id *Identity) { id.Epoch = 4 },
		"group 8":         func(id *Identity) { id.Group = 8 },
		"rank 7":          func(id *Identity) { id.Rank = 7 },
		"rank 6 was":      func(id *Identity) { id.Peer = 6 },
		"TLS":             func(id *Identity) { id.Cert = cert },
	} {
		a := alice
		change(&a)
		_, cerr, _, serr := meet(t, s, s, a, bob)
		var refused *RefusedError
		if !errors.As(cerr, &refused) || !strings.Contains(cerr.Error(), want) || serr == nil ||
			!strings.Contains(serr.Error(), want) {
			t.Errorf("%s:\n  client %v\n  server %v", want, cerr, serr)
		}
	}
}

// A client notices too, when a server that knows the secret is not who was meant.
func TestClientChecksTheServer(t *testing.T) {
	s := New()
	cc, sc := pair(t)
	wrong := bob
	wrong.Rank = 5
	var wg sync.WaitGroup
	wg.Go(func() {
		Server(sc, s, "b", func(Identity) (Identity, error) { return wrong, nil }, soon())
	})
	if _, err := Client(cc, s, alice, soon()); err == nil || !strings.Contains(err.Error(), "rank 5") {
		t.Fatal(err)
	}
	wg.Wait()
}

func TestAnotherVersionNamesBothVersionsAndHosts(t *testing.T) {
	s := New()
	cc, sc := pair(t)
	old := wire.AppendHello(nil, wire.Hello{Version: 77})
	if _, err := cc.Write(old); err != nil {
		t.Fatal(err)
	}
	_, err := Server(sc, s, "host-b", Expect(bob), soon())
	var v *VersionError
	if !errors.As(err, &v) || v.Theirs != 77 || v.Mine != wire.Version || !strings.Contains(err.Error(), "host-b") ||
		!strings.Contains(err.Error(), cc.LocalAddr().String()) {
		t.Fatal(err)
	}
	// The other version heard ours, so that it can say the same.
	answer, err := io.ReadAll(cc)
	if err != nil || len(answer) != wire.HelloBytes || answer[4] != wire.Version {
		t.Fatalf("%x %v", answer, err)
	}

	cc, sc = pair(t)
	go func() {
		io.ReadFull(sc, make([]byte, wire.HelloBytes))
		sc.Write(old)
	}()
	if _, err := Client(cc, s, alice, soon()); !errors.As(err, &v) || !strings.Contains(err.Error(), "version 77") {
		t.Fatal(err)
	}
}

// recorder keeps what its connection's owner writes.
type recorder struct {
	net.Conn
	sent bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) { r.sent.Write(p); return r.Conn.Write(p) }

func TestReplayedProofIsRefused(t *testing.T) {
	s := New()
	cc, sc := pair(t)
	rec := &recorder{Conn: cc}
	var wg sync.WaitGroup
	wg.Go(func() { Client(rec, s, alice, soon()) })
	if _, err := Server(sc, s, "b", Expect(bob), soon()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	cc, sc = pair(t)
	cc.Write(rec.sent.Bytes())
	if _, err := Server(sc, s, "b", Expect(bob), soon()); !errors.Is(err, ErrProof) {
		t.Fatal(err)
	}
}

// A stranger who sends our own words back proves nothing.
func TestReflectionIsRefused(t *testing.T) {
	s := New()
	cc, sc := pair(t)
	go io.Copy(sc, sc)
	if _, err := Client(cc, s, alice, soon()); !errors.Is(err, ErrProof) {
		t.Fatal(err)
	}
}

func TestGarbageClosesTheConnectionUnanswered(t *testing.T) {
	for name, garbage := range map[string]string{
		"http":      "GET / HTTP/1.1\r\n\r\n",
		"pickle":    "\x80\x04\x95\x1a\x00\x00\x00",
		"wrong tag": "HORB\x01" + strings.Repeat("x", 2000),
	} {
		cc, sc := pair(t)
		cc.Write([]byte(garbage))
		if _, err := Server(sc, New(), "b", Expect(bob), soon()); err == nil {
			t.Fatal(name, "was let in")
		}
		cc.SetReadDeadline(soon())
		if n, err := cc.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Fatalf("%s: got an answer (%d bytes, %v)", name, n, err)
		}
	}
}

func TestProofIsBoundedInTimeAndBytes(t *testing.T) {
	cc, sc := pair(t)
	begun := time.Now()
	stop := make(chan struct{})
	defer close(stop)
	go func(c net.Conn) { // one byte now and then, for ever
		hello := wire.AppendHello(nil, wire.Hello{Version: wire.Version})
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				c.Write(hello[i%len(hello) : i%len(hello)+1])
			}
		}
	}(cc)
	if _, err := Server(sc, New(), "b", Expect(bob), time.Now().Add(200*time.Millisecond)); err == nil {
		t.Fatal("let in")
	}
	if d := time.Since(begun); d > 2*time.Second {
		t.Fatalf("took %v", d)
	}

	// Bytes after a good proof are left for the next reader.
	s := New()
	cc, sc = pair(t)
	go func() {
		if _, err := Client(cc, s, alice, soon()); err == nil {
			cc.Write([]byte("first words"))
		}
	}()
	if _, err := Server(sc, s, "b", Expect(bob), soon()); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 11)
	if _, err := io.ReadFull(sc, b); err != nil || string(b) != "first words" {
		t.Fatal(string(b), err)
	}
}

func gate(t *testing.T, s Secret, log io.Writer, cfg GateConfig) *Gate {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Secret, cfg.Accept = s, Expect(bob)
	if cfg.Enter == nil {
		cfg.Enter = func(_ context.Context, c net.Conn, _ Identity) { c.Close() }
	}
	if log != nil {
		cfg.Strangers = NewStrangers(func(r Refused) { fmt.Fprintln(log, r) })
	}
	g, err := NewGate(ln, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
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

func TestGateKeepsWorkingUnderSilentStrangers(t *testing.T) {
	s := New()
	var log safeBuffer
	entered := make(chan Identity, 1)
	g := gate(t, s, &log, GateConfig{
		Unproven: 8, Timeout: 5 * time.Second,
		Enter: func(_ context.Context, c net.Conn, id Identity) {
			c.Close()
			entered <- id
		},
	})
	for range 50 {
		c, err := net.Dial("tcp", g.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	c, err := net.Dial("tcp", g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Client(c, s, alice, soon()); err != nil {
		t.Fatal(err)
	}
	if id := <-entered; id != alice {
		t.Fatalf("%+v", id)
	}
	begun := time.Now()
	g.Close()
	if d := time.Since(begun); d > time.Second {
		t.Fatalf("Close took %v", d)
	}
	if n := strings.Count(log.String(), "refused a connection"); n != 3 {
		t.Fatalf("%d log lines of 42 strangers that were refused, not 3:\n%s", n, log.String())
	}
}

func TestTLSTakesOnlyTheProvenCertificate(t *testing.T) {
	a, err := NewCertificate()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := NewCertificate()
	stranger, _ := NewCertificate()
	for _, c := range []struct {
		name  string
		other *Certificate
		ok    bool
	}{{"proven", b, true}, {"stranger", stranger, false}} {
		cc, sc := pair(t)
		var cerr, serr error
		var wg sync.WaitGroup
		wg.Go(func() { cerr = tlsClient(cc, a.TLS(b.Hash)) })
		wg.Go(func() { serr = tlsServer(sc, c.other.TLS(a.Hash)) })
		wg.Wait()
		if (cerr == nil) != c.ok || c.ok && serr != nil {
			t.Errorf("%s: client %v, server %v", c.name, cerr, serr)
		}
	}
}
