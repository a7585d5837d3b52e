package agent

import (
	"os"
	"time"
)

// pipes are those that workers' output comes by; true: no worker is left that could write.
type pipes map[*os.File]bool

// drained says whether all that workers have written is on its way to the launcher. Once none is left, what their pipes
// hold is all that comes.
func (p pipes) drained() bool {
	for r, told := range p {
		if !told {
			p[r] = true
			_ = r.SetReadDeadline(time.Now())
		}
	}
	return len(p) == 0
}
