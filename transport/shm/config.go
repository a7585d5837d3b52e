package shm

import (
	"fmt"
	"log/slog"
	"time"

	"hora/internal/secret"
)

// Config is one rank's part in opening the memory of one group on one host.
type Config struct {
	Secret secret.Secret
	Job    string
	Epoch  uint64
	Group  uint64 // the group's number within the job; 0: the world

	Rank  int    // this process's rank in the group
	Ranks []int  // the group's ranks on this host, ascending, Rank among them
	Host  string // this host's name, for error texts

	// Listener is this process's own; the lowest of Ranks needs it.
	Listener *Listener
	// Leader is the Addr of the listener of the lowest of Ranks; the others need it.
	Leader string

	PeerTimeout time.Duration // a peer silent for so long is lost; 0: 10 s
	// Excused says of one of Ranks that somebody holds its process on purpose, by a debugger for one: it is waited
	// for. It is asked when a peer has been silent for too long; nil excuses nobody.
	Excused func(rank int) bool
	// Spin is how long a wait polls before it sleeps; 0: 50 µs. Oversubscribed says
	// that ranks share processors; it is also found from the ranks' affinities.
	Spin           time.Duration
	Oversubscribed bool

	// SlotBytes, PartBytes and Parts are the board's sizes, equal on all ranks; 0:
	// transport.BoardConfig's defaults.
	SlotBytes, PartBytes, Parts int

	Log *slog.Logger // nil: nothing is logged
}

// UnavailableError says that ranks cannot share memory here, on any of them: go by
// TCP. It is no fault of the job.
type UnavailableError struct{ Reason error }

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("share memory: %v; the ranks of this host can go by TCP instead", e.Reason)
}

func (e *UnavailableError) Unwrap() error { return e.Reason }
