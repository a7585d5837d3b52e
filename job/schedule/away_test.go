package schedule

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestANodeThatIsAway: a gang that needs a node which is away keeps what it needs of the others, and it is not said
// that it never starts. When the node is back it does, and when it is gone for good others do.
func TestANodeThatIsAway(t *testing.T) {
	for _, back := range []bool{true, false} {
		m := cluster(2, 2)
		submit(m, 1, Ask{NP: 2, Node: "a", Limit: 39 * time.Second})
		wantStarted(t, m.Decide(t0), 1)
		submit(m, 2, Ask{Nodes: 2, PerNode: 2})
		submit(m, 3, Ask{NP: 2})
		submit(m, 4, Ask{NP: 2, Node: "b"}, priority(10))
		if d := m.Decide(t0); len(d.Start) > 0 || !d.Promises[0].At.Equal(after(39*time.Second)) {
			t.Fatalf("%+v", d)
		}
		m.SetNode(Node{Name: "b", Pool: "p8", Slots: 2, Closed: true})
		if d := m.Decide(t0); len(d.Start) > 0 || len(d.Promises) != 1 || !d.Promises[0].At.IsZero() {
			t.Fatalf("%+v, want job 2 to keep node a, without a time", d)
		}
		m.Ended(1, after(time.Second))
		if d := m.Decide(after(time.Second)); len(d.Start) > 0 || len(d.Promises) != 1 {
			t.Fatalf("%+v, want job 2 to keep node a", d)
		}
		for id, want := range map[int64]string{
			2: "it needs 2 slots on each of 2 nodes at once, and node b of pool p8 is away: it starts when that is back",
			4: "node b is away: it starts when that is back",
		} {
			if r, _ := m.Why(id, t0); r.Code != CodeNodes || r.Text != want {
				t.Errorf("job %d: %+v, want %q", id, r, want)
			}
		}
		if back {
			m.SetNode(Node{Name: "b", Pool: "p8", Slots: 2})
			wantStarted(t, m.Decide(after(5*time.Second)), 2)
			continue
		}
		m.RemoveNode("b")
		wantStarted(t, m.Decide(after(time.Minute)), 3)
		if r, _ := m.Why(2, t0); r.Code != CodeNever || !strings.Contains(r.Text, "the pool has 2 slots on 1 node") {
			t.Errorf("%+v", r)
		}
	}
}

// TestWhatEndsBeforeANodeIsBack: who waits for a node that is away and for a job that runs keeps nothing from those
// that end before that job.
func TestWhatEndsBeforeANodeIsBack(t *testing.T) {
	m := cluster(2, 2, 2)
	submit(m, 1, Ask{NP: 2, Node: "a", Limit: 10 * time.Minute})
	wantStarted(t, m.Decide(t0), 1)
	m.SetNode(Node{Name: "c", Pool: "p8", Slots: 2, Closed: true})
	submit(m, 2, Ask{NP: 6})
	submit(m, 3, Ask{NP: 1, Limit: 11 * time.Minute})
	submit(m, 4, Ask{NP: 1, Limit: 9 * time.Minute})
	d := m.Decide(t0)
	wantStarted(t, d, 4)
	onC := func(s Share) bool { return s.Node == "c" }
	if p := d.Promises[0]; p.ID != 2 || !p.At.IsZero() || !slices.ContainsFunc(p.Shares, onC) {
		t.Errorf("%+v", p)
	}
}

// TestOpenNodesBeforeOneThatIsAway: who fits where somebody gives way waits for that, and not for a node that is away,
// on which it would fit too.
func TestOpenNodesBeforeOneThatIsAway(t *testing.T) {
	m := cluster(2, 2)
	m.SetNode(Node{Name: "b", Pool: "p8", Slots: 2, Closed: true})
	for id := range int64(2) {
		submit(m, 10+id, Ask{NP: 1}, priority(10), func(j *Job) { j.Preemptible = true })
	}
	wantStarted(t, m.Decide(t0), 10, 11)
	submit(m, 1, Ask{NP: 2}, priority(60))
	d := m.Decide(t0)
	if p := d.Promises[0]; p.ID != 1 || len(p.Shares) != 1 || p.Shares[0].Node != "a" {
		t.Fatalf("%+v", p)
	}
	m.Ended(10, after(time.Second))
	submit(m, 12, Ask{NP: 1}, priority(10))
	if d := m.Decide(after(time.Second)); len(d.Start) > 0 {
		t.Errorf("%+v: job 12 takes the slot that job 10 has made room with", d)
	}
	m.Ended(11, after(2*time.Second))
	wantStarted(t, m.Decide(after(2*time.Second)), 1)
}
