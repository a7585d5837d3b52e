package machine

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// ephemeralPorts returns the range from which the kernel takes ports for connections.
func ephemeralPorts() (lo, hi int) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(b), &lo, &hi)
	}
	if err != nil {
		return 32768, 60999
	}
	return lo, hi
}

// markPort claims a port among all users' jobs in this network namespace: a name of that namespace, which ends with
// its owner.
func markPort(port int) (claim io.Closer, taken bool) {
	mark, err := net.ListenPacket("unixgram", fmt.Sprintf("@hora-port-%d", port))
	if err != nil {
		return nil, true
	}
	return mark, false
}

// holdPort binds a port of the ephemeral range, any with 0, where there are no others, and keeps it bound: no
// connection gets it then, and a server that allows addresses to be used again, as most do, can still bind it and
// listen.
func holdPort(port int) (int, io.Closer, error) {
	h := &heldPort{}
	four, err := h.bind(unix.AF_INET, &unix.SockaddrInet4{Port: port})
	if err != nil {
		h.Close()
		return 0, nil, err
	}
	port = four.(*unix.SockaddrInet4).Port
	_, _ = h.bind(unix.AF_INET6, &unix.SockaddrInet6{Port: port}) // a machine may lack that family
	return port, h, nil
}

type heldPort struct{ fds []int }

func (h *heldPort) bind(family int, at unix.Sockaddr) (unix.Sockaddr, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	h.fds = append(h.fds, fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return nil, err
	}
	if family == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return nil, err
		}
	}
	if err := unix.Bind(fd, at); err != nil {
		return nil, err
	}
	return unix.Getsockname(fd)
}

func (h *heldPort) Close() error {
	for _, fd := range h.fds {
		unix.Close(fd)
	}
	return nil
}

// PortUsed says whether a socket of this host has, or a moment ago had, one of the ports at either end. Each look takes
// some 5 ms a file: the system walks its whole table of connections, however few there are.
func PortUsed(ports ...int) bool {
	var marks [][]byte
	for _, port := range ports {
		marks = append(marks, fmt.Appendf(nil, ":%04X", port))
	}
	for _, name := range [...]string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if hasPort(name, marks) {
			return true
		}
	}
	return false
}

func hasPort(name string, marks [][]byte) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := bytes.Fields(lines.Bytes()) // number, local address, remote address, …
		if len(fields) <= 2 {
			continue
		}
		for _, mark := range marks {
			if bytes.HasSuffix(fields[1], mark) || bytes.HasSuffix(fields[2], mark) {
				return true
			}
		}
	}
	return false
}
