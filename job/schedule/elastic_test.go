package schedule

import (
	"slices"
	"testing"
	"time"
)

func wantShares(t *testing.T, what string, got []Share, want ...Share) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// TestAnElasticJobGivesNodesAway: of a job on three nodes those slots go that help, whichever they are, but its first
// node keeps one.
func TestAnElasticJobGivesNodesAway(t *testing.T) {
	m := cluster(2, 2, 2)
	submit(m, 1, Ask{NP: 6, Min: 2})
	wantStarted(t, m.Decide(t0), 1)
	wantShares(t, "it starts with", m.Shares(1), Share{"a", 2}, Share{"b", 2}, Share{"c", 2})
	submit(m, 2, Ask{NP: 2, Node: "b"})
	d := m.Decide(t0)
	if len(d.Shrink) != 1 {
		t.Fatalf("%+v, want job 1 to give node b away", d)
	}
	wantShares(t, "it keeps", d.Shrink[0].Shares, Share{"a", 2}, Share{"c", 2})
	m.Shrunk(1, t0)
	wantStarted(t, m.Decide(t0), 2)
	submit(m, 3, Ask{NP: 2, Node: "a"})
	if d := m.Decide(t0); !d.Empty() {
		t.Fatalf("%+v: its first node is given away whole", d)
	}
	m.Withdraw(3)
	submit(m, 4, Ask{NP: 1, Node: "a"})
	d = m.Decide(t0)
	if len(d.Shrink) != 1 {
		t.Fatalf("%+v, want one slot of node a", d)
	}
	wantShares(t, "it keeps", d.Shrink[0].Shares, Share{"a", 1}, Share{"c", 2})
	m.Shrunk(1, t0)
	wantStarted(t, m.Decide(t0), 4)
	m.Ended(2, t0)
	m.Ended(4, t0)
	d = m.Decide(t0)
	if len(d.Grow) != 1 {
		t.Fatalf("%+v, want job 1 to grow", d)
	}
	wantShares(t, "it grows to", d.Grow[0].Shares, Share{"a", 2}, Share{"c", 2}, Share{"b", 2})
}

// TestAnElasticJobGivesSlotsOfAllNodes: where no node alone has enough, the last ones give first.
func TestAnElasticJobGivesSlotsOfAllNodes(t *testing.T) {
	m := cluster(2, 2, 2)
	submit(m, 1, Ask{NP: 6, Min: 3})
	wantStarted(t, m.Decide(t0), 1)
	submit(m, 2, Ask{NP: 3})
	d := m.Decide(t0)
	if len(d.Shrink) != 1 {
		t.Fatalf("%+v", d)
	}
	wantShares(t, "it keeps", d.Shrink[0].Shares, Share{"a", 2}, Share{"b", 1})
}

// TestALostNodeIsLeftOut: the job holds nothing there any more, and is there again when something has come under its
// name, before the loss is told of or after.
func TestALostNodeIsLeftOut(t *testing.T) {
	for _, early := range []bool{false, true} {
		m := cluster(2, 2)
		submit(m, 1, Ask{NP: 4, Min: 2})
		wantStarted(t, m.Decide(t0), 1)
		m.RemoveNode("b")
		back := func() { m.SetNode(Node{Name: "b", Pool: "p8", Slots: 2}) }
		if early {
			back()
		}
		if d := m.Decide(after(time.Second)); !d.Empty() {
			t.Fatalf("%+v", d)
		}
		m.Lost(1, "b", after(2*time.Second))
		wantShares(t, "it keeps", m.Shares(1), Share{"a", 2})
		if !early {
			if d := m.Decide(after(3 * time.Second)); !d.Empty() {
				t.Fatalf("%+v", d)
			}
			back()
		}
		d := m.Decide(after(4 * time.Second))
		if len(d.Grow) != 1 {
			t.Fatalf("back before the loss is told: %v: %+v, want job 1 to grow", early, d)
		}
		wantShares(t, "it grows to", d.Grow[0].Shares, Share{"a", 2}, Share{"b", 2})
	}
}

