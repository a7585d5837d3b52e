package schedule

import (
	"strings"
	"testing"
	"time"
)

var t0 = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return t0.Add(d) }

func cluster(nodes ...int) *Machine {
	m := New(0)
	for i, n := range nodes {
		m.SetNode(Node{Name: string(rune('a' + i)), Pool: "p8", Slots: n})
	}
	return m
}

func submit(m *Machine, id int64, a Ask, change ...func(*Job)) {
	j := Job{ID: id, Pool: "p8", Project: "default", Priority: 50, Queued: t0.Add(time.Duration(id) * time.Millisecond), Ask: a}
	for _, c := range change {
		c(&j)
	}
	m.Submit(j)
}

func of(name string) func(*Job) { return func(j *Job) { j.Project = name } }
func priority(n int) func(*Job) { return func(j *Job) { j.Priority = n } }
func preemptible(j *Job)        { j.Preemptible = true }

func started(d Decision) (ids []int64) {
	for _, p := range d.Start {
		ids = append(ids, p.ID)
	}
	return ids
}

func wantStarted(t *testing.T, d Decision, ids ...int64) {
	t.Helper()
	got := started(d)
	if len(got) != len(ids) {
		t.Fatalf("started %v, want %v", got, ids)
	}
	for i := range ids {
		if got[i] != ids[i] {
			t.Fatalf("started %v, want %v", got, ids)
		}
	}
}

func TestBackFillingNeverDelaysTheHead(t *testing.T) {
	m := cluster(8)
	submit(m, 41, Ask{NP: 5, Limit: 10 * time.Minute})
	wantStarted(t, m.Decide(t0), 41)
	submit(m, 42, Ask{NP: 8})
	submit(m, 43, Ask{NP: 2})                          // without a limit it would be in the way of 42
	submit(m, 44, Ask{NP: 2, Limit: 11 * time.Minute}) // and so would this
	submit(m, 45, Ask{NP: 2, Limit: 4 * time.Minute})
	d := m.Decide(after(5 * time.Minute))
	wantStarted(t, d, 45)
	if len(d.Promises) != 1 || d.Promises[0].ID != 42 || !d.Promises[0].At.Equal(after(10*time.Minute)) {
		t.Fatalf("promises %+v, want 42 in five minutes", d.Promises)
	}
	m.Ended(41, after(6*time.Minute))
	m.Ended(45, after(7*time.Minute))
	wantStarted(t, m.Decide(after(7*time.Minute)), 42)
}

func TestFairShareThenAge(t *testing.T) {
	m := cluster(2)
	for id := range int64(6) {
		submit(m, id+1, Ask{NP: 1}, of("large"))
	}
	submit(m, 10, Ask{NP: 1}, of("small"))
	wantStarted(t, m.Decide(t0), 1, 10)
	now := after(time.Hour)
	m.Ended(1, now)
	submit(m, 11, Ask{NP: 1}, of("third"))
	wantStarted(t, m.Decide(now), 11)
	if a, b := m.Used("large", now), m.Used("third", now); a < 3000 || b != 0 {
		t.Fatalf("an hour on one slot counts %v and nothing counts %v", a, b)
	}
	if used := m.Used("large", now.Add(DefaultHalfLife)); used < 1500 || used > 1800 {
		t.Fatalf("after a half-life %v of the use is left", used)
	}
}

func TestQuotasAndBorrowing(t *testing.T) {
	m := cluster(8)
	m.SetQuota("a", Quota{Slots: 2, Max: 4})
	for id := range int64(6) {
		submit(m, id+1, Ask{NP: 1}, of("a"))
	}
	submit(m, 10, Ask{NP: 2}, of("b"))
	wantStarted(t, m.Decide(t0), 1, 10, 2, 3, 4)
	r, _ := m.Why(5, t0)
	if r.Code != CodeQuota || !strings.Contains(r.Text, "project a has 4 of the 4 slots it may have") {
		t.Fatalf("%+v", r)
	}
}

func TestWholeGangsOnNodes(t *testing.T) {
	m := cluster(4, 8, 4)
	submit(m, 1, Ask{Nodes: 2, PerNode: 4})
	d := m.Decide(t0)
	wantStarted(t, d, 1)
	for _, s := range d.Start[0].Shares {
		if s.Node == "b" {
			t.Fatalf("%+v: the two small nodes fit better", d.Start[0].Shares)
		}
	}
	submit(m, 2, Ask{Nodes: 2, PerNode: 2})
	m.Decide(t0)
	r, _ := m.Why(2, t0)
	if want := "first in pool p8: needs 2 slots on each of 2 nodes at once, 8 are free, but not 2 on each of 2 nodes; job 1 runs without a time limit"; r.Text != want {
		t.Fatalf("%q\nwant %q", r.Text, want)
	}
}

