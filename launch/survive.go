package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hora/internal/wire"
)

// severed is a worker that the coordinator has lost although nobody has reported its end.
type severed struct {
	rank   int
	since  time.Time // when it had connected
	reason string
	silent bool
}

// post hands an event to the owner, unless the job is over.
func (j *job) post(e any) {
	select {
	case j.events <- e:
	case <-j.over:
	}
}

// severed ends a process that the job has lost: stopped, stuck or cut off from the coordinator, it would keep its slot
// and its rank for ever. One whose connection broke is given the grace to say why it ends.
func (j *job) severed(e severed) {
	if j.stopped || !j.spec.elastic() || j.complete.Load() || e.rank >= len(j.seats) || !j.alive[e.rank] || e.since.Before(j.begun[e.rank]) {
		return
	}
	if !e.silent {
		e.silent = true
		time.AfterFunc(j.spec.Grace, func() { j.post(e) })
		return
	}
	j.condemn[e.rank] = e.reason
	b := wire.AppendI64(wire.AppendI64(nil, int64(e.rank)), int64(syscall.SIGKILL))
	j.links[j.seats[e.rank].Host].send(cmdSignal, b)
}

// lookAfter tells the launcher which workers are stopped, once each time that changes.
func (a *agent) lookAfter() {
	for _, p := range a.procs {
		if p.exited {
			continue
		}
		if is := stopped(p.pid, 4); is != p.halted {
			p.halted = is
			a.out.send(sayHalted, wire.AppendBool(wire.AppendI64(nil, int64(p.rank)), is))
		}
	}
}

// stopped says whether a process is stopped, or the program that a shell or the like has started under it.
func stopped(pid, depth int) bool {
	dir := fmt.Sprintf("/proc/%d/", pid)
	b, err := os.ReadFile(dir + "stat")
	if err != nil {
		return false
	}
	// The name in parentheses may hold anything.
	if f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:])); len(f) > 0 && (f[0] == "T" || f[0] == "t") {
		return true
	}
	children, err := os.ReadFile(dir + "task/" + strconv.Itoa(pid) + "/children")
	if f := strings.Fields(string(children)); err == nil && len(f) == 1 && depth > 0 {
		if child, err := strconv.Atoi(f[0]); err == nil {
			return stopped(child, depth-1)
		}
	}
	return false
}

// lament leaves a word about why the workers of this host are ended, where nobody is left to be told: in the job's log
// directory, or on standard error.
func (a *agent) lament(why string) {
	if a.orphaned || a.stopping || a.live == 0 || a.plan == nil {
		return
	}
	its := "its worker here is"
	if a.live != 1 {
		its = fmt.Sprintf("its %d workers here are", a.live)
	}
	text := fmt.Sprintf("%s hora: job %s on %s: %s: %s ended\n", time.Now().Format(time.DateTime), a.plan.Job, a.plan.Host, why, its)
	if a.plan.LogDir != "" && os.MkdirAll(a.plan.LogDir, 0o755) == nil {
		f, err := os.OpenFile(filepath.Join(a.plan.LogDir, "hora."+a.plan.Host), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = f.WriteString(text)
			f.Close()
		}
		if err == nil {
			return
		}
	}
	_, _ = os.Stderr.WriteString(text) // there is nobody else to tell
}
