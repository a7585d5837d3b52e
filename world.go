package hora

import (
	"context"
	"errors"
)

// World is this process's membership of a job.
type World struct{}

// Join makes this process rank cfg.Rank of its world and returns when all ranks are
// there.
func Join(ctx context.Context, cfg Config) (*World, error) { return nil, errors.ErrUnsupported }

// Group is the group of all ranks, with operations in the caller's order.
func (w *World) Group() *Group { return nil }

// Rank is this process's place among all.
func (w *World) Rank() int { return 0 }

// Size is the number of processes.
func (w *World) Size() int { return 0 }

// LocalRank is this process's place among those of its host.
func (w *World) LocalRank() int { return 0 }

// LocalSize is the number of processes on this host.
func (w *World) LocalSize() int { return 0 }

// CrossRank is this host's place among those that have this LocalRank.
func (w *World) CrossRank() int { return 0 }

// CrossSize is the number of hosts that have this LocalRank.
func (w *World) CrossSize() int { return 0 }

// Homogeneous reports whether every host has equally many ranks.
func (w *World) Homogeneous() bool { return false }

// Host is this host's name in messages.
func (w *World) Host() string { return "" }

// HostOf is the name of the host that rank runs on.
func (w *World) HostOf(rank int) string { return "" }

// Epoch is the number of this life of the job.
func (w *World) Epoch() uint64 { return 0 }

// GroupOption changes a group that NewGroup makes.
type GroupOption func(*groupOptions)

type groupOptions struct {
	named bool
	name  string
}

// Named makes a group whose operations come in any order and are matched by name.
func Named() GroupOption { return func(o *groupOptions) { o.named = true } }

// Called gives the group a name for messages.
func Called(name string) GroupOption { return func(o *groupOptions) { o.name = name } }

// ErrNotMember is what NewGroup returns on a rank that is not in the list.
var ErrNotMember = errors.New("this rank is not in the group")

// NewGroup makes a group of the given ranks, in ascending order; nil means all. Every
// member calls it, in the same order for groups of the same ranks; others need not.
func (w *World) NewGroup(ctx context.Context, ranks []int, opts ...GroupOption) (*Group, error) {
	return nil, errors.ErrUnsupported
}

// Put stores a value that every rank can Get: the job's key-value store.
func (w *World) Put(ctx context.Context, key string, value []byte) error { return errors.ErrUnsupported }

// Get waits for a value that some rank Put.
func (w *World) Get(ctx context.Context, key string) ([]byte, error) { return nil, errors.ErrUnsupported }

// Counters are the bytes and messages of all groups by link.
func (w *World) Counters() Counters { return Counters{} }

// Leave ends this process's membership on purpose: others do not count it as lost. It
// closes all groups and may be called again.
func (w *World) Leave(ctx context.Context) error { return nil }

// Close ends the membership at once, as a crash would, but without leaking anything.
func (w *World) Close() error { return nil }
