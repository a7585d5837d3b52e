package transport

import (
	"errors"
	"fmt"
	"time"
)

// ErrClosed is what verbs return after Close.
var ErrClosed = errors.New("use mesh: this rank has left the group")

// ErrGone says that memory was asked for of a process that has ended.
var ErrGone = errors.New("the process has ended")

var errNoPeek = errors.New("these links read no other process's memory")

// PeerLostError says that a rank can no longer take part: its process ended, it
// fell silent, its connection broke, or it left.
type PeerLostError struct {
	Rank   int
	Host   string
	Reason string // "process ended", "killed by signal 9", "connection reset", "silent for 10s", "left"
}

// ReasonLeft is the Reason of a rank that left in order (Close) while another
// still waited for it.
const ReasonLeft = "left"

// Left reports whether the rank closed its mesh in order.
func (e *PeerLostError) Left() bool { return e.Reason == ReasonLeft }

func (e *PeerLostError) Error() string {
	if e.Host == "" {
		return fmt.Sprintf("lost rank %d: %s", e.Rank, e.Reason)
	}
	return fmt.Sprintf("lost rank %d on host %s: %s", e.Rank, e.Host, e.Reason)
}

// MismatchError says that a rank came to the same operation with something else in
// mind. Rank is -1 when the link only knows that somebody did.
type MismatchError struct {
	Rank         int
	Mine, Theirs Stamp
}

func (e *MismatchError) Error() string {
	if e.Rank < 0 {
		return fmt.Sprintf("match operation %d: another rank reported a mismatch", e.Mine.Seq&^PairSeq)
	}
	return fmt.Sprintf("match operation %d: rank %d came with operation %d (fingerprint %016x, here %016x)",
		e.Mine.Seq&^PairSeq, e.Rank, e.Theirs.Seq&^PairSeq, e.Theirs.Print, e.Mine.Print)
}

// DeadlineError says that a rank had not come by the operation's deadline.
type DeadlineError struct {
	Rank  int
	Seq   uint64
	After time.Duration // how long the operation had waited
}

func (e *DeadlineError) Error() string {
	return fmt.Sprintf("wait for rank %d in operation %d: nothing within %v",
		e.Rank, e.Seq&^PairSeq, e.After.Round(time.Millisecond))
}
