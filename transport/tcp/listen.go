package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listener is where a process's peers will connect. It exists before the process
// knows its rank, so that rendezvous can publish the addresses; connections wait
// in the kernel until NewNode takes it over.
type Listener struct {
	lns   []net.Listener
	addrs []string
}

// Listen binds the given addresses ("host:port"; port 0 picks one; addresses, not
// names). Without any it binds one port on all interfaces.
func Listen(ctx context.Context, addrs ...string) (*Listener, error) {
	if len(addrs) == 0 {
		addrs = []string{":0"}
	}
	l := &Listener{}
	lc := net.ListenConfig{Control: controlSocket(0)}
	lc.SetMultipathTCP(false)
	for _, a := range addrs {
		ln, err := lc.Listen(ctx, "tcp", a)
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("listen for peers: %w; choose another address", err)
		}
		l.lns = append(l.lns, ln)
		l.addrs = append(l.addrs, reachable(ln.Addr().(*net.TCPAddr))...)
	}
	return l, nil
}

// Addrs are the addresses to publish to peers, best first.
func (l *Listener) Addrs() []string { return slices.Clone(l.addrs) }

// Close ends a listener that no node has taken over.
func (l *Listener) Close() error {
	var all []error
	for _, ln := range l.lns {
		all = append(all, ln.Close())
	}
	return errors.Join(all...)
}

// reachable lists the addresses under which others may find a bound address: a
// wildcard is every address of this host, interfaces of containers and virtual
// machines only if there is nothing else, loopback last.
func reachable(a *net.TCPAddr) []string {
	if !a.IP.IsUnspecified() {
		return []string{a.String()}
	}
	var good, inner, loop []string
	ifaces, err := net.Interfaces()
	if err != nil {
		ifaces = nil
	}
	for _, i := range ifaces {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		list, _ := i.Addrs()
		for _, v := range list {
			ip, err := netip.ParsePrefix(v.String())
			if err != nil || ip.Addr().IsLinkLocalUnicast() {
				continue
			}
			text := netip.AddrPortFrom(ip.Addr(), uint16(a.Port)).String()
			switch {
			case ip.Addr().IsLoopback():
				loop = append(loop, text)
			case isInner(i.Name):
				inner = append(inner, text)
			default:
				good = append(good, text)
			}
		}
	}
	slices.SortStableFunc(good, func(x, y string) int { // IPv4 first: fewer surprises
		return strings.Count(x, "[") - strings.Count(y, "[")
	})
	if len(good) == 0 {
		good = inner
	}
	if len(good) == 0 || len(loop) > 0 && len(good) < 8 {
		good = append(good, loop...)
	}
	return good
}

// isInner knows the interfaces that lead only to containers of this host.
func isInner(name string) bool {
	for _, p := range []string{"docker", "br-", "veth", "virbr", "cni", "flannel", "cali", "lxc", "podman", "kube"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// controlSocket sets what must be set before a connection is made: buffers decide
// the window that is offered. 0 leaves the system's.
func controlSocket(bytes int) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			if bytes > 0 {
				_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, bytes)
				_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
			}
		})
	}
}

// rawFd takes the descriptor out of conn, which it closes: the connection lives on
// in the descriptor alone, outside of Go's poller.
func rawFd(conn net.Conn, bytes int) (int, error) {
	defer conn.Close()
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return -1, errors.New("take socket: the connection has no descriptor")
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return -1, fmt.Errorf("take socket: %w", err)
	}
	fd := -1
	var dupErr error
	err = rc.Control(func(old uintptr) {
		if bytes > 0 {
			_ = unix.SetsockoptInt(int(old), unix.SOL_SOCKET, unix.SO_SNDBUF, bytes)
			_ = unix.SetsockoptInt(int(old), unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
		}
		fd, dupErr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err = errors.Join(err, dupErr); err != nil {
		return -1, fmt.Errorf("take socket: %w", err)
	}
	tuneFd(fd)
	return fd, nil
}
