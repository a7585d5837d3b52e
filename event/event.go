// Package event names the things worth knowing about a running job. Log lines, the
// timeline, metrics and golden tests all come from these values and from nothing else.
//
// It owns small structs and a [Sink] that hands them to listeners. It formats nothing
// on the data path, opens no files, starts no goroutines and imports nothing of ours. A
// Sink without listeners costs one nil check or one atomic load per operation.
package event

import (
	"fmt"
	"strings"
	"time"
)

// Event is anything worth knowing. String is one line without a newline, in ranks,
// hosts and tensor names.
type Event interface{ String() string }

// MaxDims is how many dimensions of a shape an Operation holds.
const MaxDims = 8

// Operation is one collective that has ended on this rank. The times are nanoseconds on
// the clock of [Epoch.Now]; zero means that the operation never got there, or that it
// had no such step.
type Operation struct {
	Group string // "world", "set 2"
	Ranks []int  // the group's, in the world; never changed. nil: 0 to Size - 1
	Size  int    // ranks of the group
	Seq   uint64 // number of the operation in its group; several names share one when fused
	Name  string
	Kind  string // "allreduce"
	Op    string // "sum"; empty where nothing is reduced
	Type  string // "float32"
	Bytes int64
	Fused int // tensors that travelled together, 1 when alone
	Dims  int // of the shape; Shape holds the first MaxDims of them. 0 when nobody said
	Shape [MaxDims]int

	Submitted int64 // the caller handed it over
	Agreed    int64 // named groups: it was agreed, or planned, that it runs now
	Packing   int64 // copying it together with others began, and ended at Started
	Started   int64 // this rank began it
	Arrived   int64 // the last rank was there: Arrived − Started is waiting for others
	Reduced   int64 // the pack was done: Done − Reduced is copying out of it
	Done      int64
	Err       error
}

func (o *Operation) String() string {
	line := fmt.Sprintf("%s %s %q: %d bytes in %s (waited %s)", o.Group, o.Kind, o.Name, o.Bytes,
		time.Duration(o.Done-o.Started), time.Duration(max(o.Arrived-o.Started, 0)))
	if o.Err != nil {
		line += ": " + o.Err.Error()
	}
	return line
}

// Stall says that an operation has waited for others longer than it should.
type Stall struct {
	Group   string
	Name    string // what waits here
	Kind    string
	Waited  time.Duration
	Missing []Absent // who has not come, in rank order
	Final   bool     // the job ends for it
}

// Absent is one rank that others wait for, as far as is known.
type Absent struct {
	Rank    int
	Host    string
	Last    string // the last operation it finished; empty when unknown
	Pending string // what it has pending or runs instead; empty when nothing
	Nearest string // a pending name of its that is nearly the awaited one
	Silent  bool   // it did not answer the question at all
}

func (a Absent) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d", a.Rank)
	if a.Host != "" {
		fmt.Fprintf(&b, " (%s)", a.Host)
	}
	if a.Silent {
		b.WriteString(" did not answer")
		return b.String()
	}
	if a.Last == "" {
		b.WriteString(" has finished nothing yet")
	} else {
		b.WriteString(" last finished " + a.Last)
	}
	if a.Nearest != "" {
		fmt.Fprintf(&b, " and waits in %q, which is nearly the same name", a.Nearest)
	} else if a.Pending != "" {
		b.WriteString(" and waits in " + a.Pending)
	}
	return b.String()
}

func (s *Stall) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", s.Group, s.Kind)
	if s.Name != "" {
		fmt.Fprintf(&b, " %q", s.Name)
	}
	fmt.Fprintf(&b, " has waited %s. Missing ranks: ", s.Waited.Round(time.Second))
	for i, a := range s.Missing {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(a.String())
	}
	if len(s.Missing) == 0 {
		b.WriteString("none is known")
	}
	return b.String()
}

// Mismatch says that ranks asked for different things in one operation.
type Mismatch struct {
	Group, Name string
	Err         error
}

func (m *Mismatch) String() string { return m.Err.Error() }

// PeerLost says that a rank is gone.
type PeerLost struct {
	Rank         int
	Host, Reason string
}

func (p *PeerLost) String() string {
	return fmt.Sprintf("lost rank %d (%s): %s", p.Rank, p.Host, p.Reason)
}

// Joined says that this process has become a rank of a world.
type Joined struct {
	Rank, Size int
	Host       string
	Epoch      uint64
	Took       time.Duration
}

func (j *Joined) String() string {
	return fmt.Sprintf("joined as rank %d of %d on %s in %s", j.Rank, j.Size, j.Host, j.Took)
}

// Left says that this process left its world on purpose.
type Left struct{ Rank int }

func (l *Left) String() string { return fmt.Sprintf("rank %d left", l.Rank) }

// Recovered says that this rank trains again after its epoch broke or changed.
type Recovered struct {
	Rank, Size int
	Epoch      uint64
	Cause      string
	Took       time.Duration // from when this rank knew to the state being equal everywhere
}

func (r *Recovered) String() string {
	return fmt.Sprintf("rank %d of %d goes on in epoch %d after %s: %s", r.Rank, r.Size, r.Epoch, r.Took.Round(time.Millisecond), r.Cause)
}

// Agreed is one agreement of a group of named operations: what was pending everywhere.
type Agreed struct {
	Group   string
	Names   int  // how many operations it released
	Planned bool // they were foreseen, so nothing was exchanged
}

func (a *Agreed) String() string { return fmt.Sprintf("%s: agreed on %d operations", a.Group, a.Names) }

// Ready says when a rank had an operation of a named group for the first time. Rank 0 of
// the group hears it of the others while somebody listens there.
type Ready struct {
	Group, Name string
	Rank        int       // of the world
	At          time.Time // on that rank's clock
}

func (r *Ready) String() string {
	return fmt.Sprintf("%s: rank %d is ready for %q", r.Group, r.Rank, r.Name)
}
