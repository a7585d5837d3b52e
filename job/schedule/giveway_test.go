package schedule

import (
	"slices"
	"testing"
	"time"
)

// TestAHeadThatWaitsForQuotaStopsNobodyElse: it has its room, and others who ask for the same have what is left.
func TestAHeadThatWaitsForQuotaStopsNobodyElse(t *testing.T) {
	m := cluster(8)
	other(m, 4)
	m.SetQuota("q", Quota{Slots: 4, Max: 4})
	submit(m, 1, Ask{NP: 8})
	wantStarted(t, m.Decide(t0), 1)
	submit(m, 2, Ask{NP: 4}, of("q"), priority(90))
	m.Decide(after(time.Second))
	submit(m, 3, Ask{NP: 4, Limit: 10 * time.Hour}, of("q"), in("z"))
	wantStarted(t, m.Decide(after(2*time.Second)), 3)
	m.Ended(1, after(time.Minute))
	submit(m, 4, Ask{NP: 4})
	submit(m, 5, Ask{NP: 4})
	wantStarted(t, m.Decide(after(time.Minute)), 4)
	if r, _ := m.Why(5, after(time.Minute)); r.Code != CodeTurn {
		t.Errorf("%+v", r)
	}
	m.Ended(3, after(time.Hour))
	wantStarted(t, m.Decide(after(time.Hour)), 2)
}

// drive carries decisions out, at once, until one has nothing to do; no job ends but those that are drained, which
// queue again. It fails where that never comes.
func drive(t *testing.T, m *Machine, now time.Time) (runs []int64) {
	t.Helper()
	for range 10 {
		d := m.Decide(now)
		if d.Empty() {
			return runs
		}
		for _, p := range d.Start {
			if slices.Contains(d.Preempt, p.ID) {
				t.Fatalf("job %d starts and is drained: %+v", p.ID, d)
			}
			runs = append(runs, p.ID)
		}
		for _, p := range d.Shrink {
			m.Shrunk(p.ID, now)
		}
		for _, id := range d.Preempt {
			again := m.running[id].Job
			m.Ended(id, now)
			m.Submit(again)
			runs = slices.DeleteFunc(runs, func(one int64) bool { return one == id })
		}
		now = now.Add(time.Second)
	}
	t.Fatalf("it never comes to rest: %v run", runs)
	return nil
}

func wantRuns(t *testing.T, got []int64, want ...int64) {
	t.Helper()
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Fatalf("%v run, want %v", got, want)
	}
}

// TestWhoBorrowsDrainsNobodyWithinAQuota: whoever comes before it would have the room again at once.
func TestWhoBorrowsDrainsNobodyWithinAQuota(t *testing.T) {
	borrower := func(m *Machine, np int) {
		m.SetQuota("r", Quota{Slots: 1, Max: 5})
		submit(m, 1, Ask{NP: np}, of("r"), priority(90))
	}
	t.Run("without bounds", func(t *testing.T) {
		m := cluster(5)
		borrower(m, 5)
		submit(m, 2, Ask{NP: 5}, priority(10), preemptible)
		wantRuns(t, drive(t, m, t0), 2)
	})
	t.Run("elastic", func(t *testing.T) {
		m := cluster(5)
		borrower(m, 4)
		submit(m, 2, Ask{NP: 5, Min: 1}, priority(10))
		wantRuns(t, drive(t, m, t0), 2)
		if n := slots(m.Shares(2)); n != 5 {
			t.Errorf("it has %d slots left", n)
		}
	})
	t.Run("one that borrows too", func(t *testing.T) {
		m := cluster(5)
		m.SetQuota("s", Quota{Slots: 1, Max: 5})
		submit(m, 2, Ask{NP: 5}, of("s"), priority(10), preemptible)
		wantRuns(t, drive(t, m, t0), 2)
		borrower(m, 5)
		wantRuns(t, drive(t, m, t0), 1)
	})
	t.Run("one that would not borrow any more", func(t *testing.T) {
		m := cluster(5)
		m.SetQuota("s", Quota{Slots: 2, Max: 5})
		submit(m, 2, Ask{NP: 1}, of("s"), priority(10), preemptible)
		submit(m, 3, Ask{NP: 4}, of("s"), priority(20), preemptible)
		wantRuns(t, drive(t, m, t0), 2, 3)
		borrower(m, 5)
		wantRuns(t, drive(t, m, t0))
	})
	t.Run("of its own project", func(t *testing.T) {
		m := cluster(4)
		m.SetQuota("r", Quota{Slots: 1, Max: 5})
		submit(m, 2, Ask{NP: 1}, of("r"), priority(10), preemptible)
		wantRuns(t, drive(t, m, t0), 2)
		submit(m, 1, Ask{NP: 4}, of("r"), priority(90))
		wantRuns(t, drive(t, m, t0), 1)
	})
	t.Run("when it borrows nothing without them", func(t *testing.T) {
		m := cluster(8)
		m.SetQuota("r", Quota{Slots: 8, Max: 12})
		submit(m, 2, Ask{NP: 4}, of("r"), priority(10), preemptible)
		submit(m, 3, Ask{NP: 4}, priority(10), preemptible)
		wantRuns(t, drive(t, m, t0), 2, 3)
		submit(m, 1, Ask{NP: 8}, of("r"), priority(90))
		wantRuns(t, drive(t, m, t0), 1)
	})
}

