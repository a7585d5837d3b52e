//go:build !linux

package launch

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Without sub-reapers and parent-death signals a worker that detaches itself can escape; cores cannot be bound.

func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func adopt() error { return nil }

func allowedCPUs() []int { return nil }

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
			killTree(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Millisecond)
		}
	}
}

type forker struct{}

func newForker() *forker { return &forker{} }

func (f *forker) close() {}

// fork starts a program in a process group of its own.
func (f *forker) fork(path string, argv []string, dir string, env []string, files [3]uintptr, _ []int) (int, error) {
	return syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir: dir, Env: env, Files: files[:], Sys: &syscall.SysProcAttr{Setpgid: true},
	})
}

func killTree(root int, sig syscall.Signal) {
	for _, pid := range descendants(root) {
		syscall.Kill(pid, sig)
	}
}

// descendants lists the processes below root as ps knows them.
func descendants(root int) []int {
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
