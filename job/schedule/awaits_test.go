package schedule

import (
	"testing"
	"time"
)

// wantWhy holds the reasons of jobs.
func wantWhy(t *testing.T, m *Machine, now time.Time, want map[int64]Reason) {
	t.Helper()
	for id, w := range want {
		if r, ok := m.Why(id, now); !ok || r.Code != w.Code || r.Text != w.Text {
			t.Errorf("job %d: %s %q\nwant %s %q", id, r.Code, r.Text, w.Code, w.Text)
		}
	}
}

// TestWhoIsWaitedFor: a reason names the job whose end makes the room, not just the first that ends, and tells of those
// before it where they take that room.
func TestWhoIsWaitedFor(t *testing.T) {
	m := cluster(4)
	submit(m, 1, Ask{NP: 1, Limit: time.Minute})
	submit(m, 2, Ask{NP: 3, Limit: time.Hour})
	m.Decide(t0)
	submit(m, 3, Ask{NP: 3, Limit: 2 * time.Hour})
	submit(m, 4, Ask{NP: 1, Limit: 5 * time.Hour})
	submit(m, 5, Ask{NP: 2})
	m.Decide(t0)
	wantWhy(t, m, t0, map[int64]Reason{
		3: {Code: CodeSlots, Text: "first in pool p8: needs 3 slots at once, none is free; job 2 ends in about 60 min at the latest"},
		4: {Code: CodeSlots, Text: "second in pool p8: needs 1 slot, none is free; job 2 ends in about 60 min at the latest"},
		5: {Code: CodeSlots, Text: "third in pool p8: needs 2 slots at once, none is free; job 3 is before it"},
	})
	m.Withdraw(3) // the head, before the next decision
	m.Ended(2, after(time.Minute))
	wantWhy(t, m, after(time.Minute), map[int64]Reason{4: {Code: CodeNext, Text: "first in pool p8: starts at once"}})

	m = cluster(2)
	submit(m, 1, Ask{NP: 1})
	submit(m, 2, Ask{NP: 1})
	m.Decide(t0)
	submit(m, 3, Ask{NP: 2})
	wantWhy(t, m, t0, map[int64]Reason{
		3: {Code: CodeSlots, Text: "first in pool p8: needs 2 slots at once, none is free; jobs 1 and 2 run without a time limit"},
	})
}

// TestOnlyWhatStartsIsPromised: until the next decision what others take that came just before counts too.
func TestOnlyWhatStartsIsPromised(t *testing.T) {
	m := cluster(4)
	submit(m, 1, Ask{NP: 2})
	submit(m, 2, Ask{NP: 1})
	submit(m, 3, Ask{NP: 2})
	submit(m, 4, Ask{NP: 1})
	promised := map[int64]Reason{
		1: {Code: CodeNext, Text: "first in pool p8: starts at once"},
		2: {Code: CodeNext, Text: "second in pool p8: starts at once"},
	}
	wantWhy(t, m, t0, promised)
	wantWhy(t, m, t0, map[int64]Reason{
		3: {Code: CodeSlots, Text: "third in pool p8: needs 2 slots at once, and job 2, which starts before it, takes what is free"},
		4: {Code: CodeTurn, Text: "fourth in pool p8: job 3, which needs 2 slots at once, is before it, and whether it starts too is decided in a moment"},
	})
	wantStarted(t, m.Decide(t0), 1, 2, 4)
}

// TestWhatNeverStartsHasNoPlace: jobs that no node will ever hold count in nobody's place.
func TestWhatNeverStartsHasNoPlace(t *testing.T) {
	m := cluster(2)
	submit(m, 1, Ask{NP: 2})
	m.Decide(t0)
	m.SetQuota("q", Quota{Slots: 1, Max: 1})
	submit(m, 2, Ask{NP: 3})
	submit(m, 3, Ask{NP: 2}, of("q"))
	submit(m, 4, Ask{NP: 1, GPUs: 1}, priority(90))
	submit(m, 5, Ask{NP: 1})
	for range 2 {
		if r, _ := m.Why(5, t0); r.Place != 1 {
			t.Errorf("job 5 is number %d of those that may start: %s", r.Place, r.Text)
		}
		m.Decide(t0)
	}
	m.SetNode(Node{Name: "large", Pool: "p8", Slots: 3, GPUs: 1})
	if r, _ := m.Why(5, t0); r.Place != 3 {
		t.Errorf("with a node for two of them job 5 is number %d: %s", r.Place, r.Text)
	}
}
