package machine

import (
	"context"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// OwnAddresses lists this host's addresses, the likeliest for other hosts first: IPv4 before IPv6, real interfaces
// before bridges of containers; loopback and link-local ones never. names restricts the interfaces.
func OwnAddresses(names []string) []string { return Pick(Addresses(), names) }

func InterfaceNames() []string {
	var names []string
	ifs, _ := net.Interfaces()
	for _, i := range ifs {
		names = append(names, i.Name)
	}
	return names
}

// Addresses returns "interface address" for each address of each interface that is up.
func Addresses() []string {
	var out []string
	ifs, _ := net.Interfaces()
	for _, i := range ifs {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if ok && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
				out = append(out, i.Name+" "+n.IP.String())
			}
		}
	}
	return out
}

// Pick orders and filters such a list.
func Pick(list, names []string) []string {
	type entry struct {
		addr  string
		worth int
	}
	var es []entry
	for _, s := range list {
		name, addr, ok := strings.Cut(s, " ")
		ip := net.ParseIP(addr)
		if !ok || ip == nil || len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		worth := 0
		if ip.To4() == nil {
			worth++
		}
		for _, virtual := range []string{"docker", "br-", "virbr", "veth", "cni", "flannel", "cali", "podman", "lxc"} {
			if strings.HasPrefix(name, virtual) {
				worth += 2
			}
		}
		es = append(es, entry{addr, worth})
	}
	slices.SortStableFunc(es, func(a, b entry) int { return a.worth - b.worth })
	out := make([]string, len(es))
	for i, e := range es {
		out[i] = e.addr
	}
	return out
}

func WithPort(addrs []string, port int) []string {
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = net.JoinHostPort(a, strconv.Itoa(port))
	}
	return out
}

// Loopback returns the address at which processes of this host meet: one of IPv6 where there is no 127.0.0.1.
func Loopback() string {
	const usual = "127.0.0.1"
	for _, at := range []string{usual, "::1"} {
		if ln, err := Listen(context.Background(), net.JoinHostPort(at, "0")); err == nil {
			ln.Close()
			return at
		}
	}
	return usual
}

// Listen does what net.Listen does, without MPTCP, which Go listens with otherwise: a connection of few bytes gains
// nothing by it, and a middle box that does not know it can only do harm.
func Listen(ctx context.Context, at string) (net.Listener, error) {
	lc := net.ListenConfig{}
	lc.SetMultipathTCP(false)
	return lc.Listen(ctx, "tcp", at)
}

// Reachable says which of addrs accept a connection, asked all at once.
func Reachable(addrs []string, limit time.Duration) []bool {
	ok := make([]bool, len(addrs))
	done := make(chan struct{}, len(addrs))
	for i, a := range addrs {
		go func() {
			if c, err := net.DialTimeout("tcp", a, limit); err == nil {
				ok[i] = true
				c.Close()
			}
			done <- struct{}{}
		}()
	}
	for range addrs {
		<-done
	}
	return ok
}

// Lively has a TCP connection break when the other side has not answered for so long, whether there was anything to
// say or not.
func Lively(conn net.Conn, limit time.Duration) {
	c, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	// it lasts longer without
	_ = c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: limit / 2, Interval: limit / 8, Count: 4})
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { impatient(int(fd), limit) })
	}
}

// HostID tells machines, and network namespaces of one machine, apart.
func HostID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		boot, _ = os.ReadFile("/etc/machine-id")
	}
	space, _ := os.Readlink("/proc/self/ns/net")
	name := ""
	if len(boot) == 0 {
		name, _ = os.Hostname()
	}
	return name + strings.TrimSpace(string(boot)) + " " + space
}

// InterfaceTo names the network interface by which this machine reaches a host, "" where that is not known. Nothing is
// sent.
func InterfaceTo(host string) string {
	c, err := net.Dial("udp", net.JoinHostPort(host, "9"))
	if err != nil {
		return ""
	}
	defer c.Close()
	mine := c.LocalAddr().(*net.UDPAddr).IP
	ifs, _ := net.Interfaces()
	loop := ""
	for _, i := range ifs {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			switch {
			case ok && n.IP.Equal(mine) && !n.IP.IsLoopback():
				return i.Name
			case ok && n.IP.IsLoopback():
				loop = i.Name
			}
		}
	}
	if mine.IsLoopback() {
		return loop
	}
	return ""
}
