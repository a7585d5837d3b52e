package launch

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hora/elastic/rendezvous"
	"hora/event"
	"hora/internal/wire"
)

// lookAfter tells the launcher which workers are held, once each time that changes.
func (a *agent) lookAfter() {
	for _, p := range a.procs {
		if p.exited {
			continue
		}
		if halt := a.haltOf(p); halt != p.halt {
			p.halt = halt
			a.out.send(sayHalted, wire.AppendI64(wire.AppendI64(nil, int64(p.rank)), int64(halt)))
		}
	}
}

// haltOf says what holds a worker's process, or the program that a shell or the like has started under it.
func (a *agent) haltOf(p *proc) rendezvous.Halt {
	pid := p.pid
	for depth := 0; depth < 5; depth++ {
		stat := statOf(pid)
		if stat == nil {
			return rendezvous.Running
		}
		switch stat[statState] {
		case "t":
			return rendezvous.Debugged
		case "T":
			by := stopSignal(stat)
			if by == 0 && depth == 0 {
				by = p.stopped
			}
			if by == syscall.SIGTSTP || by == syscall.SIGTTIN || by == syscall.SIGTTOU {
				return rendezvous.Suspended
			}
			return rendezvous.Stopped
		}
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		f := strings.Fields(string(children))
		if err != nil || len(f) != 1 {
			return rendezvous.Running
		}
		if pid, err = strconv.Atoi(f[0]); err != nil {
			return rendezvous.Running
		}
	}
	return rendezvous.Running
}

// Fields of /proc/PID/stat, counted from the one after the program's name.
const (
	statState = 0
	statUsed  = 11 // and the three after it: ticks of a process, and of its children that were waited for
	statCode  = 49 // of a stopped process the signal, as far as the kernel is new enough (5.18)
	ticks     = 100
)

// statOf is what the kernel says of a process; nil when it is not there.
func statOf(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	// The name in parentheses may hold anything.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) <= statUsed+4 {
		return nil
	}
	return f
}

// stopSignal is what a process was stopped by; 0 when the kernel does not say.
func stopSignal(stat []string) syscall.Signal {
	if len(stat) <= statCode {
		return 0
	}
	n, _ := strconv.Atoi(stat[statCode])
	return syscall.Signal(n & 0x7f)
}

// usedBy is the time that processors have spent on a process and those below it.
func usedBy(pid int) time.Duration {
	total := 0
	for _, p := range append(descendants(pid), pid) {
		stat := statOf(p)
		if stat == nil {
			continue
		}
		for _, f := range stat[statUsed : statUsed+4] {
			n, _ := strconv.Atoi(f)
			total += n
		}
	}
	return time.Duration(total) * time.Second / ticks
}

// inDisk says whether a process waits for a disk or a file server.
func inDisk(pid int) bool {
	stat := statOf(pid)
	return stat != nil && stat[statState] == "D"
}

// hold is what holds a process on this machine on purpose.
type hold struct {
	host, why string
	since     time.Time
	told      bool
}

// heldFor is how long a process is held before somebody is told: a look at it by gdb or strace takes less.
const heldFor = 2 * time.Second

// halted passes on what holds a process. On another host nobody is there who would let it go on: whatever stops it there
// counts as a stop.
func (j *job) halted(l *link, rank int, halt rendezvous.Halt) {
	if halt.Excused() && !l.local {
		halt = rendezvous.Stopped
	}
	j.server.Halted(rank, halt)
	if !halt.Excused() {
		j.release(rank)
	} else if h := j.held[rank]; h == nil || h.why != halt.String() {
		j.release(rank)
		j.held[rank] = &hold{host: l.name, why: halt.String(), since: time.Now()}
	}
}

// release ends that.
func (j *job) release(rank int) {
	if h := j.held[rank]; h != nil && h.told {
		j.event(&event.Held{Rank: rank, Host: h.host})
	}
	delete(j.held, rank)
}

// tellHeld tells of processes that have been held for a while.
func (j *job) tellHeld() {
	for rank, h := range j.held {
		if !h.told && time.Since(h.since) >= heldFor {
			h.told = true
			j.event(&event.Held{Rank: rank, Host: h.host, Why: h.why})
		}
	}
}
