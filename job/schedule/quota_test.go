package schedule

import (
	"strings"
	"testing"
	"time"
)

// TestALargeJobOfABoundedProject: small jobs of its project come without end, and one that needs the whole quota begins
// as soon as those end that ran when it came, whether the quota is the project's own or in part borrowed.
func TestALargeJobOfABoundedProject(t *testing.T) {
	for _, q := range []Quota{{Slots: 4, Max: 4}, {Slots: 2, Max: 4}, {Slots: 4, Max: 8}} {
		m := cluster(4, 4)
		m.SetQuota("q", q)
		next := int64(1000)
		stream := func() {
			for range 2 {
				next++
				submit(m, next, Ask{NP: 1, Limit: 2 * time.Minute}, of("q"), priority(10))
			}
		}
		runs := map[int64]time.Time{}
		begun := map[int64]bool{}
		for minute := range 100 {
			now := after(time.Duration(minute) * time.Minute)
			for id, end := range runs {
				if !end.After(now) {
					m.Ended(id, now)
					delete(runs, id)
				}
			}
			if stream(); minute == 5 {
				submit(m, 1, Ask{NP: 4, Limit: time.Minute}, of("q"), priority(90))
			}
			for _, p := range m.Decide(now).Start {
				begun[p.ID] = true
				runs[p.ID] = now.Add(time.Minute + time.Duration(p.ID%2)*time.Minute)
			}
			if minute < 5 || begun[1] {
				continue
			}
			if minute > 7 {
				t.Fatalf("%+v: it waits %d min, and %d others were let through", q, minute-5, len(begun))
			}
		}
		if len(begun) < 100 {
			t.Errorf("%+v: %d jobs began in all", q, len(begun))
		}
	}
}

// TestAnotherTakesWhatOneBorrows: a job that can only borrow keeps nothing of what is its project's own while somebody
// within a quota waits, for it does not start before that one.
func TestAnotherTakesWhatOneBorrows(t *testing.T) {
	m := cluster(4)
	m.SetQuota("q", Quota{Slots: 2, Max: 4})
	submit(m, 1, Ask{NP: 2, Limit: time.Hour})
	submit(m, 2, Ask{NP: 1, Limit: time.Minute}, of("q"))
	wantStarted(t, m.Decide(t0), 1, 2)
	submit(m, 3, Ask{NP: 4}, of("q"), priority(90))
	submit(m, 4, Ask{NP: 4, Limit: time.Hour})
	submit(m, 5, Ask{NP: 1, Limit: time.Minute}, of("q"))
	wantStarted(t, m.Decide(t0), 5)
}

// TestAHeadKeepsItsQuota: a head is promised a start, and no other job of its project uses up the quota that it needs
// then, also where it would end in time.
func TestAHeadKeepsItsQuota(t *testing.T) {
	m := cluster(8)
	m.SetQuota("q", Quota{Slots: 4, Max: 4})
	submit(m, 1, Ask{NP: 6, Limit: 10 * time.Minute})
	submit(m, 2, Ask{NP: 1}, of("q"))
	wantStarted(t, m.Decide(t0), 1, 2)
	submit(m, 3, Ask{NP: 3}, of("q"))
	submit(m, 4, Ask{NP: 1}, of("q"))
	submit(m, 5, Ask{NP: 1, Limit: time.Minute}, of("q"))
	submit(m, 6, Ask{NP: 1, Limit: time.Minute})
	d := m.Decide(after(time.Second))
	wantStarted(t, d, 6)
	if len(d.Promises) != 1 || d.Promises[0].ID != 3 || !d.Promises[0].At.Equal(after(10*time.Minute)) {
		t.Fatalf("promises %+v, want job 3 in ten minutes", d.Promises)
	}
	if r, _ := m.Why(4, after(time.Second)); r.Code != CodeQuota || !strings.Contains(r.Text, "project q may have 4 slots, and keeps 3 of them for job 3: this job needs 1 slot beside that") {
		t.Errorf("%+v", r)
	}
	m.Ended(6, after(time.Minute))
	m.Ended(1, after(10*time.Minute))
	wantStarted(t, m.Decide(after(10*time.Minute)), 3)
}

