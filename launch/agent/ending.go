package agent

import (
	"os"
	"syscall"
	"time"

	"hora/launch/machine"
)

// ending is how everything below the agent is ended.
type ending struct {
	stopping bool
	deadline <-chan time.Time // when KILL follows TERM
	due      time.Time
}

// stop asks the whole tree to end, and ends it after grace.
func (e *ending) stop(grace time.Duration) {
	machine.KillTree(os.Getpid(), syscall.SIGTERM)
	machine.KillTree(os.Getpid(), syscall.SIGCONT)
	e.limit(grace)
}

// limit ends the whole tree after grace, or sooner when that was said before.
func (e *ending) limit(grace time.Duration) {
	due := time.Now().Add(grace)
	if e.stopping && e.due.Before(due) {
		return
	}
	e.stopping, e.due = true, due
	e.deadline = time.After(grace)
}

// kill ends the whole tree, again and again until no child is left: some may have been forked meanwhile.
func (e *ending) kill() {
	machine.KillTree(os.Getpid(), syscall.SIGKILL)
	e.deadline = time.After(20 * time.Millisecond)
}
