package machine

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Detached keeps what a terminal sends away from a process of ours.
func Detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// impatient breaks a connection whose bytes nobody has acknowledged for so long.
func impatient(fd int, limit time.Duration) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
}

// Bound has a process get SIGTERM when the thread that starts it ends.
func Bound() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }

// Reap makes this process the parent of every descendant whose own parent ends.
func Reap() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// AllowedCPUs returns the hardware threads that this process may use; nil when unknown.
func AllowedCPUs() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	var out []int
	for i := 0; len(out) < set.Count() && i < 8*len(set)*8; i++ {
		if set.IsSet(i) {
			out = append(out, i)
		}
	}
	return out
}

// Adopt makes this process the parent of what an agent that was killed leaves behind; Sweep then finds it.
func Adopt() { _ = Reap() }

// Sweep ends every process below this one.
func Sweep() {
	for range 100 {
		var st syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &st, syscall.WNOHANG, nil)
		if err != nil {
			return // no child is left
		}
		if pid == 0 {
			KillTree(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Millisecond)
		}
	}
}

// KillTree sends sig to every descendant of root, found by walking /proc.
func KillTree(root int, sig syscall.Signal) {
	for _, pid := range Descendants(root) {
		syscall.Kill(pid, sig)
	}
}

// Descendants lists the processes below root, parents before children.
func Descendants(root int) []int {
	children := map[int][]int{}
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", d.Name(), "stat"))
		if err != nil {
			continue
		}
		// The name in parentheses may hold anything; the parent is the second field after it.
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(f) < 2 || f[0] == "Z" {
			continue
		}
		if ppid, err := strconv.Atoi(f[1]); err == nil {
			children[ppid] = append(children[ppid], pid)
		}
	}
	out := append([]int(nil), children[root]...)
	for i := 0; i < len(out); i++ {
		out = append(out, children[out[i]]...)
	}
	return out
}
