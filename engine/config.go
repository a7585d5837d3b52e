package engine

import (
	"log/slog"
	"time"

	"hora/collective"
	"hora/event"
)

// Config holds the knobs of a Group. The zero value is right for an ordered group.
type Config struct {
	Name  string // of the group in messages; empty means "world"
	Ranks []int  // rank in the world of each rank of the group, for messages; nil when they are the same

	// Named makes it a group of named operations in any order; all ranks must set it alike.
	Named bool
	// FusionBytes is the most bytes that named reductions are packed into at once. 0
	// means 128 MiB, below 0 never pack. Rank 0's value must equal everybody's.
	FusionBytes int
	// Names is how many names the ranks remember together; 0 means 1,024, below 0 none.
	Names int

	OpTimeout time.Duration // an operation fails after this long; 0 never
	StallWarn time.Duration // a report about missing ranks after this long; 0 means 60 s, below 0 never
	StallEnd  time.Duration // the group fails after this long without a missing rank; 0 never

	// Reason, when set, is asked why a rank of the world was lost, by whoever knows better
	// than the links do (a launcher has the exit code). It may take a moment; "" keeps
	// what the links say.
	Reason func(rank int) string

	// OnNote hears what other ranks tell by Note. It runs on a goroutine of the link: it does
	// not block, and msg is valid during the call alone.
	OnNote func(from int, msg []byte)

	Collective collective.Config
	Events     *event.Sink
	Clock      event.Epoch  // of event times; the zero Epoch makes its own
	Log        *slog.Logger // stall reports; nil means slog.Default()
}

const (
	defaultFusion = 128 << 20
	defaultNames  = 1024
)

// DefaultStall is when missing ranks are reported, where a Config says nothing of it.
const DefaultStall = 60 * time.Second

func (c *Config) fill() {
	if c.Name == "" {
		c.Name = "world"
	}
	if c.FusionBytes == 0 {
		c.FusionBytes = defaultFusion
	}
	if c.Names == 0 {
		c.Names = defaultNames
	}
	if c.StallWarn == 0 {
		c.StallWarn = DefaultStall
	}
	if c.Clock.Start().IsZero() {
		c.Clock = event.NewEpoch()
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
}
