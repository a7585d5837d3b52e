package shm

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	// Spin is how long a wait polls before it sleeps; 0: 30 µs. Oversubscribed says
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

func unavailable(format string, args ...any) error {
	return &UnavailableError{fmt.Errorf(format, args...)}
}

// checked returns c with defaults, or all its faults.
func (c Config) checked() (Config, error) {
	var faults []error
	if c.Secret.IsZero() {
		faults = append(faults, errors.New("there is no secret; set HORA_SECRET_FILE"))
	}
	if !slices.Contains(c.Ranks, c.Rank) {
		faults = append(faults, fmt.Errorf("rank %d is not among %v", c.Rank, c.Ranks))
	}
	for i, rank := range c.Ranks {
		if rank < 0 || i > 0 && rank <= c.Ranks[i-1] {
			faults = append(faults, fmt.Errorf("ranks %v are not ascending", c.Ranks))
			break
		}
	}
	if len(faults) == 0 {
		if c.Rank == c.Ranks[0] && c.Listener == nil && len(c.Ranks) > 1 {
			faults = append(faults, fmt.Errorf("rank %d is the lowest of this host and has no listener", c.Rank))
		}
		if c.Rank != c.Ranks[0] && c.Leader == "" {
			faults = append(faults, fmt.Errorf("the address of rank %d, the lowest of this host, is not known", c.Ranks[0]))
		}
	}
	if len(faults) > 0 {
		return c, fmt.Errorf("open shared memory: %w", errors.Join(faults...))
	}
	if c.PeerTimeout <= 0 {
		c.PeerTimeout = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

func (c Config) seat() int { return slices.Index(c.Ranks, c.Rank) }
