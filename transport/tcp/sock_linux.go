package tcp

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Non-blocking calls go through RawSyscall: they return within the time that the
// kernel needs to copy ioChunk bytes, and the scheduler need not know of them.
// Calls that may sleep go through Syscall.

const ioFlags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL

func sysRecv(fd int, p []byte) (int, syscall.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
		uintptr(len(p)), ioFlags, 0, 0)
	return int(n), e
}

func sysSend(fd int, p []byte) (int, syscall.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
		uintptr(len(p)), ioFlags, 0, 0)
	return int(n), e
}

// vector is what a scattered call needs; it lives in the lane so that nothing is
// allocated.
type vector struct {
	iov [3]unix.Iovec
	msg unix.Msghdr
	n   int
}

func (v *vector) reset() { v.n = 0 }

func (v *vector) add(p []byte) {
	if len(p) == 0 {
		return
	}
	v.iov[v.n].Base = unsafe.SliceData(p)
	v.iov[v.n].SetLen(len(p))
	v.n++
}

// release forgets the memory, which is the caller's.
func (v *vector) release() { v.iov = [3]unix.Iovec{} }

func (v *vector) call(trap uintptr, fd int) (int, syscall.Errno) {
	v.msg.Iov = &v.iov[0]
	v.msg.SetIovlen(v.n)
	n, _, e := unix.RawSyscall(trap, uintptr(fd), uintptr(unsafe.Pointer(&v.msg)), ioFlags)
	v.release()
	return int(n), e
}

func (v *vector) recv(fd int) (int, syscall.Errno) { return v.call(unix.SYS_RECVMSG, fd) }
func (v *vector) send(fd int) (int, syscall.Errno) { return v.call(unix.SYS_SENDMSG, fd) }

// yield lets another thread run on this processor.
func yield() { unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// pollWait sleeps until one of fds is ready or d is over.
func pollWait(fds []unix.PollFd, d time.Duration) int {
	ts := unix.NsecToTimespec(int64(d))
	n, _, _ := unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)),
		uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	return int(n)
}

// unsent is the number of bytes that the peer has not acknowledged yet.
func unsent(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}

func tuneFd(int) {}

// onlineCores counts the processors of this host, not only those that this process
// is bound to.
func onlineCores() int {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if n := countCores(strings.TrimSpace(string(b))); err == nil && n > 0 {
		return n
	}
	return runtime.NumCPU()
}

// countCores reads a list such as "0-3,6"; 0: it is none.
func countCores(list string) int {
	n := 0
	for span := range strings.SplitSeq(list, ",") {
		first, last, many := strings.Cut(span, "-")
		if !many {
			last = first
		}
		a, err1 := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || b < a {
			return 0
		}
		n += b - a + 1
	}
	return n
}
