package schedule

import (
	"testing"
	"time"
)

func timed(t *testing.T, d Decision, pool string, id int64, at time.Time) {
	t.Helper()
	for _, p := range d.Promises {
		if p.Pool == pool {
			if p.ID != id || !p.At.Equal(at) {
				t.Errorf("pool %s promises %+v, want job %d at %v", pool, p, id, at)
			}
			return
		}
	}
	t.Errorf("pool %s promises nothing, want job %d at %v", pool, id, at)
}

// TestRoomThatHasComeIsKnownInAllPools: nobody knew when the head of a later pool starts. When there is room for it, no
// job of an earlier pool that is walked along first has its quota.
func TestRoomThatHasComeIsKnownInAllPools(t *testing.T) {
	m := cluster(4)
	other(m, 2)
	m.SetQuota("q", Quota{Slots: 2, Max: 2})
	submit(m, 1, Ask{NP: 2}, in("z"))
	wantStarted(t, m.Decide(t0), 1)
	submit(m, 2, Ask{NP: 2}, of("q"), priority(90), in("z"))
	wantStarted(t, m.Decide(after(time.Second)))
	m.Ended(1, after(time.Minute))
	submit(m, 3, Ask{NP: 2, Limit: time.Hour}, of("q"), priority(10))
	wantStarted(t, m.Decide(after(time.Minute)), 2)
}

// TestAHeadLeavesItsQuotaToAMoreImportantOne: two heads of a project are promised starts in two pools. The less
// important one, whose room comes first, does not put off the other, but where it has ended by then.
func TestAHeadLeavesItsQuotaToAMoreImportantOne(t *testing.T) {
	for _, limit := range []time.Duration{time.Hour, 2 * time.Minute} {
		m := cluster(4)
		other(m, 4)
		m.SetQuota("q", Quota{Slots: 4, Max: 4})
		submit(m, 1, Ask{NP: 4, Limit: 5 * time.Minute})
		submit(m, 2, Ask{NP: 4, Limit: 10 * time.Minute}, in("z"))
		wantStarted(t, m.Decide(t0), 1, 2)
		submit(m, 3, Ask{NP: 4, Limit: limit}, of("q"), priority(10))
		m.Decide(after(time.Second))
		submit(m, 4, Ask{NP: 4}, of("q"), priority(90), in("z"))
		timed(t, m.Decide(after(2*time.Second)), "z", 4, after(10*time.Minute))
		m.Ended(1, after(5*time.Minute))
		d := m.Decide(after(5 * time.Minute))
		timed(t, d, "z", 4, after(10*time.Minute))
		if limit == time.Hour {
			wantStarted(t, d)
			if r, _ := m.Why(3, after(5*time.Minute)); r.Code != CodeQuota {
				t.Errorf("%+v", r)
			}
		}
		m.Ended(2, after(10*time.Minute))
		wantStarted(t, m.Decide(after(10*time.Minute)), 4)
	}
}

// TestGrowingLeavesAHeadItsTurn: a job that grows in one pool does not make the head of another one borrow.
func TestGrowingLeavesAHeadItsTurn(t *testing.T) {
	m := cluster(4)
	other(m, 2)
	m.SetQuota("q", Quota{Slots: 3})
	submit(m, 1, Ask{NP: 4, Min: 1}, of("q"))
	submit(m, 2, Ask{NP: 3, Limit: time.Minute}, priority(90))
	submit(m, 3, Ask{NP: 2, Limit: 5 * time.Minute}, in("z"))
	wantStarted(t, m.Decide(t0), 2, 1, 3)
	submit(m, 4, Ask{NP: 2}, of("q"), in("z"))
	m.Decide(after(time.Second))
	m.Ended(2, after(time.Minute))
	if d := m.Decide(after(time.Minute)); len(d.Grow) != 0 {
		t.Errorf("%+v: job 4 would borrow then", d.Grow)
	}
}

// TestABackFillIsNotLost: who was started behind a head that is none in the end is started behind the one there is,
// where that costs this one nothing. Else its slots would be idle until something else happens.
func TestABackFillIsNotLost(t *testing.T) {
	m := cluster(4)
	other(m, 2)
	m.SetQuota("q", Quota{Slots: 4, Max: 4})
	submit(m, 1, Ask{NP: 2}, in("z"))
	submit(m, 2, Ask{NP: 2, Limit: time.Hour})
	wantStarted(t, m.Decide(t0), 2, 1)
	submit(m, 3, Ask{NP: 2}, of("q"), priority(95), in("z"))
	wantStarted(t, m.Decide(after(time.Second)))
	submit(m, 4, Ask{NP: 4, Limit: time.Hour}, of("q"), priority(90))
	submit(m, 5, Ask{NP: 4}, priority(80))
	submit(m, 6, Ask{NP: 2, Limit: 10 * time.Minute}, priority(50))
	wantStarted(t, m.Decide(after(2*time.Second)), 6)
}
