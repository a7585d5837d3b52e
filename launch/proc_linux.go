package launch

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// detached keeps what a terminal sends away from a process of ours.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// adopt makes this process the parent of every descendant whose own parent ends.
func adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// allowedCPUs are the hardware threads that this process may use; nil when unknown.
func allowedCPUs() []int {
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

// forker forks from one locked thread that lives until close: a parent-death signal fires when the thread that forked
// ends, and a child inherits that thread's cores.
type forker struct {
	asks chan forkAsk
	done chan struct{}
}

type forkAsk struct {
	path  string
	argv  []string
	attr  *syscall.ProcAttr
	cpus  []int
	reply chan forkReply
}

type forkReply struct {
	pid int
	err error
}

func newForker() *forker {
	f := &forker{asks: make(chan forkAsk), done: make(chan struct{})}
	go f.run()
	return f
}

func (f *forker) run() {
	defer close(f.done)
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	var all unix.CPUSet
	known := unix.SchedGetaffinity(0, &all) == nil
	for ask := range f.asks {
		if ask.cpus != nil {
			var set unix.CPUSet
			for _, c := range ask.cpus {
				set.Set(c)
			}
			_ = unix.SchedSetaffinity(0, &set) // unbound is slower, not wrong
		} else if known {
			_ = unix.SchedSetaffinity(0, &all)
		}
		pid, err := syscall.ForkExec(ask.path, ask.argv, ask.attr)
		ask.reply <- forkReply{pid, err}
	}
}

// fork starts a program in a process group of its own, bound to cpus (nil leaves it unbound).
func (f *forker) fork(path string, argv []string, dir string, env []string, files [3]uintptr, cpus []int) (int, error) {
	ask := forkAsk{path: path, argv: argv, cpus: cpus, reply: make(chan forkReply, 1), attr: &syscall.ProcAttr{
		Dir: dir, Env: env, Files: files[:],
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}}
	f.asks <- ask
	r := <-ask.reply
	return r.pid, r.err
}

func (f *forker) close() {
	close(f.asks)
	<-f.done
}

// Adopt makes this process the parent of what an agent that was killed leaves behind; Sweep then finds it.
func Adopt() { _ = adopt() }

// Sweep ends every process below this one.
func Sweep() {
	for range 100 {
		var st syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &st, syscall.WNOHANG, nil)
		if err != nil {
			return // no child is left
		}
		if pid == 0 {
			killTree(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Millisecond)
		}
	}
}

// killTree sends sig to every descendant of root, found by walking /proc.
func killTree(root int, sig syscall.Signal) {
	for _, pid := range descendants(root) {
		syscall.Kill(pid, sig)
	}
}

// descendants lists the processes below root, parents before children.
func descendants(root int) []int {
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
