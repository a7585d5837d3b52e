package agent

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

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