// TestQuotaThatIsMadeIsKept: a job of an earlier pool gives its project's quota to a more important one of a later
// pool, and does not take it back when it queues again; where both come at once it does not start at all.
func TestQuotaThatIsMadeIsKept(t *testing.T) {
	small := func(m *Machine) { submit(m, 1, Ask{NP: 1}, of("q"), priority(10), preemptible) }
	large := func(m *Machine) { submit(m, 2, Ask{NP: 4}, of("q"), priority(90), in("z")) }
	bounded := func() *Machine {
		m := cluster(4)
		other(m, 4)
		m.SetQuota("q", Quota{Slots: 4, Max: 4})
		return m
	}
	t.Run("both at once", func(t *testing.T) {
		m := bounded()
		small(m)
		large(m)
		wantStarted(t, m.Decide(t0), 2)
		wantRuns(t, drive(t, m, t0))
	})
	t.Run("one runs", func(t *testing.T) {
		m := bounded()
		small(m)
		wantRuns(t, drive(t, m, t0), 1)
		large(m)
		wantRuns(t, drive(t, m, t0), 2)
	})
	t.Run("an elastic one begins with less", func(t *testing.T) {
		m := bounded()
		submit(m, 1, Ask{NP: 3, Min: 1}, of("q"), priority(10))
		submit(m, 2, Ask{NP: 3}, of("q"), priority(90), in("z"))
		d := m.Decide(t0)
		wantStarted(t, d, 1, 2)
		wantShares(t, "it begins with", d.Start[0].Shares, Share{"a", 1})
		if len(d.Shrink) != 0 {
			t.Errorf("%+v", d)
		}
	})
	t.Run("until it lacks room", func(t *testing.T) {
		m := bounded()
		small(m)
		wantRuns(t, drive(t, m, t0), 1)
		large(m)
		d := m.Decide(after(time.Second))
		if !slices.Equal(d.Preempt, []int64{1}) {
			t.Fatalf("%+v, want job 1 to be drained", d)
		}
		submit(m, 3, Ask{NP: 4}, in("z"), priority(95))
		submit(m, 4, Ask{NP: 4}, in("z"), priority(94))
		wantStarted(t, m.Decide(after(2*time.Second)), 3)
		m.Ended(1, after(3*time.Second))
		small(m)
		wantStarted(t, m.Decide(after(3*time.Second)), 1)
	})
}

// TestNobodyGivesWayToAHeadThatIsNone: job 5 would be back-filled behind job 3, and count for its project: job 4 would
// be the head then, and jobs 2 and 5 give way to it. Job 5 has not begun yet, so job 3 stays the head, and job 2 as it
// is.
func TestNobodyGivesWayToAHeadThatIsNone(t *testing.T) {
	for name, two := range map[string]Ask{
		"preemptible": {NP: 2, Limit: 3 * time.Minute},
		"elastic":     {NP: 2, Min: 1, Limit: 3 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			m := cluster(7)
			m.SetQuota("b", Quota{Slots: 10})
			submit(m, 1, Ask{NP: 2, Limit: time.Hour}, priority(90))
			submit(m, 2, two, of("a"), priority(10), func(j *Job) { j.Preemptible = two.Min == 0 })
			wantRuns(t, drive(t, m, t0), 1, 2)
			submit(m, 3, Ask{NP: 7}, of("b"), priority(90))
			submit(m, 4, Ask{NP: 4}, of("a"), priority(90))
			submit(m, 5, Ask{NP: 3, Limit: time.Minute}, of("b"), priority(20), preemptible)
			d := m.Decide(after(time.Second))
			if !d.Empty() {
				t.Errorf("%+v", d)
			}
			timed(t, d, "p8", 3, after(time.Hour))
		})
	}
}
