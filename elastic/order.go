package elastic

import (
	"errors"
	"fmt"
	"strings"

	"hora/event"
)

// Host is a machine with room for workers.
type Host struct {
	Name  string
	Slots int
}

// News is what a Roster hears: Listing, Unlisted, Up, Exit, HostLost, Notice, Opened, Over or Tick.
type News interface{ news() }

// Listing is an answer of the job's discovery: the hosts at hand, first the ones to fill first; or that the job is to
// end, all its workers at their next commit.
type Listing struct {
	Hosts []Host
	End   bool
}

// ErrEnd is what a discovery finds instead of hosts when the job is to end at its next commit.
var ErrEnd = errors.New("the job is to end at its next commit")

// ToEnd is then why its workers leave.
const ToEnd = "the job is to end"

// Unlisted is a failure of the discovery.
type Unlisted struct{ Cause string }

// Up says that a rank's process runs.
type Up struct{ Rank int }

// Exit is the end of a rank's process.
type Exit struct {
	Rank   int
	How    How
	Cause  string
	Words  bool // Cause holds the process's own last words
	Killed bool // by a signal
}

// How a process ended.
type How uint8

// The ways a process can end.
const (
	Failure  How = iota // any that is none of the others
	Success             // it has done its work; nobody is started in its place
	Farewell            // it left on purpose before the work was done
	Excused             // it does not matter: the others have done the work
)

// HostLost says that a host, its agent or the way to it is gone, and with it all workers there.
type HostLost struct{ Host, Cause string }

// Notice says that a host is about to go.
type Notice struct{ Host, Cause string }

// Opened says that an epoch has begun.
type Opened struct {
	Epoch uint64
	Size  int
}

// Over says that the work is done, or that the job is being ended: nobody is started or asked to leave any more.
type Over struct{}

// Tick says that time has passed.
type Tick struct{}

func (Listing) news()  {}
func (Unlisted) news() {}
func (Up) news()       {}
func (Exit) news()     {}
func (HostLost) news() {}
func (Notice) news()   {}
func (Opened) news()   {}
func (Over) news()     {}
func (Tick) news()     {}

// Order is what the launcher has to do or to tell: Begin, Start, Ask, Stay, GiveUp or Tell.
type Order interface{ order() }

// Begin says that a discovery has found enough: ranks 0 to Size-1 fill these hosts in order, and are started so.
type Begin struct {
	Size  int
	Hosts []Host
}

// Start has a rank's process started on a slot.
type Start struct {
	Rank int
	At   Spot
	Beds int  // slots of that host that are taken then
	New  bool // the worker is one more, and no other's successor
}

// Ask has a worker asked to commit and leave.
type Ask struct {
	Rank  int
	Cause string
}

// Stay takes an Ask back until the next one. A worker that has left already does not hear of it.
type Stay struct{ Rank int }

// GiveUp ends the job: by the exit or the loss that was the news, or by what Text says. Text may also be what a lost
// host means for the job.
type GiveUp struct {
	Text string
	Late bool // time is up
}

// Tell passes on what somebody should hear; nothing is to be done.
type Tell struct{ Event event.Event }

// are returns the count with what they do: "1 worker is", "2 workers are".
func are(n int, one string) string {
	if n == 1 {
		return event.Counted(n, one) + " is"
	}
	return event.Counted(n, one) + " are"
}

func (Begin) order()  {}
func (Start) order()  {}
func (Ask) order()    {}
func (Stay) order()   {}
func (GiveUp) order() {}
func (Tell) order()   {}

// list names a few of many.
func list(names []string) string {
	const few = 4
	if len(names) > few {
		return strings.Join(names[:few], ", ") + fmt.Sprintf(" and %d more", len(names)-few)
	}
	return strings.Join(names, ", ")
}
