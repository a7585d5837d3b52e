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

// notice is word that this host is about to go.
type notice struct {
	told    bool      // the launcher knows
	on      string    // what the job waits for: a file's name, or after "sh:" a command
	inquiry int       // pid of that command while it runs
	asked   time.Time // when it began
}

// tell tells the launcher, once.
func (n *notice) tell(out *protocol.Writer, why string) {
	if !n.told {
		n.told = true
		out.Send(protocol.SayNotice, []byte(why))
	}
}

// look looks for what the job waits for, with ask, which starts a command.
func (n *notice) look(out *protocol.Writer, ask func(command string) (pid int, err error)) {
	command, ok := strings.CutPrefix(n.on, "sh:")
	if !ok {
		if _, err := os.Stat(n.on); err == nil {
			n.tell(out, "notice in "+n.on)
		}
		return
	}
	if time.Since(n.asked) < commandEvery {
		return
	}
	if n.inquiry > 0 { // too late with its answer
		syscall.Kill(-n.inquiry, syscall.SIGKILL)
		return
	}
	n.asked = time.Now()
	var err error
	if n.inquiry, err = ask(command); err != nil {
		n.inquiry = 0
	}
}

// answered hears the end of such a command: success is notice.
func (n *notice) answered(out *protocol.Writer, status syscall.WaitStatus) {
	n.inquiry = 0
	if status.Exited() && status.ExitStatus() == 0 {
		n.tell(out, fmt.Sprintf("notice by %s", strings.TrimPrefix(n.on, "sh:")))
	}
}

// inquire starts a command that says by its end whether this host is about to go.
func (a *agent) inquire(command string) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	pid, err = a.forker.fork("/bin/sh", []string{"sh", "-c", command}, a.at,
		environ.Merge(a.plan.Environ, []string{"HORA_HOST=" + a.plan.Host}), [3]uintptr{null.Fd(), null.Fd(), null.Fd()}, nil)
	if err == nil {
		a.children.more()
	}
	return pid, err
}
