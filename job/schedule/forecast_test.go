package schedule

import (
	"testing"
	"time"
)

// TestExpect: a job starts when those before it have taken as long as they may; where one has no limit nobody knows.
func TestExpect(t *testing.T) {
	m := cluster(4)
	submit(m, 1, Ask{NP: 4, Limit: time.Minute})
	m.Decide(after(time.Second))
	submit(m, 2, Ask{NP: 2, Limit: 10 * time.Minute})
	submit(m, 3, Ask{NP: 2, Limit: 20 * time.Minute})
	submit(m, 4, Ask{NP: 3, Limit: time.Hour})
	submit(m, 5, Ask{NP: 9})
	submit(m, 6, Ask{NP: 1})
	submit(m, 7, Ask{NP: 4})
	m.SetQuota("q", Quota{Slots: 1, Max: 1})
	submit(m, 8, Ask{NP: 2, Limit: time.Second}, of("q"), priority(95))
	submit(m, 9, Ask{NP: 1, Limit: time.Second}, of("r"), priority(95))
	m.SetQuota("r", Quota{Slots: 4, Max: 4})
	m.Started(Job{ID: 10, Pool: "other", Project: "r", Ask: Ask{NP: 4}}, []Share{{"y", 4}}, t0, t0)
	now := after(2 * time.Second)
	m.Decide(now)
	begun := after(time.Second)
	for _, c := range []struct {
		id   int64
		want time.Duration // after the first has begun
	}{
		{2, time.Minute},
		{3, time.Minute},
		{4, 21 * time.Minute},
		{6, 21 * time.Minute}, // beside the one before it; 5 never runs
		{7, -1},               // 6 has no limit
		{5, -1},
		{8, -1}, // its quota never holds it
		{9, -1}, // its quota does not let it
		{1, -1}, // it runs
	} {
		at, known := m.Expect(c.id, now)
		if known != (c.want >= 0) || known && !at.Equal(begun.Add(c.want)) {
			t.Errorf("job %d is expected %v after the first, %v; want %v", c.id, at.Sub(begun), known, c.want)
		}
	}
	for id := range int64(forecastPlaces) {
		submit(m, 100+id, Ask{NP: 1, Limit: time.Second}, priority(90))
	}
	if at, known := m.Expect(6, now); known {
		t.Errorf("of the 38th it is said that it starts at %v", at)
	}
}