func TestElasticGivesAwayAndGrowsBack(t *testing.T) {
	m := cluster(4)
	submit(m, 1, Ask{NP: 4, Min: 2})
	wantStarted(t, m.Decide(t0), 1)
	submit(m, 2, Ask{NP: 2})
	d := m.Decide(after(time.Minute))
	if len(d.Shrink) != 1 || d.Shrink[0].ID != 1 || slots(d.Shrink[0].Shares) != 2 || len(d.Start) != 0 {
		t.Fatalf("%+v, want job 1 to shrink to 2", d)
	}
	if r, _ := m.Why(2, after(time.Minute)); r.Code != CodeRoom || r.Text != "first in pool p8: needs 2 slots at once, and job 1 gives 2 away at its next commit" {
		t.Fatalf("%+v", r)
	}
	if d := m.Decide(after(time.Minute)); !d.Empty() {
		t.Fatalf("%+v: it was told already", d)
	}
	m.Shrunk(1, after(2*time.Minute))
	wantStarted(t, m.Decide(after(2*time.Minute)), 2)
	m.Ended(2, after(3*time.Minute))
	d = m.Decide(after(3 * time.Minute))
	if len(d.Grow) != 1 || slots(d.Grow[0].Shares) != 4 {
		t.Fatalf("%+v, want job 1 to grow to 4", d)
	}
}

func TestPreemptionTakesTheLeast(t *testing.T) {
	m := cluster(6)
	submit(m, 1, Ask{NP: 2}, preemptible, priority(10))
	submit(m, 2, Ask{NP: 2}, preemptible, priority(20))
	submit(m, 3, Ask{NP: 2}, priority(10)) // not preemptible
	wantStarted(t, m.Decide(t0), 2, 1, 3)
	submit(m, 4, Ask{NP: 2}, priority(20))
	d := m.Decide(t0)
	if len(d.Preempt) != 1 || d.Preempt[0] != 1 {
		t.Fatalf("preempted %v, want job 1 alone", d.Preempt)
	}
	if d := m.Decide(t0); !d.Empty() {
		t.Fatalf("%+v: room is on its way", d)
	}
	m.Ended(1, after(time.Second))
	submit(m, 1, Ask{NP: 2}, preemptible, priority(10))
	wantStarted(t, m.Decide(after(time.Second)), 4)
	submit(m, 5, Ask{NP: 6}, priority(90))
	if d := m.Decide(after(time.Second)); !d.Empty() {
		t.Fatalf("%+v: nobody is disturbed where it does not help", d)
	}
}

func TestReasons(t *testing.T) {
	m := cluster(4)
	m.SetNode(Node{Name: "z", Pool: "two", Slots: 2, Memory: 8 << 30})
	submit(m, 41, Ask{NP: 1, Limit: 4 * time.Minute})
	m.Decide(t0)
	other := func(j *Job) { j.Pool = "two" }
	submit(m, 50, Ask{NP: 4})
	submit(m, 51, Ask{NP: 4})
	submit(m, 52, Ask{NP: 4})
	submit(m, 53, Ask{NP: 1})
	submit(m, 60, Ask{NP: 1, GPUs: 1}, other)
	submit(m, 61, Ask{NP: 3}, other)
	submit(m, 62, Ask{NP: 1, Memory: 9 << 30}, other)
	submit(m, 63, Ask{NP: 1}, func(j *Job) { j.Pool = "none" })
	submit(m, 64, Ask{NP: 1, Node: "y"}, other)
	m.SetQuota("q", Quota{Slots: 2, Max: 3})
	submit(m, 65, Ask{NP: 4}, of("q"))
	m.SetNode(Node{Name: "w", Pool: "lab", Slots: 2})
	m.SetNode(Node{Name: "x", Pool: "lab", Slots: 4, Closed: true})
	lab := func(j *Job) { j.Pool = "lab" }
	submit(m, 66, Ask{NP: 5}, lab)
	submit(m, 67, Ask{NP: 1, Node: "x"}, lab, priority(10))
	submit(m, 68, Ask{NP: 7}, lab)
	m.SetSpare("cloud", 1, 1, Node{Slots: 2})
	m.Stall("cloud", t0.Add(time.Minute), "exit status 3: no quota")
	submit(m, 69, Ask{NP: 2}, func(j *Job) { j.Pool = "cloud" })
	m.Decide(t0)
	for id, want := range map[int64]Reason{
		50: {Code: CodeSlots, Text: "first in pool p8: needs 4 slots at once, 3 are free; job 41 ends in about 4 min at the latest"},
		52: {Code: CodeSlots, Text: "third in pool p8: needs 4 slots at once, 3 are free; job 50 is before it"},
		53: {Code: CodeTurn, Text: "fourth in pool p8: what is free is kept for job 50, which needs 4 slots at once and starts in about 4 min at the latest"},
		60: {Code: CodeNever, Text: "no node of pool two will ever have a GPU: submit it to a pool that has, or without --gpus-per-rank"},
		61: {Code: CodeNever, Text: "pool two will never hold it: it needs 3 slots at once, and the pool has 2 slots on 1 node in all: ask for fewer, or add nodes"},
		62: {Code: CodeNever, Text: "no node of pool two will ever have 9 GiB for one process: the largest has 8 GiB; ask for less with --memory"},
		63: {Code: CodeNodes, Text: "pool none has no node: it starts when one comes that holds 1 slot"},
		64: {Code: CodeNever, Text: "no node of pool two is called y: name one that is there, or leave --node out"},
		65: {Code: CodeNever, Text: "project q may have 3 slots at most, and this job needs 4 slots: ask for fewer, or have the quota raised with hora quota q --slots 2 --max 4"},
		66: {Code: CodeNodes, Text: "it needs 5 slots at once, and node x of pool lab is away: it starts when that is back"},
		67: {Code: CodeNodes, Text: "node x is away: it starts when that is back"},
		68: {Code: CodeNever, Text: "pool lab will never hold it: it needs 7 slots at once, and the pool has 6 slots on 2 nodes in all: ask for fewer, or add nodes"},
		69: {Code: CodeNodes, Text: "pool cloud gets another node for it: it needs 2 slots at once, and the pool may have 1 node more; making one has failed, and is tried again: exit status 3: no quota"},
	} {
		r, ok := m.Why(id, t0)
		if !ok || r.Code != want.Code || r.Text != want.Text {
			t.Errorf("job %d: %s %q\nwant %s %q", id, r.Code, r.Text, want.Code, want.Text)
		}
	}
}

