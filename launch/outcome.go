package launch

import (
	"fmt"
	"syscall"
	"time"

	"hora/elastic"
	"hora/launch/protocol"
)

// Kind says how a job ended.
type Kind uint8

// The ways a job can end.
const (
	Finished    Kind = iota // every worker exited with 0
	Failed                  // a worker exited with another code
	Killed                  // a worker was ended by a signal
	OutOfMemory             // a worker was ended by the kernel for want of memory
	LostHost                // a host, its agent or the way to it is gone
	NotStarted              // a worker could not be started
	Cancelled               // the launcher was told to stop
	Drained                 // a worker left on purpose before the work was done
	Severed                 // a worker that the others lost although its process was there, which has been ended
	Trouble                 // the launcher itself could not go on, e.g. its log directory's disk is full
)

var kinds = map[Kind]string{
	Finished: "finished", Failed: "failed", Killed: "killed", OutOfMemory: "out-of-memory", LostHost: "lost-host",
	NotStarted: "not-started", Cancelled: "cancelled", Drained: "drained", Severed: "severed", Trouble: "trouble",
}

// String names the kind, as reports do.
func (k Kind) String() string { return kinds[k] }

// Outcome is how a job ended: the first failure, when there was one.
type Outcome struct {
	Kind   Kind
	Rank   int // -1 where no rank is concerned
	Host   string
	Code   int            // the worker's exit code, or what the launcher should exit with
	Signal syscall.Signal // Killed, OutOfMemory, Cancelled
	Last   string         // the last exception line of its stderr, or the cause
	Took   time.Duration
	Apart  bool // it finished, and none of its several ranks had joined it, or met others at MASTER_PORT; see Place
}

// Exit codes of the launcher.
const (
	ExitUsage       = protocol.ExitUsage
	ExitNoHost      = protocol.ExitNoHost
	ExitHost        = protocol.ExitHost
	ExitBug         = protocol.ExitBug
	ExitSystem      = protocol.ExitSystem
	ExitLogs        = protocol.ExitLogs
	ExitTimeout     = protocol.ExitTimeout
	ExitNotRunnable = protocol.ExitNotRunnable
	ExitNotFound    = protocol.ExitNotFound
	ExitSignal      = protocol.ExitSignal
)

// ExitCode returns what the launching program exits with.
func (o *Outcome) ExitCode() int {
	switch o.Kind {
	case Finished:
		return 0
	case Killed, OutOfMemory, Cancelled:
		if o.Signal > 0 {
			return ExitSignal + int(o.Signal)
		}
	}
	if o.Code == 0 {
		return 1
	}
	return o.Code
}

// Cause says what happened to the first failing worker, without its place.
func (o *Outcome) Cause() string {
	text := ""
	switch o.Kind {
	case Finished:
		return "finished"
	case Failed:
		text = fmt.Sprintf("exit code %d", o.Code)
	case Killed:
		text = fmt.Sprintf("killed by signal %d (%s)", int(o.Signal), SignalName(o.Signal))
	case OutOfMemory:
		text = "killed by the kernel: out of memory (take smaller batches, or fewer ranks on that host)"
	case Drained:
		text = "left before the work was done"
	case Cancelled:
		text = "stopped"
		if o.Signal > 0 {
			text = "stopped by " + SignalName(o.Signal)
		}
	}
	switch {
	case o.Last == "":
		return text
	case text == "":
		return o.Last
	}
	return text + ": " + o.Last
}

// String returns the launcher's last line: who failed first, where and why.
func (o *Outcome) String() string {
	if o.Kind == Drained && o.Last == elastic.ToEnd { // whoever left last has done as it was told, as all the others
		return "it was told to end, and its workers left at a commit"
	}
	if o.Rank < 0 {
		return o.Cause()
	}
	return fmt.Sprintf("rank %d on %s: %s", o.Rank, o.Host, o.Cause())
}

// Error is a job that could not begin: one sentence and the exit code for it.
type Error = protocol.Error

// JobOver is the reason by which a hub refuses agents that come when the job has ended.
const JobOver = protocol.JobOver

func fault(code int, format string, a ...any) *Error { return protocol.Fault(code, format, a...) }

// SignalName names a signal as kill -l does.
func SignalName(s syscall.Signal) string { return protocol.SignalName(s) }