// TestWhatIsNotKeptAnyMoreIsGiven: quota is kept from a short job, until one that begins in the same decision puts off
// the one for whom it is kept. The short one begins in that decision too: no other need come soon.
func TestWhatIsNotKeptAnyMoreIsGiven(t *testing.T) {
	m := cluster(8)
	m.SetQuota("q", Quota{Slots: 4, Max: 6})
	submit(m, 1, Ask{NP: 2}, of("q"))
	wantStarted(t, m.Decide(t0), 1)
	submit(m, 2, Ask{NP: 2, Limit: 9 * time.Minute}, of("q"), priority(90))
	submit(m, 3, Ask{NP: 4}, of("q"))
	submit(m, 4, Ask{NP: 2, Limit: 6 * time.Minute}, of("q"), priority(10))
	wantStarted(t, m.Decide(t0), 2, 4)
}

// TestAPoolWithoutNodesKeepsNoQuota: a job whose pool cannot make nodes now keeps nothing of its project's quota from
// jobs of other pools.
func TestAPoolWithoutNodesKeepsNoQuota(t *testing.T) {
	m := cluster(4)
	m.SetQuota("q", Quota{Slots: 4, Max: 4})
	m.SetSpare("cloud", 1, 1, Node{Slots: 4})
	m.Stall("cloud", after(time.Minute), "no credit")
	submit(m, 1, Ask{NP: 4}, of("q"), priority(90), func(j *Job) { j.Pool = "cloud" })
	submit(m, 2, Ask{NP: 2}, of("q"))
	submit(m, 3, Ask{NP: 2}, of("q"))
	wantStarted(t, m.Decide(t0), 2, 3)
}

func in(pool string) func(*Job) { return func(j *Job) { j.Pool = pool } }

// other adds a pool of one node.
func other(m *Machine, slots int) {
	m.SetNode(Node{Name: "z", Pool: "z", Slots: slots})
}

// TestAProjectMakesRoomInItsOwnQuota: a job that its project's quota alone holds back has elastic jobs of the project
// give way at their next commit, in whatever pool they run, then preemptible ones of a lower priority: the least
// important first, and no more than it needs.
func TestAProjectMakesRoomInItsOwnQuota(t *testing.T) {
	m := cluster(8)
	other(m, 4)
	m.SetQuota("q", Quota{Slots: 6, Max: 6})
	submit(m, 1, Ask{NP: 3, Min: 1}, of("q"), priority(10))
	submit(m, 2, Ask{NP: 2}, of("q"), priority(10), preemptible)
	submit(m, 3, Ask{NP: 1, Min: 1}, of("q"), in("z"))
	wantStarted(t, m.Decide(t0), 1, 2, 3)
	submit(m, 4, Ask{NP: 1}, of("q"), in("z"))
	d := m.Decide(after(time.Second))
	if len(d.Shrink) != 1 || len(d.Preempt) != 0 {
		t.Fatalf("%+v, want job 1 to shrink", d)
	}
	wantShares(t, "it keeps", d.Shrink[0].Shares, Share{"a", 2})
	r, _ := m.Why(4, after(time.Second))
	if r.Code != CodeQuota || !strings.HasSuffix(r.Text, "this job needs 1 slot; job 1 gives 1 away at its next commit") {
		t.Errorf("%+v", r)
	}
	if d := m.Decide(after(2 * time.Second)); !d.Empty() {
		t.Fatalf("%+v: it was told already", d)
	}
	m.Shrunk(1, after(3*time.Second))
	wantStarted(t, m.Decide(after(3*time.Second)), 4)

	submit(m, 5, Ask{NP: 3}, of("q"))
	d = m.Decide(after(4 * time.Second))
	if len(d.Shrink) != 1 || d.Shrink[0].ID != 1 || len(d.Preempt) != 1 || d.Preempt[0] != 2 {
		t.Fatalf("%+v, want job 1 to shrink and job 2 to be drained", d)
	}
	m.Shrunk(1, after(5*time.Second))
	if d := m.Decide(after(5 * time.Second)); !d.Empty() {
		t.Fatalf("%+v: job 2 is still there", d)
	}
	m.Ended(2, after(6*time.Second))
	wantStarted(t, m.Decide(after(6*time.Second)), 5)
	if d := m.Decide(after(7 * time.Second)); !d.Empty() {
		t.Fatalf("%+v: nobody waits", d)
	}
}

