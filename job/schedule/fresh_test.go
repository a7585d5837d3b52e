package schedule_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"hora/job/schedule"
)

// TestNodesOfItsOwn: a job that asks for nodes of its own runs on those that were made for it and on no others, and
// nobody else runs there.
func TestNodesOfItsOwn(t *testing.T) {
	now := time.Unix(1000, 0)
	m := schedule.New(0)
	like := schedule.Node{Slots: 2}
	m.SetSpare("two", 2, 3, like)
	m.SetNode(schedule.Node{Name: "warm", Pool: "two", Slots: 2})
	m.Submit(schedule.Job{ID: 1, Pool: "two", Queued: now, Ask: schedule.Ask{NP: 3, For: 1}})
	m.Submit(schedule.Job{ID: 2, Pool: "two", Queued: now, Ask: schedule.Ask{NP: 7, For: 2}})
	if got := m.Decide(now).Start; len(got) != 0 {
		t.Fatalf("started %+v on a node of everybody's", got)
	}
	if r, _ := m.Why(1, now); r.Code != schedule.CodeNodes || !strings.Contains(r.Text, "makes nodes for it alone") {
		t.Errorf("it waits because %+v", r)
	}
	if r, _ := m.Why(2, now); r.Code != schedule.CodeNever || !strings.Contains(r.Text, "7 slots") {
		t.Errorf("seven slots on three nodes of two: %+v", r)
	}
	if n := m.Wants("two"); n != 0 {
		t.Errorf("%d nodes are wanted for everybody", n)
	}
	if got := m.WantsFresh("two", 1, 0); len(got) != 0 {
		t.Errorf("half a gang's nodes are made: %+v", got)
	}
	if got := m.WantsFresh("two", 3, 0); !slices.Equal(got, []schedule.Wanted{{ID: 1, Nodes: 2}}) {
		t.Errorf("wanted: %+v", got)
	}
	m.SetNode(schedule.Node{Name: "a", Pool: "two", Slots: 2, For: 1})
	if got := m.WantsFresh("two", 2, 0); !slices.Equal(got, []schedule.Wanted{{ID: 1, Nodes: 1}}) {
		t.Errorf("wanted beside the first: %+v", got)
	}
	m.SetNode(schedule.Node{Name: "b", Pool: "two", Slots: 2, For: 1})
	m.Submit(schedule.Job{ID: 3, Pool: "two", Queued: now, Ask: schedule.Ask{NP: 1}})
	for _, p := range m.Decide(now).Start {
		for _, s := range p.Shares {
			if (p.ID == 1) == (s.Node == "warm") {
				t.Errorf("job %d is on node %s", p.ID, s.Node)
			}
		}
	}
	if m.Running() != 2 || !m.Knows(1) || !m.Knows(2) || m.Knows(9) {
		t.Errorf("%d jobs run", m.Running())
	}
}

// TestBesideNodesOfOthers: a pool has no room but for nodes of one job. Others wait until those end, and it is not said
// that they never run.
func TestBesideNodesOfOthers(t *testing.T) {
	now := time.Unix(1000, 0)
	m := schedule.New(0)
	m.SetSpare("two", 0, 2, schedule.Node{Slots: 1})
	m.SetNode(schedule.Node{Name: "a", Pool: "two", Slots: 1, For: 1})
	m.SetNode(schedule.Node{Name: "b", Pool: "two", Slots: 1, For: 1})
	m.Submit(schedule.Job{ID: 1, Pool: "two", Queued: now, Ask: schedule.Ask{NP: 2, For: 1}})
	m.Submit(schedule.Job{ID: 2, Pool: "two", Queued: now, Ask: schedule.Ask{NP: 2}})
	m.Submit(schedule.Job{ID: 3, Pool: "two", Queued: now, Ask: schedule.Ask{NP: 3}})
	m.Submit(schedule.Job{ID: 4, Pool: "two", Queued: now, Ask: schedule.Ask{NP: 2, For: 4}})
	if got := m.Decide(now).Start; len(got) != 1 || got[0].ID != 1 {
		t.Fatalf("started %+v", got)
	}
	for id, code := range map[int64]string{2: schedule.CodeNodes, 3: schedule.CodeNever, 4: schedule.CodeNodes} {
		if r, ok := m.Why(id, now); !ok || r.Code != code {
			t.Errorf("job %d waits because %+v, not %s", id, r, code)
		}
	}
}
