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

// peeker reads the memory of the other seats' processes, one read at a time. Who may is
// the system's decision, as for a debugger: processes of one user where no policy (Yama,
// a container's) forbids it. The pid is only as good as the pidfd that it came from: who
// asks makes sure that it reads whom he means, and that his peer still lives.
type peeker struct {
	pids []int // by seat; 0: not known

	// Here so that a read allocates nothing.
	local  [1]unix.Iovec
	remote [1]unix.RemoteIovec
}

func (p *peeker) read(seat int, dst unsafe.Pointer, at uintptr, n int) error {
	if p.pids[seat] == 0 {
		return errors.New("its process is not known")
	}
	for n > 0 {
		p.local[0].Base = (*byte)(dst)
		p.local[0].SetLen(n)
		p.remote[0] = unix.RemoteIovec{Base: at, Len: n}
		got, err := unix.ProcessVMReadv(p.pids[seat], p.local[:], p.remote[:], 0)
		p.local[0].Base = nil
		switch {
		case errors.Is(err, unix.ESRCH):
			return transport.ErrGone
		case err != nil:
			return fmt.Errorf("process_vm_readv: %w", err)
		case got <= 0:
			return fmt.Errorf("process_vm_readv: %w", unix.EFAULT)
		}
		if n -= got; n > 0 {
			dst, at = unsafe.Add(dst, got), at+uintptr(got)
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
