package machine

import (
	"io"
	"net"
	"strconv"
	"testing"
)

func TestPortsBesideTheEphemeralRange(t *testing.T) {
	for _, c := range []struct {
		lo, hi int
		want   portRange
		ok     bool
	}{
		{32768, 60999, portRange{20000, 32767}, true},
		{20500, 60999, portRange{61000, 65535}, true},
		{20500, 65535, portRange{5000, 20499}, true},
		{1024, 60999, portRange{61000, 65535}, true},
		{1024, 65535, portRange{}, false},
		{1024, 64999, portRange{}, false},
	} {
		if r, ok := beside(c.lo, c.hi); r != c.want || ok != c.ok {
			t.Errorf("beside %d to %d: %v, %v, want %v, %v", c.lo, c.hi, r, ok, c.want, c.ok)
		}
	}
}

// Nothing that asks for any port gets the one of rank 0, and no other job does.
func TestAPortIsOneJobsAlone(t *testing.T) {
	lo, hi := ephemeralPorts()
	_, room := beside(lo, hi)
	seen := map[int]bool{}
	var claims []io.Closer
	for range 200 {
		port, claim, err := ClaimPort()
		if err != nil {
			t.Fatal(err)
		}
		claims = append(claims, claim)
		for _, p := range [...]int{port, Second(port)} {
			if seen[p] {
				t.Errorf("two jobs have port %d", p)
			}
			seen[p] = true
			if portFree(p) != nil {
				t.Errorf("port %d is not free", p)
			}
		}
		if room && port >= lo && port <= hi {
			t.Errorf("port %d is one of the ephemeral range, %d to %d", port, lo, hi)
		}
		ln, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err != nil {
			t.Errorf("rank 0 cannot have its port: %v", err)
			continue
		}
		ln.Close()
	}
	for _, c := range claims {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	for port := range seen {
		claim, taken := markPort(port)
		if taken {
			t.Fatalf("port %d is claimed after its job's end", port)
		}
		claim.Close()
	}
}

func TestAPortThatIsInUseIsNotChosen(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", ":0"} {
		ln, err := net.Listen("tcp", at)
		if err != nil {
			t.Logf("this machine has no %s", at)
			continue
		}
		port := ln.Addr().(*net.TCPAddr).Port
		if portFree(port) == nil {
			t.Errorf("port %d is free, although somebody listens at %s", port, at)
		}
		ln.Close()
		if err := portFree(port); err != nil {
			t.Errorf("port %d is not free: %v", port, err)
		}
	}
}

// Where the ephemeral range is all there is.
func TestAHeldPort(t *testing.T) {
	port, held, err := holdPort(0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if portFree(port) == nil {
		t.Errorf("port %d is anybody's", port)
	}
	for _, at := range []string{":", "127.0.0.1:"} {
		ln, err := net.Listen("tcp", at+strconv.Itoa(port))
		if err != nil {
			t.Fatalf("rank 0 cannot have its port: %v", err)
		}
		c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		ln.Close()
	}
}

// Who has met at a port is known for a while after both have left it.
func TestAPortThatWasUsed(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6"} {
		port, claim, err := ClaimPort()
		if err != nil {
			t.Fatal(err)
		}
		defer claim.Close()
		if PortUsed(port) {
			t.Errorf("port %d is used by nobody", port)
		}
		ln, err := net.Listen(network, ":"+strconv.Itoa(port))
		if err != nil {
			t.Logf("this machine has no %s", network)
			continue
		}
		if !PortUsed(port) {
			t.Errorf("%s: somebody listens at port %d", network, port)
		}
		c, err := net.Dial(network, ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		s, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		s.Close()
		ln.Close()
		if !PortUsed(port) {
			t.Errorf("%s: two have met at port %d", network, port)
		}
	}
}
