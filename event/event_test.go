package event

import (
	"fmt"
	"testing"
	"time"
)

type recorder struct {
	ops    []Operation
	events []string
}

func (r *recorder) Operation(o *Operation) { r.ops = append(r.ops, *o) }
func (r *recorder) Event(e Event)          { r.events = append(r.events, e.String()) }

func TestSink(t *testing.T) {
	var none *Sink
	none.Operation(&Operation{})
	none.Emit(&Left{})
	var s Sink
	if none.On() || s.On() {
		t.Fatal("nobody listens")
	}
	var a, b recorder
	removeA := s.Add(&a)
	removeB := s.Add(&b)
	s.Operation(&Operation{Name: "x"})
	removeA()
	removeA()
	s.Operation(&Operation{Name: "y"})
	s.Emit(&PeerLost{Rank: 3, Host: "h", Reason: "gone"})
	if !s.On() || len(a.ops) != 1 || len(b.ops) != 2 || b.events[0] != "lost rank 3 (h): gone" {
		t.Errorf("a heard %v, b %v %v", a, b.ops, b.events)
	}
	removeB()
	if s.On() {
		t.Error("on without listeners")
	}
}

func TestSinkCostsNothing(t *testing.T) {
	var s Sink
	var o Operation
	if n := testing.AllocsPerRun(100, func() { s.Operation(&o) }); n != 0 {
		t.Errorf("%v allocations without a listener", n)
	}
	s.Add(NewRing(4))
	if n := testing.AllocsPerRun(100, func() { s.Operation(&o) }); n != 0 {
		t.Errorf("%v allocations with a ring", n)
	}
}

func TestRing(t *testing.T) {
	r := NewRing(3)
	dst := make([]Operation, 2)
	if n, next, missed := r.Drain(dst, 0); n != 0 || next != 0 || missed != 0 {
		t.Errorf("empty: %d %d %d", n, next, missed)
	}
	for i := range 5 {
		r.Operation(&Operation{Seq: uint64(i)})
	}
	n, next, missed := r.Drain(dst, 0)
	if n != 2 || missed != 2 || dst[0].Seq != 2 || dst[1].Seq != 3 {
		t.Errorf("%d operations %v, %d missed", n, dst, missed)
	}
	n, next, missed = r.Drain(dst, next)
	if n != 1 || next != 5 || missed != 0 || dst[0].Seq != 4 {
		t.Errorf("%d operations %v, %d missed", n, dst, missed)
	}
}

func TestSentences(t *testing.T) {
	for want, e := range map[string]Event{
		`world: allreduce "w" has waited 1m0s. Missing ranks: rank 1 (b) last finished allreduce v (operation 3) and waits in "ww", which is nearly the same name; rank 2 (c) did not answer`: &Stall{
			Group: "world", Kind: "allreduce", Name: "w", Waited: time.Minute,
			Missing: []Absent{
				{Rank: 1, Host: "b", Last: "allreduce v (operation 3)", Pending: "[ww]", Nearest: "ww"},
				{Rank: 2, Host: "c", Silent: true},
			},
		},
		`world: allreduce "w" has waited 2s. Missing ranks: rank 0 did not answer, and when it did before it last finished allreduce v (operation 3) and waits in [x]`: &Stall{
			Group: "world", Kind: "allreduce", Name: "w", Waited: 2 * time.Second,
			Missing: []Absent{{Silent: true, Last: "allreduce v (operation 3)", Pending: "[x]"}},
		},
		`world: barrier has waited 1s. Missing ranks: none is known`: &Stall{Group: "world", Kind: "barrier", Waited: time.Second},
		`world allreduce "w": 8 bytes in 4µs (waited 3µs): broken`: &Operation{
			Group: "world", Kind: "allreduce",
			Name: "w", Bytes: 8, Started: 1000, Arrived: 4000, Done: 5000, Err: fmt.Errorf("broken"),
		},
		`rank 2 left`:                       &Left{Rank: 2},
		`joined as rank 1 of 2 on h in 3ms`: &Joined{Rank: 1, Size: 2, Host: "h", Took: 3 * time.Millisecond},
		`set 1: agreed on 4 operations`:     &Agreed{Group: "set 1", Names: 4},
		`world: rank 3 is ready for "w"`:    &Ready{Group: "world", Name: "w", Rank: 3},
		`Mismatched x`:                      &Mismatch{Err: fmt.Errorf("Mismatched x")},
	} {
		if got := e.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
