// Package bridge is what the library that frameworks call has of a group beyond what Go programs have: the engine below
// it, and memory that a framework owns. It stands apart so that the page of hora.Group shows what a training needs.
package bridge

import (
	"context"
	"time"
	"unsafe"

	"hora/engine"
)

// Group is the lower side of a hora.Group. Calls that are made by Engine pass by what the root package does for its
// own: requests go by hora.Group's Run and Submit.
type Group struct {
	Engine *engine.Group
	Memory
	// Finish says that this rank makes no more calls in the group, before Close: the group's calls are then compared
	// with what the others made, and Leave tells a difference.
	Finish func()
}

// Unmet is an operation whose group was not made in time.
type Unmet = engine.UnmetError

// MostWaits is how many waits of this process can be looked at: see hora.Waiting.
const MostWaits = engine.MaxWaits

// Soonest returns the shortest limit of rs' own, 0 where none has one.
func Soonest(rs []engine.Request) time.Duration { return engine.Soonest(rs) }

// Memory is what operations of a group work on where a framework has allocated it.
type Memory interface {
	// Register has the other ranks of the host map size bytes of the shared descriptor fd, from offset on, which lie at
	// ptr in this process. Collective, as hora.Group.Buffer is; where no memory is shared it does nothing.
	Register(ctx context.Context, ptr unsafe.Pointer, size, fd int, offset int64) error
	// Outlive lets a buffer stay until Free, even when the group is closed before: somebody may still look at it.
	Outlive(buffer []byte)
}

var of func(group any) Group

// Offer has the root package say how Of finds a group's lower side. It is called once, before main.
func Offer(f func(group any) Group) { of = f }

// Of returns the lower side of a *hora.Group.
func Of(group any) Group { return of(group) }
