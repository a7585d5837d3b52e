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
	Group string       `json:"group"`           // "world", "set 2"
	Ranks []int        `json:"ranks,omitempty"` // the group's, in the world; never changed. nil: 0 to Size - 1
	Size  int          `json:"size"`            // ranks of the group
	Seq   uint64       `json:"seq"`             // number of the operation in its group; several names share one when fused
	Name  string       `json:"name"`
	Kind  string       `json:"kind"`         // "allreduce"
	Op    string       `json:"op,omitempty"` // "sum"; empty where nothing is reduced
	Type  string       `json:"type"`         // "float32"
	Bytes int64        `json:"bytes"`
	Fused int          `json:"fused"`          // tensors that travelled together, 1 when alone
	Dims  int          `json:"dims,omitempty"` // of the shape; Shape holds the first MaxDims of them. 0 when nobody said
	Shape [MaxDims]int `json:"shape,omitzero"`

	Submitted int64 `json:"submitted_ns"` // the caller handed it over
	Agreed    int64 `json:"agreed_ns"`    // named groups: it was agreed, or planned, that it runs now
	Packing   int64 `json:"packing_ns"`   // copying it together with others began, and ended at Started
	Started   int64 `json:"started_ns"`   // this rank began it
	Arrived   int64 `json:"arrived_ns"`   // the last rank was there: Arrived − Started is waiting for others
	Reduced   int64 `json:"reduced_ns"`   // the pack was done: Done − Reduced is copying out of it
	Done      int64 `json:"done_ns"`
	Err       error `json:"-"`
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
	Group   string        `json:"group"`
	Name    string        `json:"name"` // what waits here
	Kind    string        `json:"kind"`
	Waited  time.Duration `json:"waited_ns"`
	Missing []Absent      `json:"missing"`         // who has not come, in rank order
	Final   bool          `json:"final,omitempty"` // the job ends for it
}

// Absent is one rank that others wait for, as far as is known.
type Absent struct {
	Rank    int    `json:"rank"`
	Host    string `json:"host,omitempty"`
	Last    string `json:"last,omitempty"`    // the last operation it finished; empty when unknown
	Pending string `json:"pending,omitempty"` // what it has pending or runs instead; empty when nothing
	Nearest string `json:"nearest,omitempty"` // a pending name of its that is nearly the awaited one
	Silent  bool   `json:"silent,omitempty"`  // it did not answer; what else is said of it is from an earlier report
}

func (a Absent) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d", a.Rank)
	if a.Host != "" {
		fmt.Fprintf(&b, " (%s)", a.Host)
	}
	switch {
	case a.Silent && a.Nearest == "" && a.Pending == "":
		b.WriteString(" did not answer")
		return b.String()
	case a.Silent:
		b.WriteString(" did not answer, and when it did before it")
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
	Group string `json:"group"`
	Name  string `json:"name"`
	Err   error  `json:"-"`
}

func (m *Mismatch) String() string { return m.Err.Error() }

// PeerLost says that a rank is gone.
type PeerLost struct {
	Rank   int    `json:"rank"`
	Host   string `json:"host"`
	Reason string `json:"reason"`
}

func (p *PeerLost) String() string {
	return fmt.Sprintf("lost rank %d (%s): %s", p.Rank, p.Host, p.Reason)
}

// Joined says that this process has become a rank of a world.
type Joined struct {
	Rank  int           `json:"rank"`
	Size  int           `json:"size"`
	Host  string        `json:"host"`
	Epoch uint64        `json:"epoch"`
	Took  time.Duration `json:"took_ns"`
}

func (j *Joined) String() string {
	return fmt.Sprintf("joined as rank %d of %d on %s in %s", j.Rank, j.Size, j.Host, j.Took)
}

// Left says that this process left its world on purpose.
type Left struct {
	Rank int `json:"rank"`
}

func (l *Left) String() string { return fmt.Sprintf("rank %d left", l.Rank) }

// Recovered says that this rank trains again after its epoch broke or changed.
type Recovered struct {
	Rank  int           `json:"rank"`
	Size  int           `json:"size"`
	Epoch uint64        `json:"epoch"`
	Cause string        `json:"cause"`
	Took  time.Duration `json:"took_ns"` // from when this rank knew to the state being equal everywhere
}

func (r *Recovered) String() string {
	return fmt.Sprintf("rank %d of %d goes on in epoch %d after %s: %s", r.Rank, r.Size, r.Epoch, r.Took.Round(time.Millisecond), r.Cause)
}

// Agreed is one agreement of a group of named operations: what was pending everywhere.
type Agreed struct {
	Group   string `json:"group"`
	Names   int    `json:"names"`   // how many operations it released
	Planned bool   `json:"planned"` // they were foreseen, so nothing was exchanged
}

func (a *Agreed) String() string { return fmt.Sprintf("%s: agreed on %d operations", a.Group, a.Names) }

// Ready says when a rank had an operation of a named group for the first time. Rank 0 of
// the group hears it of the others while somebody listens there.
type Ready struct {
	Group string    `json:"group"`
	Name  string    `json:"name"`
	Rank  int       `json:"rank"` // of the world
	At    time.Time `json:"at"`   // on that rank's clock
}

func (r *Ready) String() string {
	return fmt.Sprintf("%s: rank %d is ready for %q", r.Group, r.Rank, r.Name)
}