// TestAPartThatEndedIsLeftOut: the job holds nothing there any more, does not come back while the node is the same, and
// does when another has come under its name.
func TestAPartThatEndedIsLeftOut(t *testing.T) {
	m := cluster(2, 2)
	submit(m, 1, Ask{NP: 4, Min: 2})
	wantStarted(t, m.Decide(t0), 1)
	m.Parted(1, "b", after(time.Second))
	wantShares(t, "it keeps", m.Shares(1), Share{"a", 2})
	if d := m.Decide(after(time.Second)); !d.Empty() {
		t.Fatalf("%+v: it goes back to the node that it lost", d)
	}
	submit(m, 2, Ask{NP: 2, Limit: time.Second})
	wantStarted(t, m.Decide(after(time.Second)), 2)
	m.Ended(2, after(2*time.Second))
	m.RemoveNode("b")
	m.SetNode(Node{Name: "b", Pool: "p8", Slots: 2})
	d := m.Decide(after(3 * time.Second))
	if len(d.Grow) != 1 {
		t.Fatalf("%+v, want job 1 to grow", d)
	}
	wantShares(t, "it grows to", d.Grow[0].Shares, Share{"a", 2}, Share{"b", 2})
}

// TestALossWhileItShrinks: what was told of other nodes stands.
func TestALossWhileItShrinks(t *testing.T) {
	m := cluster(2, 2, 2)
	submit(m, 1, Ask{NP: 6, Min: 2})
	wantStarted(t, m.Decide(t0), 1)
	submit(m, 2, Ask{NP: 2})
	if d := m.Decide(t0); len(d.Shrink) != 1 {
		t.Fatalf("%+v", d)
	}
	m.Lost(1, "b", t0)
	wantShares(t, "it holds", m.Shares(1), Share{"a", 2}, Share{"c", 2})
	wantStarted(t, m.Decide(t0), 2)
	m.Shrunk(1, t0)
	wantShares(t, "it keeps", m.Shares(1), Share{"a", 2})
}

// TestWhatWasStartedStaysUntilItSpreads: a job that an earlier caller started grows on its own nodes alone, until its
// keeper has said that others may come; what it was told to give away is awaited.
func TestWhatWasStartedStaysUntilItSpreads(t *testing.T) {
	m := cluster(2, 2)
	j := Job{ID: 1, Pool: "p8", Project: "default", Priority: 50, Queued: t0, Ask: Ask{NP: 4, Min: 1}}
	m.Started(j, []Share{{"a", 2}}, t0, t0)
	if d := m.Decide(t0); !d.Empty() {
		t.Fatalf("%+v: it grows onto another node", d)
	}
	m.Spreads(1)
	if d := m.Decide(t0); len(d.Grow) != 1 || slots(d.Grow[0].Shares) != 4 {
		t.Fatalf("%+v, want it to grow onto the other node", d)
	}
	m = cluster(2, 2)
	m.Started(j, []Share{{"a", 2}, {"b", 2}}, t0, t0)
	m.Shrinking(1, []Share{{"a", 2}})
	submit(m, 2, Ask{NP: 2})
	if d := m.Decide(t0); !d.Empty() {
		t.Fatalf("%+v: it was told already", d)
	}
	m.Shrunk(1, t0)
	wantStarted(t, m.Decide(t0), 2)
}

// TestNodesThatHaveElasticJobsAlone: such a node takes an elastic job whole or not at all.
func TestNodesThatHaveElasticJobsAlone(t *testing.T) {
	m := cluster(2, 3)
	m.SetNode(Node{Name: "b", Pool: "p8", Slots: 3, Alone: true})
	submit(m, 1, Ask{NP: 4, Min: 2})
	d := m.Decide(t0)
	wantStarted(t, d, 1)
	wantShares(t, "it starts with", m.Shares(1), Share{"b", 3})
	if len(d.Grow) != 0 {
		t.Fatalf("it grows by %+v", d.Grow)
	}
	submit(m, 2, Ask{NP: 3, Min: 1})
	wantStarted(t, m.Decide(t0), 2)
	wantShares(t, "the other starts with", m.Shares(2), Share{"a", 2})
	m.Ended(1, t0)
	if d := m.Decide(t0); !d.Empty() {
		t.Fatalf("%+v: it grows onto a node that has elastic jobs alone", d)
	}
	submit(m, 3, Ask{NP: 3})
	wantStarted(t, m.Decide(t0), 3)
}

// TestAnElasticJobAboveItsQuota starts on what the quota leaves, and holds nobody up.
func TestAnElasticJobAboveItsQuota(t *testing.T) {
	m := cluster(8)
	m.SetQuota("q", Quota{Slots: 4, Max: 4})
	submit(m, 1, Ask{NP: 2}, of("q"))
	wantStarted(t, m.Decide(t0), 1)
	submit(m, 2, Ask{NP: 8, Min: 1}, of("q"))
	submit(m, 3, Ask{NP: 2})
	wantStarted(t, m.Decide(after(time.Second)), 3, 2)
	wantShares(t, "it has", m.Shares(2), Share{"a", 2})
}
