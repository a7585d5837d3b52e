//go:build !linux

package tcp

import (
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func errno(n int, err error) (int, syscall.Errno) {
	if err == nil {
		return n, 0
	}
	if e, ok := err.(syscall.Errno); ok {
		return 0, e
	}
	return 0, unix.EIO
}

func sysRecv(fd int, p []byte) (int, syscall.Errno) { return errno(unix.Read(fd, p)) }
func sysSend(fd int, p []byte) (int, syscall.Errno) { return errno(unix.Write(fd, p)) }

// vector calls for its parts in turn where there is no portable scattered call.
type vector struct {
	parts [3][]byte
	n     int
}

func (v *vector) reset() { v.n = 0 }

func (v *vector) add(p []byte) {
	if len(p) > 0 {
		v.parts[v.n] = p
		v.n++
	}
}

func (v *vector) each(call func(int, []byte) (int, syscall.Errno), fd int) (int, syscall.Errno) {
	total := 0
	for i := range v.n {
		n, e := call(fd, v.parts[i])
		total += n
		if e != 0 && total == 0 {
			v.parts = [3][]byte{}
			return 0, e
		}
		if e != 0 || n < len(v.parts[i]) {
			break
		}
	}
	v.parts = [3][]byte{}
	return total, 0
}

func (v *vector) recv(fd int) (int, syscall.Errno) { return v.each(sysRecv, fd) }
func (v *vector) send(fd int) (int, syscall.Errno) { return v.each(sysSend, fd) }

// yield sleeps for the shortest time that the system knows; there is no portable
// system call to let another thread run.
func yield() {
	var none [0]unix.PollFd
	_, _ = unix.Poll(none[:], 0)
}

func pollWait(fds []unix.PollFd, d time.Duration) int {
	n, err := unix.Poll(fds, int((d+time.Millisecond-1)/time.Millisecond))
	if err != nil {
		return 0
	}
	return n
}

func unsent(int) int { return 0 }

// tuneFd makes a descriptor non-blocking and keeps it from raising signals.
func tuneFd(fd int) {
	_ = unix.SetNonblock(fd, true)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NOSIGPIPE, 1)
}

func onlineCores() int { return runtime.NumCPU() }
