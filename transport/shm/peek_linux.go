package shm

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"hora/transport"
)

// peeker reads and writes the memory of the other seats' processes, one piece at a time. Who may is
// the system's decision, as for a debugger: processes of one user where no policy (Yama,
// a container's) forbids it. The pid is only as good as the pidfd that it came from: who
// asks makes sure that it reads whom he means, and that his peer still lives.
type peeker struct {
	pids []int // by seat; 0: not known

	// Here so that a read allocates nothing.
	local  [1]unix.Iovec
	remote [1]unix.RemoteIovec
	probe  [4]unix.RemoteIovec
	bytes  [4]byte
	scan   pageScan
	found  [3]uint64 // a region: start, end, categories
	habit  habit
}

// pageScan is the kernel's struct pm_scan_arg.
type pageScan struct {
	size, flags, start, end, walkEnd, vec, vecLen, maxPages uint64
	inverted, categoryMask, categoryAnyOf, returned         uint64
}

const (
	pagemapScan = 0xc0606610 // ioctl of /proc/self/pagemap since Linux 6.7
	pageIsHuge  = 1 << 6
	hugePage    = 2 << 20
)

// large reports that n bytes of this process's memory lie on huge pages; false where the
// system does not say. It sees to it that they do where the same memory comes again and again.
func (p *peeker) large(at unsafe.Pointer, n int) bool {
	return p.onHuge(at, n) || p.habit.recurs(at, n) && gather(at, n) && p.onHuge(at, n)
}

// onHuge is large as far as three places tell.
func (p *peeker) onHuge(at unsafe.Pointer, n int) bool {
	fd, err := unix.Open("/proc/self/pagemap", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	for quarter := 1; quarter <= 3; quarter++ {
		page := (uint64(uintptr(at)) + uint64(n)/4*uint64(quarter)) &^ (hugePage - 1)
		p.scan = pageScan{
			start: page, end: page + hugePage, vec: uint64(uintptr(unsafe.Pointer(&p.found))), vecLen: 1,
			categoryMask: pageIsHuge, returned: pageIsHuge,
		}
		p.scan.size = uint64(unsafe.Sizeof(p.scan))
		regions, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), pagemapScan, uintptr(unsafe.Pointer(&p.scan)))
		if errno != 0 || regions != 1 || p.found[0] != page || p.found[1] != page+hugePage {
			return false
		}
	}
	return true
}

func (p *peeker) read(seat int, dst unsafe.Pointer, at uintptr, n int) error {
	return p.move(seat, dst, at, n, false)
}

func (p *peeker) write(seat int, src unsafe.Pointer, at uintptr, n int) error {
	return p.move(seat, src, at, n, true)
}

// readable reports that the system reads a byte at each of up to four addresses of this process: it stops at the first
// that it does not read.
func (l *Link) readable(at []uintptr) bool {
	p := &l.peeker
	pid := p.pids[l.seat]
	if pid == 0 {
		return false
	}
	for i, a := range at {
		p.probe[i] = unix.RemoteIovec{Base: a, Len: 1}
	}
	p.local[0].Base = &p.bytes[0]
	p.local[0].SetLen(len(at))
	got, err := unix.ProcessVMReadv(pid, p.local[:], p.probe[:len(at)], 0)
	p.local[0].Base = nil
	return err == nil && got == len(at)
}

// move copies n bytes between here, in this process, and at, in the seat's.
func (p *peeker) move(seat int, here unsafe.Pointer, at uintptr, n int, write bool) error {
	if p.pids[seat] == 0 {
		return errors.New("its process is not known")
	}
	for n > 0 {
		p.local[0].Base = (*byte)(here)
		p.local[0].SetLen(n)
		p.remote[0] = unix.RemoteIovec{Base: at, Len: n}
		call, name := unix.ProcessVMReadv, "process_vm_readv"
		if write {
			call, name = unix.ProcessVMWritev, "process_vm_writev"
		}
		got, err := call(p.pids[seat], p.local[:], p.remote[:], 0)
		p.local[0].Base = nil
		switch {
		case errors.Is(err, unix.ESRCH):
			return transport.ErrGone
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		case got <= 0:
			return fmt.Errorf("%s: %w", name, unix.EFAULT)
		}
		if n -= got; n > 0 {
			here, at = unsafe.Add(here, got), at+uintptr(got)
		}
	}
	return nil
}

// pidOf is the number of a pidfd's process, 0 if it has ended or cannot be seen from here.
func pidOf(pidfd int) int {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return 0 // /proc counts as another namespace does
	}
	text, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(pidfd))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "Pid:"); ok {
			pid, _ := strconv.Atoi(strings.TrimSpace(value))
			return max(pid, 0)
		}
	}
	return 0
}
