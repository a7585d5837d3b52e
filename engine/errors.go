package engine

import (
	"errors"
	"fmt"
	"time"

	"hora/transport"
)

// MismatchError says that ranks asked for different things in one operation. All ranks
// get the same text; later operations are not affected.
type MismatchError struct {
	Name string // of the tensor
	Text string // begins with what differs, as in "Mismatched data types: …"
}

func (e *MismatchError) Error() string { return e.Text }

// InvalidError says that a request can not be right whatever other ranks do. Nothing
// was sent.
type InvalidError struct{ Text string }

func (e *InvalidError) Error() string { return e.Text }

// OperationError says which operation a failure of the group met.
type OperationError struct {
	Name string // of the tensor; empty when it had none
	Kind string
	Err  error // *transport.PeerLostError, *transport.DeadlineError, …
}

func (e *OperationError) Error() string {
	if e.Name == "" {
		return e.Kind + ": " + e.Err.Error()
	}
	return e.Kind + " " + e.Name + ": " + e.Err.Error()
}

// Unwrap gives the cause.
func (e *OperationError) Unwrap() error { return e.Err }

// UnmetError says that a group was not made in time for a first call: not every member has made its own.
type UnmetError struct {
	Named bool // the calls are matched by name
	After time.Duration
	Err   error // context.DeadlineExceeded, be it with words of the links
}

func (e *UnmetError) Error() string {
	return fmt.Sprintf("not every rank has made its first call %s within %v; "+
		"see what the others do instead, or allow more time", e.Calls(), e.After.Round(time.Second/10))
}

// Calls says how the calls are matched.
func (e *UnmetError) Calls() string {
	if e.Named {
		return "by name"
	}
	return "in order"
}

// Unwrap gives the cause.
func (e *UnmetError) Unwrap() error { return e.Err }

// ErrClosed is what operations of a closed group end with. To the other ranks it is what
// the links' own is: this rank has left.
var ErrClosed error = closed{}

type closed struct{}

func (closed) Error() string        { return "the group was closed on this rank" }
func (closed) Is(target error) bool { return target == transport.ErrClosed }

// errReleased answers for a ticket that Wait has returned or Release has taken.
var errReleased = errors.New("wait: the ticket was released before; keep the first answer")

// ErrCancelled is what a cancelled operation ends with.
var ErrCancelled = errors.New("the operation was cancelled before it began")
