package secret

import (
	"crypto/tls"
	"net"
	"testing"
	"time"
)

func tlsClient(c net.Conn, cfg *tls.Config) error {
	c.SetDeadline(time.Now().Add(5 * time.Second))
	defer c.Close()
	t := tls.Client(c, cfg)
	if err := t.Handshake(); err != nil {
		return err
	}
	_, err := t.Read(make([]byte, 1)) // the server's verdict on our certificate
	return err
}

func tlsServer(c net.Conn, cfg *tls.Config) error {
	c.SetDeadline(time.Now().Add(5 * time.Second))
	defer c.Close()
	t := tls.Server(c, cfg)
	if err := t.Handshake(); err != nil {
		return err
	}
	_, err := t.Write([]byte{1})
	return err
}

func FuzzCard(f *testing.F) {
	c := card{id: alice, reason: "no"}.encode()
	f.Add(c[:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := decodeCard(in)
		if err != nil {
			return
		}
		out := c.encode()
		if again, err := decodeCard(out[:]); err != nil || again != c {
			t.Fatalf("%+v became %+v, %v", c, again, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(New().Hex() + "\n"))
	f.Add(make([]byte, 32))
	f.Fuzz(func(t *testing.T, in []byte) {
		s, err := Parse(in)
		if err != nil {
			return
		}
		if again, err := Parse([]byte(s.Hex())); err != nil || again != s {
			t.Fatal(err)
		}
	})
}

// FuzzServer lets anybody speak to a server that expects a proof.
func FuzzServer(f *testing.F) {
	f.Add([]byte("HORA\x01"))
	f.Add([]byte("HORA\x02" + string(make([]byte, 32))))
	f.Add(append([]byte("HORA\x01"), make([]byte, 32+cardBytes+32)...))
	s := New()
	f.Fuzz(func(t *testing.T, in []byte) {
		a, b := net.Pipe()
		done := make(chan error, 1)
		go func() {
			_, err := Server(b, s, "h", Expect(bob), time.Now().Add(time.Second))
			done <- err
		}()
		go func() { // hear it out, so that its hello does not block it
			buf := make([]byte, 1024)
			for {
				if _, err := a.Read(buf); err != nil {
					return
				}
			}
		}()
		a.Write(in)
		a.Close()
		if err := <-done; err == nil {
			t.Fatal("somebody without the secret was let in")
		}
	})
}
