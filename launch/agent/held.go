package agent

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hora/elastic/rendezvous"
	"hora/internal/wire"
	"hora/launch/machine"
	"hora/launch/protocol"
)

// lookAfter tells the launcher which workers are held, once each time that changes. Away from the launcher nobody is
// there who would let one go on: whatever stops it counts as a stop.
func (a *agent) lookAfter() {
	for _, p := range a.procs {
		if p.exited {
			continue
		}
		halt := p.heldBy()
		if halt.Excused() && (a.cfg.Remote || a.cfg.Guest != nil) {
			halt = rendezvous.Stopped
		}
		if halt != p.halt {
			p.halt = halt
			a.out.Send(protocol.SayHalted, wire.AppendI64(wire.AppendI64(nil, int64(p.rank)), int64(halt)))
		}
	}
}

// heldBy says what holds a worker's process, or the program that a shell or the like has started under it.
func (p *proc) heldBy() rendezvous.Halt {
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

// statOf returns what the kernel says of a process; nil when it is not there.
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

// stopSignal returns what a process was stopped by; 0 when the kernel does not say.
func stopSignal(stat []string) syscall.Signal {
	if len(stat) <= statCode {
		return 0
	}
	n, _ := strconv.Atoi(stat[statCode])
	return syscall.Signal(n & 0x7f)
}

// usedBy returns the time that processors have spent on a process and those below it.
func usedBy(pid int) time.Duration {
	total := 0
	for _, p := range append(machine.Descendants(pid), pid) {
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
