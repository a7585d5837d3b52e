// Package backend is the seam between a server's queue and what runs its gangs: how much there is, and how a gang is
// started, watched and killed. Nothing above it knows what a node is: a machine of ours, a pod, another queue's step.
// What runs them also says how to have them come and go, where it has nodes of its own that do.
//
// It says what both sides mean, does nothing itself, and has no goroutines.
package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hora/job/schedule"
	"hora/server/client"
	"hora/server/snapshot"
)

// Backend is where gangs run. They are no children of the server: one that runs goes on without it, and the next server
// names it by the same Ref.
type Backend interface {
	// Capacity says what there is. changed is closed when that is no longer so.
	Capacity() (all []schedule.Node, changed <-chan struct{})
	// Start has a gang be as it says. One that does not run is started, once, however often that is asked for. One that
	// runs has the shares that it says now from its next commit on, and its Stands come anew. Calls for one gang come
	// one after another. An error that is ErrLost says that a node which it needs is.
	Start(ctx context.Context, g Gang) error
	// Watch hands over what comes of a gang after a record, as much at once as there is and one batch at a time, until
	// the one with its Exit; then it returns nil. What take returns an error for comes again, with a later Watch at
	// last. What it returns nil for is safe with who watches: the back end may keep it no more, and who asks for
	// records that are gone is told a Gone in their place. An error that is an Unbegun says that there is nothing to
	// watch yet, and that the gang may be started.
	Watch(ctx context.Context, r Ref, from uint64, take func([]Record) error) error
	// Kill ends a gang for a reason, which its Exit names. One that cannot be reached hears it when it can. Over is for
	// a gang whose Exit is safe, or that shall never have been: what is left of it is removed.
	Kill(r Ref, why client.Outcome) error
	// Close leaves all gangs to themselves: calls that wait for something return.
	Close()
}

// Over is Kill's reason where nothing more is wanted of a gang.
const Over client.Outcome = ""

// Gang is one attempt of a job, placed. Of an elastic one the shares change while it runs: with what it is to give away
// in Held, and the nodes that it has left without slots. The first of them stays.
type Gang struct {
	Job      int64
	Attempt  int
	Document client.Document
	Shares   []client.Share
	Code     string          // hash of the folder that goes along
	Outputs  []snapshot.File // what earlier attempts left in outputs/
	Secrets  map[string][]byte
	Lent     map[string]string // keys to storage, by the names of their variables
	Token    string            // with which the job asks the server about itself
	Tell     bool              // it runs: it is told what it may have now, and begins nowhere
}

// Ref names an attempt and where it is: its pool, and the nodes there, the first of its shares first.
type Ref struct {
	Job     int64
	Attempt int
	Pool    string
	Nodes   []string
}

// Ref is the gang's.
func (g *Gang) Ref() Ref { return RefOf(g.Job, g.Attempt, g.Document.Pool, g.Shares) }

// RefOf names an attempt that has these shares.
func RefOf(job int64, attempt int, pool string, all []client.Share) Ref {
	r := Ref{Job: job, Attempt: attempt, Pool: pool}
	for _, s := range all {
		r.Nodes = append(r.Nodes, s.Node)
	}
	return r
}

// Holds says whether a gang has slots there, be it until its next commit.
func Holds(s client.Share) bool { return s.Slots > 0 || s.Held > 0 }

// Slots are what a gang may have from its next commit on.
func Slots(all []client.Share) []schedule.Share {
	out := make([]schedule.Share, 0, len(all))
	for _, s := range all {
		if s.Slots > 0 {
			out = append(out, schedule.Share{Node: s.Node, Slots: s.Slots})
		}
	}
	return out
}

// What an Exit has for its code where the machine or one of its programs is at fault, and where a host is lost: as hora
// run ends then.
const (
	ExitSystem = 71
	ExitHost   = 69
)

// ErrLost is for what was lost with who kept it, and will not be heard of any more.
var ErrLost = errors.New("the process that kept the job is gone")

// Lost is a node that was silent for too long, and with it what it kept.
type Lost struct {
	Node     string
	Patience time.Duration
}

func (l *Lost) Error() string {
	return fmt.Sprintf("node %s was lost: nothing was heard of it for %v", l.Node, l.Patience)
}

// Is says that it is an ErrLost.
func (l *Lost) Is(err error) bool { return err == ErrLost }

// Unbegun is for a gang that has never begun: it may be started.
type Unbegun struct {
	Says string // what there is of why
}

func (*Unbegun) Error() string { return "the job has not begun" }
