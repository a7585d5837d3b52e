package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// oomNames are the processes that the kernel's log says it has ended for want of memory since it was opened. Nil where
// this user may not read that log, or where it numbers processes otherwise than they are numbered here: it is written
// for the machine's first namespace of process numbers, and in a container those differ.
type oomNames struct {
	fd   int
	all  map[int]bool
	rest []byte // of a line that has not come whole
}

// firstNamespace is the machine's first namespace of process numbers, whose name the kernel fixes.
const firstNamespace = "pid:[4026531836]"

func openNames(root string) *oomNames {
	if space, err := os.Readlink(filepath.Join(root, "/proc/self/ns/pid")); err != nil || space != firstNamespace {
		return nil
	}
	// Without blocking, and not as an os.File, which would wait for more where there is none.
	fd, err := syscall.Open(filepath.Join(root, "/dev/kmsg"), syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	if _, err := syscall.Seek(fd, 0, 2); err != nil { // to its end
		syscall.Close(fd)
		return nil
	}
	return &oomNames{fd: fd, all: map[int]bool{}}
}

var killedProcess = []byte("Killed process ")

// read takes what has been written since, and says whether processes are named in it.
func (o *oomNames) read() (more bool) {
	if o == nil {
		return false
	}
	for part := make([]byte, 16<<10); ; { // a record of the log is whole in one read
		n, err := syscall.Read(o.fd, part)
		switch {
		case err == syscall.EPIPE, err == syscall.EINTR: // records were overwritten: the next one comes
			continue
		case err != nil || n <= 0:
			return more
		}
		o.rest = append(o.rest, part[:n]...)
		for {
			line, rest, whole := bytes.Cut(o.rest, []byte("\n"))
			if !whole {
				break
			}
			o.rest = rest
			if pid := killedIn(line); pid > 0 {
				o.all[pid], more = true, true
			}
		}
	}
}

// killedIn returns the process that a line says was ended for want of memory, as in "Memory cgroup out of memory:
// Killed process 4147 (python) total-vm:607952kB, ..."; 0 for any other line.
func killedIn(line []byte) int {
	_, text, found := bytes.Cut(line, []byte("ut of memory")) // "Out of memory" where it is the whole machine's
	if !found {
		return 0
	}
	_, text, found = bytes.Cut(text, killedProcess)
	if !found {
		return 0
	}
	digits, _, _ := bytes.Cut(text, []byte(" "))
	pid, err := strconv.Atoi(string(digits))
	if err != nil {
		return 0
	}
	return pid
}

func (o *oomNames) has(pid int) bool { return o != nil && o.all[pid] }
