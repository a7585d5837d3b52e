package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"hora/event"
	"hora/transport/mem"
)

// witness keeps what one rank's listener hears.
type witness struct {
	ready chan event.Ready
	ops   chan event.Operation
}

func (w *witness) Operation(o *event.Operation) { w.ops <- *o }

func (w *witness) Event(e event.Event) {
	if r, ok := e.(*event.Ready); ok {
		w.ready <- *r
	}
}

// TestReady: rank 0 hears when the others had a name first, also of names that they met
// before anybody listened, and calls it off when nobody listens any more.
func TestReady(t *testing.T) {
	const n = 3
	m, err := mem.New(n, mem.Config{Hosts: make([]int, n), PeerTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var sink event.Sink
	c := &cluster{t: t, mem: m}
	for r := range n {
		cfg := Config{Named: true, Ranks: []int{4, 5, 7}}
		if r == 0 {
			cfg.Events = &sink
		}
		g, err := New(m.Mesh(r), cfg)
		if err != nil {
			t.Fatal(err)
		}
		c.groups = append(c.groups, g)
		t.Cleanup(func() { g.Close() })
	}
	run := func(names ...string) {
		t.Helper()
		c.must(c.each(func(_ int, g *Group) error {
			rs := make([]Request, len(names))
			for i, name := range names {
				rs[i] = sum(make([]float32, 8), name)
				rs[i].Shape = []int{2, 4}
			}
			var one [1]Ticket
			if err := g.Submit(rs, one[:]); err != nil {
				return err
			}
			_, err := g.Wait(one[0], -1)
			return err
		}))
	}
	began := time.Now()
	run("early")
	w := &witness{make(chan event.Ready, 64), make(chan event.Operation, 64)}
	remove := sink.Add(w)
	run("late", "too")
	var got []string
	for range 6 {
		select {
		case r := <-w.ready:
			got = append(got, fmt.Sprint(r.Name, r.Rank))
			if r.At.Before(began) || r.At.After(time.Now()) {
				t.Errorf("%v was ready at %v", r.String(), r.At)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("heard only %v", got)
		}
	}
	slices.Sort(got)
	if want := []string{"early5", "early7", "late5", "late7", "too5", "too7"}; !slices.Equal(got, want) {
		t.Errorf("heard %v, want %v", got, want)
	}
	for range 2 {
		o := <-w.ops
		times := []int64{1, o.Submitted, o.Agreed, o.Packing, o.Started, o.Arrived, o.Reduced, o.Done}
		if !slices.IsSorted(times) {
			t.Errorf("times of %s: %v", o.Name, times)
		}
		if o.Size != n || !slices.Equal(o.Ranks, []int{4, 5, 7}) || o.Dims != 2 || o.Shape[0] != 2 || o.Shape[1] != 4 {
			t.Errorf("%+v", o)
		}
	}
	remove()
	run("nobody")
	deadline := time.Now().Add(10 * time.Second)
	for k := 0; c.groups[0].names.firsts.asked.Load(); k++ {
		if time.Now().After(deadline) {
			t.Fatal("rank 0 still wants to know although nobody listens")
		}
		run(fmt.Sprint("again ", k))
	}
}
