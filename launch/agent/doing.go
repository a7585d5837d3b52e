package agent

import (
	"fmt"
	"time"

	"hora/launch/protocol"
)

// doings says what the processes of this host's workers do.
func (a *agent) doings() []protocol.Doing {
	all := []protocol.Doing{}
	for _, p := range a.procs {
		if !p.exited {
			all = append(all, protocol.Doing{Rank: p.rank, Text: p.does()})
		}
	}
	return all
}

// does says what a process does: whether it is held, waits for a disk, or how many processors it and its children have
// used since this was last asked.
func (p *proc) does() string {
	if text := p.heldBy().String(); text != "" {
		return text
	}
	now, used := time.Now(), usedBy(p.pid)
	took, more := now.Sub(p.asked), used-p.used
	first := p.asked.IsZero()
	p.asked, p.used = now, used
	switch share := more.Seconds() / took.Seconds(); {
	case inDisk(p.pid):
		return "its process waits for a disk or a file server"
	case first || took < 100*time.Millisecond:
		return "its process runs"
	case share >= 0.1:
		return fmt.Sprintf("its process computes, on %.1f processors", share)
	}
	return "its process is idle"
}
