//go:build !linux

package machine

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Without sub-reapers and parent-death signals a worker that detaches itself can escape; cores cannot be bound.

func Detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func impatient(int, time.Duration) {}

// Bound does nothing here.
func Bound() *syscall.SysProcAttr { return nil }

func Reap() error { return nil }

func AllowedCPUs() []int { return nil }

// Adopt does nothing here.
func Adopt() {}

// Sweep ends every process below this one.
func Sweep() {
	for range 100 {
		var st syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &st, syscall.WNOHANG, nil)
		if err != nil {
			return
		}
		if pid == 0 {
			KillTree(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Millisecond)
		}
	}
}

func KillTree(root int, sig syscall.Signal) {
	for _, pid := range Descendants(root) {
		syscall.Kill(pid, sig)
	}
}

// Descendants lists the processes below root as ps knows them.
func Descendants(root int) []int {
	b, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,stat=").Output()
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 3 || strings.HasPrefix(f[2], "Z") {
			continue
		}
		pid, _ := strconv.Atoi(f[0])
		ppid, _ := strconv.Atoi(f[1])
		children[ppid] = append(children[ppid], pid)
	}
	out := append([]int(nil), children[root]...)
	for i := 0; i < len(out); i++ {
		out = append(out, children[out[i]]...)
	}
	return out
}
