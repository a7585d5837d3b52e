package event

import (
	"fmt"
	"time"
)

// Work is what a worker has done since it first told.
type Work struct {
	Elapsed    time.Duration
	Operations int64         // collectives that have ended
	Bytes      int64         // of their tensors
	Inside     time.Duration // spent in them, waiting for others included: who comes last spends least
}

// Progress is what a rank has done so far.
type Progress struct {
	Rank int
	Host string
	Work
}

func (e *Progress) String() string {
	return fmt.Sprintf("rank %d on %s: %d operations, %d bytes", e.Rank, e.Host, e.Operations, e.Bytes)
}
