package hora

import (
	"log/slog"
	"time"

	"hora/event"
)

// Config says where a process stands in its world and how it reaches the others. The
// zero Config is a world of one. FromEnv fills one from the environment. Join and Enroll work
// on a copy of their own, Peers included: a Config may be changed and used again.
type Config struct {
	Rank, Size           int // Size 0 means 1
	LocalRank, LocalSize int // place among the ranks of the host; LocalSize 0: found out while joining
	CrossRank, CrossSize int // place of the host among the hosts that have this LocalRank; CrossSize 0: found out

	Host   string // this host's name in messages; empty means the system's
	HostID string // equal on ranks that share memory; empty: boot id and network namespace
	Job    string // the job's name: ranks of another job are refused; empty means "hora"
	// Process is the launcher's name of this process, of all that it starts as the rank; empty where nobody says.
	Process string
	Epoch   uint64 // which life of an elastic job this is

	// Addr is the coordinator's "host:port". With Serve set, rank 0 serves it itself,
	// which is what a job without `hora run` does.
	Addr  string
	Serve bool
	// Peers, when set, are the "host:port" of every rank, where each listens; no
	// coordinator is asked then. Ranks with one host in theirs share memory.
	Peers []string
	// Listen is the "host:port" that this rank accepts connections on, or several with
	// commas between; empty:
	// Peers[Rank], or a free port on all interfaces.
	Listen string
	// RunDir and RunKey are where the ranks of one host without a launcher of ours find
	// each other: local rank 0 writes the secret and the address to files in RunDir,
	// a directory of this user alone, that RunKey tells from those of other jobs.
	RunDir, RunKey string

	Secret     Secret // proved by every connection; see SecretFile
	SecretFile string // read while joining when Secret is zero

	StartTimeout time.Duration // how long ranks wait for each other to join; 0 means 30 s
	// JoinTimeout, when it is longer, is how long they wait for those that have not come yet: the launcher says so,
	// which sees whether those live and ends the wait itself. What follows their coming takes no longer than
	// StartTimeout.
	JoinTimeout time.Duration
	PeerTimeout time.Duration // silence after which a rank is lost; 0 means 10 s
	// ElasticTimeout is how long a job that lost a worker waits for enough others to go
	// on; 0 means 10 minutes.
	ElasticTimeout time.Duration
	OpTimeout      time.Duration // an operation fails after this long; 0 never
	StallWarn      time.Duration // report of missing ranks; 0 means 60 s, below 0 never
	// DeadlockTimeout is how long ranks wait for each other in different groups before it is
	// looked whether they can ever go on; 0 means 5 s, below 0 never. It needs Threads.
	DeadlockTimeout time.Duration
	StallEnd        time.Duration // the job fails after this long without a missing rank; 0 never
	// CheckCalls gives calls without a name, of groups that go by order, the file and line of
	// the program's call as one: ranks that call at different places get a *MismatchError.
	CheckCalls bool

	FusionBytes int    // most bytes packed together in named groups; 0 means 128 MiB, below 0 never
	Names       int    // names remembered by a named group; 0 means 1,024, below 0 none
	Algorithms  string // overrides of the algorithm table, see docs/algorithms.md
	Tune        bool   // measure segment sizes for about 50 ms when a group starts
	Links       string // "" or "auto"; "tcp": no shared memory; "shm": refuse anything else
	Lanes       int    // connections over which a pair of hosts spreads large messages; 0 means 1
	TLS         bool   // encrypt connections between hosts

	// Progress has this rank tell the coordinator about once a second what it does, for
	// the launcher's status line.
	Progress bool

	// Timeline is the file that rank 0 writes a timeline to, see docs/timeline.md; empty
	// for none. TimelineMarks has agreements of named operations marked in it.
	Timeline      string
	TimelineMarks bool

	Source string // which convention FromEnv found: "hora", "horovod", "torchrun", "openmpi", "pmi", "slurm", "index", "alone"

	// Threads says what the process's threads wait for, and whether all of them that have
	// called hora do; nil where nobody knows. doubt, where it is not empty, is who else may
	// free them, as in "has a thread x, which": then they are told, and ended much later. See
	// DeadlockTimeout.
	Threads func() (waits []Waiting, doubt string, all bool)

	Events *event.Sink
	Log    *slog.Logger // nil means slog.Default()
}
