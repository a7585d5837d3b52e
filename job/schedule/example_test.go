package schedule_test

import (
	"fmt"
	"time"

	"hora/job/schedule"
)

// A program of yours plans with it, and no server: it says what there is, what is asked for and what has ended, and the
// clock is its own. Here three trainings have an evening on two machines, and each takes as long as it may.
func Example() {
	now := time.Date(2026, 9, 1, 18, 0, 0, 0, time.UTC)
	m := schedule.New(0)
	m.SetNode(schedule.Node{Name: "one", Pool: "lab", Slots: 4})
	m.SetNode(schedule.Node{Name: "two", Pool: "lab", Slots: 4})
	asks := []schedule.Ask{
		{NP: 6, Limit: time.Hour},
		{Nodes: 2, PerNode: 4, Limit: 2 * time.Hour}, // all of both machines
		{NP: 2, Limit: 30 * time.Minute},             // it fits beside the first, and is gone before that
	}
	for i, ask := range asks {
		m.Submit(schedule.Job{ID: int64(i) + 1, Pool: "lab", Project: "speech", Priority: 50, Queued: now, Ask: ask})
	}
	ends := map[int64]time.Time{}
	for m.Waiting() > 0 || m.Running() > 0 {
		for _, p := range m.Decide(now).Start {
			fmt.Printf("%s job %d starts on %v\n", now.Format("15:04"), p.ID, p.Shares)
			ends[p.ID] = now.Add(asks[p.ID-1].Limit)
		}
		if why, waits := m.Why(2, now); waits {
			fmt.Printf("%s job 2 waits because %q\n", now.Format("15:04"), why.Text)
		}
		if m.Running() == 0 {
			fmt.Println("what waits will never run")
			return
		}
		ended := int64(0)
		for id, at := range ends {
			if ended == 0 || at.Before(ends[ended]) {
				ended = id
			}
		}
		now = ends[ended]
		delete(ends, ended)
		m.Ended(ended, now)
	}
	fmt.Printf("%s all have ended\n", now.Format("15:04"))
	// Output:
	// 18:00 job 1 starts on [{one 4} {two 2}]
	// 18:00 job 3 starts on [{two 2}]
	// 18:00 job 2 waits because "first in pool lab: needs 4 slots on each of 2 nodes at once, none is free; job 1 ends in about 60 min at the latest"
	// 18:30 job 2 waits because "first in pool lab: needs 4 slots on each of 2 nodes at once, 2 are free; job 1 ends in about 30 min at the latest"
	// 19:00 job 2 starts on [{one 4} {two 4}]
	// 21:00 all have ended
}
