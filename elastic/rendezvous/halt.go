package rendezvous

// Halt is what holds a worker's process, as its host sees it.
type Halt uint8

// The ways to be held.
const (
	Running   Halt = iota // nothing does
	Stopped               // SIGSTOP: whoever sent it may not be there to wake it
	Debugged              // a debugger, which stops it at every look
	Suspended             // its terminal, or somebody in that one's stead
)

func (h Halt) String() string {
	switch h {
	case Stopped:
		return "its process is stopped"
	case Debugged:
		return "its process is in a debugger"
	case Suspended:
		return "its process is suspended by its terminal"
	}
	return ""
}

// Excused says that somebody holds the process on purpose: it is waited for.
func (h Halt) Excused() bool { return h == Debugged || h == Suspended }
