package transport

import (
	"errors"
	"fmt"
	"strings"
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

	// Of a rank that left: how far it was, as in " after 5 calls", and what may help.
	After, Cure string
}

// ReasonLeft is the Reason of a rank that left in order (Close) while another
// still waited for it.
const ReasonLeft = "left"

// Left reports whether the rank closed its mesh in order.
func (e *PeerLostError) Left() bool { return e.Reason == ReasonLeft }

// gaveUp begins the Reason of a rank that has waited in vain for another.
const gaveUp = "gave up waiting for "

// ReasonLate is the Reason that other ranks have for the loss of one whose own wait ended with late.
func ReasonLate(late *DeadlineError) string {
	after := late.After.Round(time.Millisecond)
	if late.Rank < 0 {
		return fmt.Sprintf("%sany rank after its timeout of %v", gaveUp, after)
	}
	return fmt.Sprintf("%srank %d after its timeout of %v", gaveUp, late.Rank, after)
}

// ReasonWaitedFor is the Reason that a rank which has left has for the loss of one that waited for it.
func ReasonWaitedFor(rank int) string { return fmt.Sprintf("%srank %d, which has left", gaveUp, rank) }

// GaveUp reports whether the rank ended the group because it had waited in vain.
func (e *PeerLostError) GaveUp() bool { return strings.HasPrefix(e.Reason, gaveUp) }

func (e *PeerLostError) Error() string {
	why := e.Reason
	if e.Left() {
		why = "it has left (its program ended or shut hora down)" + e.After + "; all ranks must make the same calls" + e.Cure
	}
	if e.Host == "" {
		return fmt.Sprintf("lost rank %d: %s", e.Rank, why)
	}
	return fmt.Sprintf("lost rank %d on host %s: %s", e.Rank, e.Host, why)
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
	after := e.After.Round(time.Millisecond)
	if e.Rank < 0 { // whoever it might have been
		return fmt.Sprintf("no rank has come within the timeout of %v; see what the others do instead, or allow more time", after)
	}
	return fmt.Sprintf("rank %d has not come within the timeout of %v; see what it does instead, or allow more time", e.Rank, after)
}
