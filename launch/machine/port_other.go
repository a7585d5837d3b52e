//go:build !linux

package machine

import (
	"io"
	"net"
	"strconv"
)

// ephemeralPorts returns the range that BSDs take ports for connections from.
func ephemeralPorts() (lo, hi int) { return 49152, 65535 }

type unmarked struct{}

func (unmarked) Close() error { return nil }

// markPort claims nothing: names that end with their owner are Linux's.
func markPort(int) (claim io.Closer, taken bool) { return unmarked{}, false }

func holdPort(port int) (int, io.Closer, error) {
	ln, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return 0, nil, err
	}
	return ln.Addr().(*net.TCPAddr).Port, unmarked{}, ln.Close()
}

// PortUsed does not know: then it may be.
func PortUsed(...int) bool { return true }
