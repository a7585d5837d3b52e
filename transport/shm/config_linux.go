package shm

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

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
