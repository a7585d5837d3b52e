package schedule_test

import (
	"strings"
	"testing"
	"time"

	"hora/job/schedule"
)

// TestSpareNodes: a pool without a node is wanted nodes for what it can hold, and says never to what it cannot.
func TestSpareNodes(t *testing.T) {
	now := time.Unix(1000, 0)
	m := schedule.New(0)
	m.SetSpare("two", 2, 2, schedule.Node{Slots: 2})
	m.Submit(schedule.Job{ID: 1, Pool: "two", Queued: now, Ask: schedule.Ask{NP: 5}})
	m.Decide(now)
	if r, _ := m.Why(1, now); r.Code != schedule.CodeNever || !strings.Contains(r.Text, "4 slots on 2 nodes in all") || m.Wants("two") != 0 {
		t.Errorf("five slots in a pool of four: %+v, and it wants %d nodes", r, m.Wants("two"))
	}
	m.SetSpare("ten", 10, 10, schedule.Node{Slots: 2})
	m.Submit(schedule.Job{ID: 3, Pool: "ten", Queued: now, Ask: schedule.Ask{NP: 3}})
	if m.Decide(now); m.Wants("ten") != 2 {
		t.Errorf("three slots on nodes of two want %d nodes", m.Wants("ten"))
	}
	m.Submit(schedule.Job{ID: 2, Pool: "two", Queued: now, Ask: schedule.Ask{NP: 3}})
	m.Decide(now)
	if r, _ := m.Why(2, now); r.Code != schedule.CodeNodes || m.Wants("two") != 2 {
		t.Errorf("three slots in a pool of four: %+v, and it wants %d nodes", r, m.Wants("two"))
	}
}

// TestNoneIsMadeForOthers: while the room is taken by nodes that may come and are not of the pool's making, who waits
// is not told that one is made.
func TestNoneIsMadeForOthers(t *testing.T) {
	now := time.Unix(1000, 0)
	m := schedule.New(0)
	m.SetSpare("two", 1, 1, schedule.Node{Slots: 2})
	m.Await("two", "two-1 may come")
	m.Submit(schedule.Job{ID: 1, Pool: "two", Queued: now, Ask: schedule.Ask{NP: 2}})
	m.Submit(schedule.Job{ID: 2, Pool: "two", Queued: now, Ask: schedule.Ask{NP: 2, For: 2}})
	m.Decide(now)
	for id, want := range map[int64]string{
		1: "pool two makes no node for it now: it needs 2 slots at once; two-1 may come",
		2: "pool two makes nodes for it alone, as soon as it may have more of its 1: it needs 2 slots at once; none is made now: two-1 may come",
	} {
		if r, _ := m.Why(id, now); r.Code != schedule.CodeNodes || r.Text != want {
			t.Errorf("job %d: %+v", id, r)
		}
	}
	m.Await("two", "")
	if r, _ := m.Why(1, now); !strings.Contains(r.Text, "pool two gets another node for it") {
		t.Errorf("%+v", r)
	}
}
