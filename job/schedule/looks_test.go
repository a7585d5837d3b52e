package schedule

import (
	"fmt"
	"testing"
	"time"
)

// looks are how many nodes and parts of jobs a call looks at.
func looks(m *Machine, call func()) int {
	before := m.looked
	call()
	return m.looked - before
}

// TestLooksAtALargeCluster: with a thousand nodes, five thousand jobs that run on them and as many that wait, what is
// asked each second looks at what has changed, and a node that changes at what is on it: never at all jobs for each
// node, nor at all nodes for each job.
func TestLooksAtALargeCluster(t *testing.T) {
	const nodes, jobs = 1000, 5000
	m := New(0)
	now := after(0)
	node := func(i int) Node {
		return Node{Name: fmt.Sprintf("node%04d", i), Pool: "p", Slots: 5}
	}
	for i := range nodes {
		m.SetNode(node(i))
	}
	for id := range int64(jobs) {
		j := Job{ID: id + 1, Pool: "p", Project: "a", Ask: Ask{NP: 1, Limit: time.Hour}}
		m.Started(j, []Share{{node(int(id) % nodes).Name, 1}}, now, now)
	}
	m.SetSpare("p", 500, nodes+500, Node{Slots: 4})
	for id := range int64(jobs) {
		j := Job{ID: jobs + id + 1, Pool: "p", Project: "a", Queued: now, Ask: Ask{NP: 8}}
		if id%2 == 0 {
			j.Ask = Ask{NP: 2, For: j.ID}
		}
		m.Submit(j)
	}
	for _, c := range []struct {
		what string
		most int
		call func()
	}{
		// Each of the 250 that are placed looks at all nodes, to see whether and where; what fits no more is tried once
		// for all who ask for it.
		{"nodes for those who wait", 252 * 2 * (nodes + 500), func() {
			if n := m.Wants("p"); n != 500 {
				t.Errorf("%d nodes are wanted, and 500 may come", n)
			}
		}},
		{"the same, and nothing has changed", 0, func() { m.Wants("p") }},
		{"nodes of their own", 10 * 300, func() {
			if all := m.WantsFresh("p", 300, 0); len(all) != 100 || all[0] != (Wanted{jobs + 1, 1}) {
				t.Errorf("%d jobs get nodes of their own, of 300 that may be made", len(all))
			}
		}},
		{"the same, and nothing has changed", 0, func() { m.WantsFresh("p", 300, 0) }},
		{"nodes of their own where none may be made", 0, func() { m.WantsFresh("p", 0, 0) }},
		{"a node that is away", 5, func() {
			n := node(7)
			n.Closed = true
			m.SetNode(n)
		}},
		{"all nodes are away", jobs, func() {
			for i := range nodes {
				n := node(i)
				n.Closed = true
				m.SetNode(n)
			}
		}},
		{"a node that is gone", 0, func() { m.RemoveNode(node(7).Name) }},
	} {
		n := looks(m, c.call)
		t.Logf("%s: %d looks", c.what, n)
		if n > c.most {
			t.Errorf("%s: %d looks, and not at most %d", c.what, n, c.most)
		}
	}
	m.SetNode(node(7))
	if free := m.free[m.byName[node(7).Name]].slots; free != 0 {
		t.Errorf("the node that is back has %d slots free, and its five jobs run", free)
	}
}
