package agent

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"hora/launch/environ"
	"hora/launch/protocol"
)

// commandEvery is how often a command is asked whether this host is about to go; it has as long to answer.
const commandEvery = 5 * time.Second

// note tells the launcher, once, that this host is about to go.
func (a *agent) note(why string) {
	if !a.noted {
		a.noted = true
		a.out.Send(protocol.SayNotice, []byte(why))
	}
}

// lookOut looks for the notice that the job waits for.
func (a *agent) lookOut() {
	on := a.plan.DrainOn
	if on == "" || a.noted || a.orphaned || a.stopping {
		return
	}
	command, ok := strings.CutPrefix(on, "sh:")
	if !ok {
		if _, err := os.Stat(on); err == nil {
			a.note("notice in " + on)
		}
		return
	}
	if time.Since(a.asked) < commandEvery {
		return
	}
	if a.inquiry > 0 { // too late with its answer
		syscall.Kill(-a.inquiry, syscall.SIGKILL)
		return
	}
	a.asked = time.Now()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		defer null.Close()
		a.inquiry, err = a.forker.fork("/bin/sh", []string{"sh", "-c", command}, a.at,
			environ.Merge(a.plan.Environ, []string{"HORA_HOST=" + a.plan.Host}), [3]uintptr{null.Fd(), null.Fd(), null.Fd()}, nil)
	}
	if err != nil {
		a.inquiry = 0
		return
	}
	a.childish = true
	a.reap()
}

// answered hears the end of such a command: success is notice.
func (a *agent) answered(status syscall.WaitStatus) {
	a.inquiry = 0
	if status.Exited() && status.ExitStatus() == 0 {
		a.note(fmt.Sprintf("notice by %s", strings.TrimPrefix(a.plan.DrainOn, "sh:")))
	}
}
