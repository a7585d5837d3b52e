package schedule

import (
	"fmt"
	"testing"
	"time"
)

// TestManyThatNeverStartHoldNobodyUp: a reason and a forecast cost what a few jobs do, however many wait before it that
// no node will ever hold; and they tell its place, once it has been asked for often enough.
func TestManyThatNeverStartHoldNobodyUp(t *testing.T) {
	const nodes, each = 50, 1500
	m := New(0)
	for i := range nodes {
		m.SetNode(Node{Name: fmt.Sprint("n", i), Pool: "p8", Slots: 2})
		submit(m, int64(i+1), Ask{NP: 2, Limit: time.Hour})
	}
	if d := m.Decide(t0); len(d.Start) != nodes {
		t.Fatalf("%d jobs run", len(d.Start))
	}
	for i := range each {
		submit(m, int64(1000+2*i), Ask{NP: 1, GPUs: 1}, priority(90))
		submit(m, int64(1001+2*i), Ask{NP: 1, Memory: int64(i + 1), GPUs: 1}, priority(90))
	}
	submit(m, 9999, Ask{NP: 1}, priority(10))
	m.Decide(t0)
	ask := func() (r Reason) {
		t.Helper()
		before := m.looked
		r, _ = m.Why(9999, t0)
		m.Expect(9999, t0)
		if n := (m.looked - before) / nodes; n > 4*verdictsAtOnce+forecastTries {
			t.Fatalf("all nodes were looked at %d times", n)
		}
		return r
	}
	asked := 0
	for ; ask().Place != 1; asked++ {
		if asked > each/verdictsAtOnce+1 {
			t.Fatalf("asked %d times, it is number %d", asked, ask().Place)
		}
	}
	if at, known := m.Expect(9999, t0); !known || !at.Equal(after(time.Hour)) {
		t.Errorf("it starts at %v, %v", at, known)
	}
	m.SetNode(Node{Name: "elsewhere", Pool: "other", Slots: 2, GPUs: 1})
	m.SetNode(Node{Name: "n0", Pool: "p8", Slots: 2, Closed: true})
	if r := ask(); r.Place != 1 {
		t.Errorf("another pool's nodes, and one that is away, make it number %d", r.Place)
	}
	m.SetNode(Node{Name: "new", Pool: "p8", Slots: 2, GPUs: 1})
	if r := ask(); r.Place <= each {
		t.Errorf("with a node that holds those before it, it is number %d", r.Place)
	}
}

// TestAPoolWithoutNodesHasPlaces: what waits for nodes may start when one comes, and counts.
func TestAPoolWithoutNodesHasPlaces(t *testing.T) {
	m := New(0)
	m.SetSpare("p8", 0, 4, Node{Slots: 2}) // all that it may have are on their way, or are being ended
	submit(m, 1, Ask{NP: 2}, priority(90))
	submit(m, 2, Ask{NP: 1})
	if n := m.place(m.jobs[2], t0); n != 2 {
		t.Errorf("it is number %d", n)
	}
}
