package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// Where rank 0's own server (torch's store at MASTER_PORT, for one) finds a free port. It binds seconds after the port
// was chosen, and a port of the ephemeral range can by then be the near end of anybody's connection. So the port comes
// from beside that range; a claim keeps other jobs of this machine away from it until the job ends.
const (
	usualPorts = 20000 // below are those of services that every machine knows
	enoughFree = 1000  // a choice this large is one
	portTries  = 1000
)

// portRange is what to choose from, both ends included.
type portRange struct{ lo, hi int }

// beside returns where nothing takes a port unless it asks for that very one. ok is false where the ephemeral range, lo
// to hi, leaves no room.
func beside(lo, hi int) (r portRange, ok bool) {
	for _, r := range []portRange{{usualPorts, min(lo-1, 65535)}, {max(hi+1, 1024), 65535}, {5000, min(lo-1, 65535)}} {
		if r.hi-r.lo+1 >= enoughFree {
			return r, true
		}
	}
	return portRange{}, false
}

// Second returns the other port that goes with one of ClaimPort: of the coordinator that rank 0 serves for JAX. It lies
// below, since programs that want one more count up.
func Second(port int) int { return port - 1 }

// both are the claims of a port and of its second.
type both [2]io.Closer

func (b both) Close() error { return errors.Join(b[0].Close(), b[1].Close()) }

// ClaimPort chooses a port for rank 0's server on this host, whose second is free as well. Both stay this job's until
// the claim is closed.
func ClaimPort() (int, io.Closer, error) {
	r, ok := beside(ephemeralPorts())
	if !ok {
		port, held, err := holdPorts()
		if err != nil {
			return 0, nil, fmt.Errorf("find a free port: %v", err)
		}
		return port, held, nil
	}
	n := r.hi - r.lo + 1
	at := rand.IntN(n)
	var err error
	for i := range min(n, portTries) {
		port := r.lo + (at+i)%n
		if port == r.lo {
			continue
		}
		claim, taken := markPort(port)
		if taken {
			continue
		}
		second, taken := markPort(Second(port))
		if taken {
			claim.Close()
			continue
		}
		if err = cmp.Or(portFree(port), portFree(Second(port))); err == nil {
			return port, both{claim, second}, nil
		}
		both{claim, second}.Close()
	}
	return 0, nil, fmt.Errorf("find a free port among %d to %d: %v", r.lo, r.hi, err)
}

// holdPorts holds a port and its second, where it finds two such.
func holdPorts() (int, io.Closer, error) {
	for range 20 {
		port, first, err := holdPort(0)
		if err != nil {
			return 0, nil, err
		}
		_, second, err := holdPort(Second(port))
		if err == nil {
			return port, both{first, second}, nil
		}
		first.Close()
	}
	return 0, nil, errors.New("no two that are neighbours")
}

// portFree looks whether a server could bind the port at every address of both families, without leave to share it.
func portFree(port int) error {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0)
		}); e != nil {
			return e
		}
		return err
	}}
	lc.SetMultipathTCP(false)
	var first error
	usable := 0
	for _, network := range []string{"tcp4", "tcp6"} {
		ln, err := lc.Listen(context.Background(), network, ":"+strconv.Itoa(port))
		switch {
		case err == nil:
			ln.Close()
			usable++
		case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, syscall.EACCES):
			return err
		case first == nil:
			first = err // the machine lacks the family
		}
	}
	if usable == 0 {
		return first
	}
	return nil
}