func TestAJumpingClockChargesNothingTwice(t *testing.T) {
	m := cluster(1)
	submit(m, 1, Ask{NP: 1})
	m.Decide(after(time.Hour))
	m.Decide(t0)
	if used := m.Used("default", t0); used != 0 {
		t.Fatalf("used %v before any time has gone by", used)
	}
}

// TestWhatIsLentIsGivenBack: slots that a project owns and another has borrowed come back to it, whatever the priority
// of the jobs that have them, as soon as these may give way: an elastic one gives no more than is borrowed, and a
// preemptible one goes. Nobody gives way to one who would borrow, too.
func TestWhatIsLentIsGivenBack(t *testing.T) {
	for _, high := range []int{50, 90} {
		m := cluster(4)
		for _, name := range []string{"a", "b", "c"} {
			m.SetQuota(name, Quota{Slots: 2, Max: 4})
		}
		submit(m, 1, Ask{NP: 2}, of("a"), preemptible, priority(high))
		submit(m, 2, Ask{NP: 2}, of("a"), preemptible, priority(high))
		wantStarted(t, m.Decide(t0), 1, 2)
		submit(m, 3, Ask{NP: 3}, of("c"))
		if d := m.Decide(t0); !d.Empty() {
			t.Fatalf("priority %d: %+v: one who borrows has them, and the other would borrow too", high, d)
		}
		m.Withdraw(3)
		submit(m, 4, Ask{NP: 2}, of("b"))
		if d := m.Decide(t0); len(d.Preempt) != 1 || d.Preempt[0] != 2 {
			t.Fatalf("priority %d: preempted %v, want job 2, which has begun last", high, d.Preempt)
		}
		m.Ended(2, t0)
		submit(m, 2, Ask{NP: 2}, of("a"), preemptible, priority(high))
		wantStarted(t, m.Decide(t0), 4)
		submit(m, 5, Ask{NP: 2}, of("c"))
		if d := m.Decide(t0); !d.Empty() {
			t.Fatalf("priority %d: %+v: nobody borrows any more", high, d)
		}

		m = cluster(4)
		m.SetQuota("a", Quota{Slots: 2, Max: 4})
		m.SetQuota("b", Quota{Slots: 3, Max: 4})
		submit(m, 1, Ask{NP: 4, Min: 1}, of("a"), priority(high))
		wantStarted(t, m.Decide(t0), 1)
		submit(m, 2, Ask{NP: 2}, of("b"))
		d := m.Decide(t0)
		if len(d.Shrink) != 1 || slots(d.Shrink[0].Shares) != 2 {
			t.Fatalf("priority %d: %+v, want job 1 to give back what it has borrowed", high, d)
		}
		m.Shrunk(1, t0)
		wantStarted(t, m.Decide(t0), 2)
		submit(m, 3, Ask{NP: 1}, of("b"))
		if d := m.Decide(t0); (len(d.Shrink) > 0) != (high == 50) {
			t.Fatalf("priority %d: %+v: what it has is its project's own", high, d)
		}
	}
}

// TestPriorityOfARunningJob: it counts for who gives way, from then on.
func TestPriorityOfARunningJob(t *testing.T) {
	m := cluster(1)
	submit(m, 1, Ask{NP: 1}, preemptible, priority(10))
	wantStarted(t, m.Decide(t0), 1)
	m.SetPriority(1, 90)
	submit(m, 2, Ask{NP: 1}, priority(40))
	m.SetPriority(2, 50)
	if d := m.Decide(t0); !d.Empty() {
		t.Fatalf("%+v: job 1 has a higher priority than job 2", d)
	}
	m.SetPriority(2, 95)
	if d := m.Decide(t0); len(d.Preempt) != 1 || d.Preempt[0] != 1 {
		t.Fatalf("%+v, want job 1 to give way", d)
	}
}
