package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestTinyHistoriesAgainstEveryWay holds the mean wait to the best of all ways to run a few jobs that keep the rule: in
// order, and nobody delays the first of those that wait.
func TestTinyHistoriesAgainstEveryWay(t *testing.T) {
	ours, best := 0, 0
	n := soaks(10000)
	for i := range n {
		w := newTiny(uint64(i) + 1)
		a, b := w.run(t), w.best()
		if a < b {
			t.Fatalf("history %d: waits of %d min in all, and no way that keeps the rules has less than %d", i+1, a, b)
		}
		ours, best = ours+a, best+b
	}
	ratio := float64(ours) / float64(best)
	t.Logf("%d histories: mean wait %.4f times the best", n, ratio)
	if ratio > 1.1 {
		t.Fatalf("mean wait is %.3f times the best of all ways", ratio)
	}
}

type tinyJob struct {
	ask     Ask
	arrives int // minutes
}

type tiny struct {
	nodes []int
	jobs  []tinyJob
}

func newTiny(seed uint64) *tiny {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &tiny{}
	for range 1 + r.IntN(2) {
		w.nodes = append(w.nodes, 1+r.IntN(4))
	}
	total := 0
	for _, n := range w.nodes {
		total += n
	}
	at := 0
	for range 3 + r.IntN(3) {
		a := Ask{NP: 1 + r.IntN(total)}
		if r.IntN(3) == 0 {
			per := 1 + r.IntN(slices.Min(w.nodes))
			nodes := 1 + r.IntN(len(w.nodes))
			a = Ask{Nodes: nodes, PerNode: per, NP: nodes * per}
		}
		a.Limit = time.Duration(1+r.IntN(5)) * time.Minute
		at += r.IntN(2)
		w.jobs = append(w.jobs, tinyJob{a, at})
	}
	return w
}

// run lets the machine do it and answers the sum of waits in minutes.
func (w *tiny) run(t *testing.T) int {
	m := cluster(w.nodes...)
	ends, total, left := map[int64]int{}, 0, len(w.jobs)
	promised := map[int64]time.Time{}
	for now := 0; left > 0; now++ {
		at := after(time.Duration(now) * time.Minute)
		for id, end := range ends {
			if end == now {
				m.Ended(id, at)
				delete(ends, id)
			}
		}
		for i, j := range w.jobs {
			if j.arrives == now {
				submit(m, int64(i)+1, j.ask)
			}
		}
		d := m.Decide(at)
		for _, p := range d.Start {
			j := w.jobs[p.ID-1]
			ends[p.ID] = now + int(j.ask.Limit/time.Minute)
			total += now - j.arrives
			left--
			if by, known := promised[p.ID]; known && at.After(by) {
				t.Fatalf("job %d was promised %v and starts %v", p.ID, by, at)
			}
		}
		for _, p := range d.Promises {
			promised[p.ID] = p.At
		}
		if now > 1000 {
			t.Fatalf("%d jobs never start", left)
		}
	}
	return total
}

type tinyRun struct {
	end    int
	shares []int
}

type tinyState struct {
	now     int
	free    []int
	runs    []tinyRun
	waiting []int // indices of jobs, in order
	arrived int
}

func (s tinyState) with(shares []int, end, drop int) tinyState {
	n := tinyState{
		now: s.now, arrived: s.arrived, free: slices.Clone(s.free),
		runs: append(slices.Clone(s.runs), tinyRun{end, shares}),
	}
	for i, k := range shares {
		n.free[i] -= k
	}
	for _, j := range s.waiting {
		if j != drop {
			n.waiting = append(n.waiting, j)
		}
	}
	return n
}

func (w *tiny) best() int {
	return w.advance(tinyState{free: slices.Clone(w.nodes), now: -1})
}

// ways lists how an ask can be placed.
func (w *tiny) ways(free []int, a Ask) (all [][]int) {
	var rec func(at, left int, shares []int)
	rec = func(at, left int, shares []int) {
		if at == len(free) {
			if left == 0 {
				all = append(all, slices.Clone(shares))
			}
			return
		}
		for k := 0; k <= min(free[at], left); k++ {
			if a.Nodes == 0 || k == 0 || k == a.PerNode {
				rec(at+1, left-k, append(shares, k))
			}
		}
	}
	rec(0, a.NP, nil)
	return all
}

// earliest is when a job can start if nothing else does.
func (w *tiny) earliest(s tinyState, a Ask) int {
	free := slices.Clone(s.free)
	runs := slices.Clone(s.runs)
	slices.SortFunc(runs, func(a, b tinyRun) int { return a.end - b.end })
	at := s.now
	for {
		if len(w.ways(free, a)) > 0 {
			return at
		}
		at = runs[0].end
		for i, k := range runs[0].shares {
			free[i] += k
		}
		runs = runs[1:]
	}
}

// advance goes to the next minute in which something happens.
func (w *tiny) advance(s tinyState) int {
	if len(s.waiting) == 0 && s.arrived == len(w.jobs) {
		return 0
	}
	next := 1 << 30
	if s.arrived < len(w.jobs) {
		next = max(w.jobs[s.arrived].arrives, s.now)
	}
	for _, r := range s.runs {
		next = min(next, r.end)
	}
	waits := max(next-max(s.now, 0), 0) * len(s.waiting)
	n := tinyState{now: next, free: slices.Clone(s.free), waiting: slices.Clone(s.waiting), arrived: s.arrived}
	for _, r := range s.runs {
		if r.end > next {
			n.runs = append(n.runs, r)
			continue
		}
		for i, k := range r.shares {
			n.free[i] += k
		}
	}
	for n.arrived < len(w.jobs) && w.jobs[n.arrived].arrives <= next {
		n.waiting = append(n.waiting, n.arrived)
		n.arrived++
	}
	return waits + w.decide(n)
}

// decide starts the first while it fits, in every way, and then whoever does not delay it.
func (w *tiny) decide(s tinyState) int {
	if len(s.waiting) == 0 {
		return w.advance(s)
	}
	head := w.jobs[s.waiting[0]]
	ways := w.ways(s.free, head.ask)
	best := 1 << 30
	for _, shares := range ways {
		best = min(best, w.decide(s.with(shares, s.now+int(head.ask.Limit/time.Minute), s.waiting[0])))
	}
	if len(ways) > 0 {
		return best
	}
	return w.behind(s, 1, w.earliest(s, head.ask))
}

func (w *tiny) behind(s tinyState, at, promised int) int {
	if at >= len(s.waiting) {
		return w.advance(s)
	}
	best := w.behind(s, at+1, promised)
	j := w.jobs[s.waiting[at]]
	for _, shares := range w.ways(s.free, j.ask) {
		n := s.with(shares, s.now+int(j.ask.Limit/time.Minute), s.waiting[at])
		if w.earliest(n, w.jobs[n.waiting[0]].ask) <= promised {
			best = min(best, w.behind(n, at, promised))
		}
	}
	return best
}