// TestNobodyGivesWayForNothing: where the quota is not all that holds a job back, where all that may give way would not
// do, for a job of no higher priority, and for another project's quota.
func TestNobodyGivesWayForNothing(t *testing.T) {
	for name, set := range map[string]func(m *Machine){
		"no room":      func(m *Machine) { submit(m, 5, Ask{NP: 4}, of("q"), priority(90), in("z")) },
		"too little":   func(m *Machine) { submit(m, 5, Ask{NP: 6}, of("q"), priority(90)) },
		"lower":        func(m *Machine) { submit(m, 5, Ask{NP: 1}, of("q"), priority(5)) },
		"no higher":    func(m *Machine) { submit(m, 5, Ask{NP: 3}, of("q"), priority(10)) },
		"more than is": func(m *Machine) { submit(m, 5, Ask{NP: 7}, of("q"), priority(90)) },
	} {
		m := cluster(16)
		other(m, 2)
		m.SetQuota("q", Quota{Slots: 6, Max: 6})
		submit(m, 1, Ask{NP: 3, Min: 2}, of("q"), priority(10))
		submit(m, 2, Ask{NP: 2}, of("q"), priority(10), preemptible)
		submit(m, 3, Ask{NP: 1}, of("q"), priority(10))
		submit(m, 4, Ask{NP: 2, Min: 1})
		wantStarted(t, m.Decide(t0), 4, 1, 2, 3)
		set(m)
		if d := m.Decide(after(time.Second)); !d.Empty() {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestAHeadOfWhichNobodyKnowsWhenItStarts leaves its project's quota to jobs of other pools that have a time limit, and
// to no others. When there is room for it sooner than it has its quota back, it stays the head of its pool until then,
// and no job that comes later has what it needs, of the one or the other.
func TestAHeadOfWhichNobodyKnowsWhenItStarts(t *testing.T) {
	m := cluster(4)
	other(m, 8)
	m.SetQuota("q", Quota{Slots: 4, Max: 4})
	submit(m, 1, Ask{NP: 4})
	wantStarted(t, m.Decide(t0), 1)
	submit(m, 2, Ask{NP: 4}, of("q"), priority(90))
	wantStarted(t, m.Decide(after(time.Second)))
	submit(m, 3, Ask{NP: 2}, of("q"), in("z"))
	submit(m, 4, Ask{NP: 2, Limit: 10 * time.Minute}, of("q"), in("z"))
	submit(m, 5, Ask{NP: 2, Limit: 10 * time.Minute}, of("q"))
	wantStarted(t, m.Decide(after(2*time.Second)), 4)

	m.Ended(1, after(time.Minute))
	submit(m, 6, Ask{NP: 1})
	submit(m, 7, Ask{NP: 1, Limit: time.Minute})
	submit(m, 8, Ask{NP: 1, Limit: time.Hour}, of("q"), in("z"))
	d := m.Decide(after(time.Minute))
	wantStarted(t, d, 7)
	if len(d.Promises) != 1 || d.Promises[0].ID != 2 || !d.Promises[0].At.Equal(after(10*time.Minute+2*time.Second)) {
		t.Fatalf("promises %+v, want job 2 when job 4 has ended", d.Promises)
	}
	if r, _ := m.Why(2, after(time.Minute)); r.Code != CodeQuota || r.Start.IsZero() {
		t.Errorf("%+v", r)
	}
	m.Ended(7, after(2*time.Minute))
	m.Ended(4, after(5*time.Minute))
	wantStarted(t, m.Decide(after(5*time.Minute)), 2)
}

// TestAHeadThatIsForetoldKeepsItsQuotaFromAllPools: there is somebody to wait for.
func TestAHeadThatIsForetoldKeepsItsQuotaFromAllPools(t *testing.T) {
	m := cluster(4)
	other(m, 8)
	m.SetQuota("q", Quota{Slots: 4, Max: 4})
	submit(m, 1, Ask{NP: 4, Limit: 5 * time.Minute})
	wantStarted(t, m.Decide(t0), 1)
	submit(m, 2, Ask{NP: 4}, of("q"), priority(90))
	wantStarted(t, m.Decide(after(time.Second)))
	submit(m, 4, Ask{NP: 2, Limit: 10 * time.Minute}, of("q"), in("z"))
	wantStarted(t, m.Decide(after(2*time.Second)))
	m.Ended(1, after(5*time.Minute))
	wantStarted(t, m.Decide(after(5*time.Minute)), 2)
}
