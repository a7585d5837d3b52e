// Package rendezvous serves a job's membership to its workers, and is the workers' side of it too.
//
// A coordinator ([Serve]) owns the membership machine of package elastic, the addresses of every member and a small
// key-value store; a worker ([Dial]) proves the job's secret, joins an epoch, and hears when another worker is lost.
// It never carries tensors, never starts or ends a process, and decodes nothing before the secret is proved.
//
// Goroutines: a Server runs one that accepts, one that owns all state, and two per connection (reader, writer); a
// Client runs one reader and one that beats every second. Close joins them.
package rendezvous

import (
	"fmt"
	"time"

	"hora/elastic"
	"hora/event"
)

// Hello is what a worker says about itself when it connects, before it joins.
type Hello struct {
	Job     string        // the job's name; another job's worker is refused by name
	Rank    int           // the rank the launcher gave it; -1 lets the coordinator choose
	Size    int           // the size the launcher gave it; 0 when unknown
	Host    string        // the host's name in messages
	Process string        // what its launcher calls its process, of all that it starts as Rank; "" where nobody does
	Beat    time.Duration // how often to say "I am here" when there is nothing else to say; 0 means every second
	session string        // the client's own, by which it is known when it comes back
	returns bool          // it comes back

	// OnNotice, when set, is called from the client's reading goroutine, in order, once per Notice. It must not block
	// and must not call the Client.
	OnNotice func(Notice)
	// Progress, when set, is what each beat tells the coordinator. It is called from the client's writing goroutine.
	Progress func() event.Work
}

// process returns what the launcher knows the worker by.
func (h *Hello) process() Process { return Process{h.Rank, h.Process} }

// Member is one worker of an epoch: its place and how to reach it.
type Member struct {
	Rank      int
	LocalRank int // place among the ranks of its host
	LocalSize int
	CrossRank int // place of its host among the hosts that have its LocalRank
	CrossSize int
	Host      string   // name for messages; workers with one Host share local ranks
	HostID    string   // equal on two workers that share memory (boot id and network namespace)
	Unix      string   // socket for the hand-over of shared memory; "@" begins an abstract name
	Addrs     []string // tcp host:port, best first
	Pid       int
}

// Epoch is one agreed world: who takes part, under which number.
type Epoch struct {
	Number uint64
	Rank   int // the caller's rank in this epoch; may differ from the one asked for after a loss
	Size   int
	// Members has all members while Size ≤ FullMembership. In larger worlds it has those of the caller's own host,
	// its ring neighbours and the ranks at distances that are powers of two; Client.Members fetches others.
	Members []Member
}

// FullMembership is the largest world whose every member is told the address of every other at once.
const FullMembership = 64

// Member finds a rank among the members at hand; false asks for Client.Members.
func (e *Epoch) Member(rank int) (Member, bool) {
	if rank >= 0 && rank < len(e.Members) && e.Members[rank].Rank == rank {
		return e.Members[rank], true
	}
	for _, m := range e.Members {
		if m.Rank == rank {
			return m, true
		}
	}
	return Member{}, false
}

// NoticeKind says what a Notice reports.
type NoticeKind uint8

// The kinds of notice.
const (
	NoticeLost NoticeKind = 1 + iota // a member is gone; the epoch is over
	NoticeLeft                       // a member left on purpose and needs no replacement
	// hosts came or are about to go: leave the epoch at the next commit and Join again
	NoticeChanged
	NoticeEnd // the job is over: Reason says why
	NoticeCut // the coordinator itself is gone
	// this worker itself is asked to commit and leave; without a Reason, to stay after all
	NoticeDrain
	// a member is held, by a debugger for one, and is waited for; without a Reason, no longer
	NoticeHeld
	NoticeComing // workers are on their way that the next epoch is to have too
	NoticeGoing  // another member was asked to leave
	NoticeParted // a member has committed and left; the epoch is over when what it took part in has ended
)

// String names the kind as messages do.
func (k NoticeKind) String() string {
	switch k {
	case NoticeLost:
		return "lost"
	case NoticeLeft:
		return "left"
	case NoticeChanged:
		return "changed"
	case NoticeEnd:
		return "end"
	case NoticeCut:
		return "cut"
	case NoticeDrain:
		return "drain"
	case NoticeHeld:
		return "held"
	case NoticeComing:
		return "coming"
	case NoticeGoing:
		return "going"
	case NoticeParted:
		return "parted"
	}
	return fmt.Sprintf("notice %d", uint8(k))
}

// Notice is news from the coordinator about the epoch.
type Notice struct {
	Kind   NoticeKind
	Epoch  uint64
	Rank   int // whom it concerns; -1 for nobody in particular
	Host   string
	Reason string // "killed by signal 9", "exit code 1: ValueError: bad shape", "silent for 10s"
}

// Recovery is what the end of an epoch cost one survivor.
type Recovery struct {
	Epoch uint64        // the one that it goes on in
	Took  time.Duration // from when it knew to when all ranks had the same state again
	Steps int           // of its training that are done again; -1 when it does not count them
}

// JoinError says why a worker may not take part.
type JoinError struct {
	Reason string
	Final  bool // trying again is useless: the job is over or this worker has no place in it
}

func (e *JoinError) Error() string { return "join job: " + e.Reason }

// Finished reports that the worker came when the job's work was done.
func (e *JoinError) Finished() bool { return e.Final && e.Reason == elastic.HasFinished }

// Silence is the default time after which a worker that says nothing counts as lost.
const Silence = 10 * time.Second
