package schedule

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"
)

var seedFlag = flag.Uint64("seed", 0, "replay one random history")

// failed are histories in which a rule was broken once, or that did not come to rest.
var failed = []uint64{
	366, 518, 520, 597, 643, 677, 824, 931, 986, 1000, 1009, 1022, 1037, 1137, 1475, 1483, 1668, 1816, 1848, 1899, 1912,
	1976, 2282, 2372, 2854, 5118,
}

// soaks multiplies counts: a tenth in the ordinary run.
func soaks(full int) int {
	if os.Getenv("HORA_SOAK") == "1" {
		return full
	}
	return full / 10
}

// TestRandomHistories submits, ends, cancels, loses nodes and lets time pass, and holds every decision to the rules.
func TestRandomHistories(t *testing.T) {
	seeds := make([]uint64, 0, 1000)
	if *seedFlag != 0 {
		seeds = append(seeds, *seedFlag)
	} else {
		for i := range soaks(1000) {
			seeds = append(seeds, uint64(i)+1)
		}
		seeds = append(seeds, failed...)
	}
	decisions := 0
	for _, seed := range seeds {
		h := newHistory(seed)
		twin := newHistory(seed)
		for range 120 {
			d, e := h.step(), twin.step()
			decisions++
			if !reflect.DeepEqual(d, e) {
				t.Fatalf("go test ./job/schedule -run RandomHistories -seed %d: equal histories, other decisions:\n%+v\n%+v", seed, d, e)
			}
			if h.fault != "" {
				t.Fatalf("go test ./job/schedule -run RandomHistories -seed %d: %s", seed, h.fault)
			}
		}
	}
	t.Logf("%d histories, %d decisions", len(seeds), decisions)
}

type history struct {
	*Machine
	rng     *rand.Rand
	now     time.Time
	next    int64
	live    map[int64]Job       // waits or runs
	runs    map[int64][]Share   // as the decisions said
	ends    map[int64]time.Time // when a running job really ends
	told    map[int64][]Share   // shrinking to
	leaving map[int64]bool
	promise map[int64]time.Time
	fault   string
}

func newHistory(seed uint64) *history {
	h := &history{
		Machine: New(time.Hour), rng: rand.New(rand.NewPCG(seed, 7)), now: t0, live: map[int64]Job{},
		runs: map[int64][]Share{},
		ends: map[int64]time.Time{}, told: map[int64][]Share{}, leaving: map[int64]bool{},
		promise: map[int64]time.Time{},
	}
	for i := range 1 + h.rng.IntN(5) {
		n := Node{Name: fmt.Sprintf("n%d", i), Pool: "p", Slots: 1 + h.rng.IntN(8), GPUs: h.rng.IntN(2) * 2}
		if i == 2 {
			n.Pool = "z"
		}
		n.Memory = int64(n.Slots) * 4
		h.SetNode(n)
	}
	h.SetQuota("q", Quota{Slots: 4, Max: 6})
	if seed%2 == 0 {
		h.SetQuota("b", Quota{Slots: 1 + h.rng.IntN(3)})
	}
	return h
}

func (h *history) bad(format string, a ...any) {
	if h.fault == "" {
		h.fault = fmt.Sprintf(format, a...)
	}
}

func (h *history) job() Job {
	h.next++
	r := h.rng
	a := Ask{NP: 1 + r.IntN(6)}
	switch r.IntN(6) {
	case 0:
		a = Ask{Nodes: 1 + r.IntN(3), PerNode: 1 + r.IntN(3), Whole: r.IntN(3) == 0}
		a.NP = a.Nodes * a.PerNode
	case 1:
		a.Min = 1 + r.IntN(a.NP)
	case 2:
		a.GPUs = 1
	case 3:
		a.Memory = int64(1 + r.IntN(8))
	}
	if r.IntN(3) > 0 {
		a.Limit = time.Duration(1+r.IntN(30)) * time.Minute
	}
	pool := "p"
	if len(h.nodes) > 2 && r.IntN(3) == 0 {
		pool = "z"
	}
	return Job{
		ID: h.next, Pool: pool, Project: []string{"a", "b", "q"}[r.IntN(3)], Priority: []int{10, 50, 50, 90}[r.IntN(4)],
		Queued: h.now, Preemptible: r.IntN(3) == 0, Ask: a,
	}
}

func (h *history) end(id int64) {
	h.Ended(id, h.now)
	delete(h.runs, id)
	delete(h.ends, id)
	delete(h.told, id)
	j, again := h.live[id], h.leaving[id]
	delete(h.leaving, id)
	delete(h.live, id)
	if again {
		h.live[id] = j
		h.Submit(j)
	}
}

func sorted[V any](m map[int64]V) []int64 {
	ids := make([]int64, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// step lets something happen and decides.
func (h *history) step() Decision {
	r := h.rng
	h.now = h.now.Add(time.Duration(r.IntN(300)) * time.Second)
	for _, id := range sorted(h.ends) {
		if !h.ends[id].After(h.now) {
			h.end(id)
		}
	}
	switch r.IntN(8) {
	case 0, 1, 2, 3:
		for range 1 + r.IntN(3) {
			j := h.job()
			h.live[j.ID] = j
			h.Submit(j)
			clear(h.promise) // somebody may come before the head
		}
	case 4:
		h.shrunk()
	case 5:
		h.drained()
	case 6:
		if ids := sorted(h.live); len(ids) > 0 {
			id := ids[r.IntN(len(ids))]
			if h.runs[id] == nil {
				h.Withdraw(id)
				delete(h.live, id)
			} else {
				delete(h.leaving, id)
				h.end(id)
			}
		}
	}
	d := h.decide()
	if r.IntN(4) == 0 {
		h.rest()
	}
	return d
}

// decide decides, and holds the decision to the rules.
func (h *history) decide() Decision {
	before := h.waiting()
	ends, heads := h.quotaEnds(), map[string]Promise{}
	for name, p := range h.pools {
		heads[name] = p.promise
	}
	d := h.Decide(h.now)
	for _, g := range d.Grow {
		if slices.ContainsFunc(d.Shrink, func(p Placement) bool { return p.ID == g.ID }) {
			h.bad("job %d grows and shrinks in one decision: %+v", g.ID, d)
		}
	}
	for _, p := range d.Start {
		if slices.Contains(d.Preempt, p.ID) {
			h.bad("job %d starts and is drained in one decision: %+v", p.ID, d)
		}
	}
	h.note(d)
	h.checkOrders(d)
	h.check(d, before)
	h.checkQuota(d, before, ends, heads)
	return d
}

// checkOrders holds orders to give way to this: somebody who waits in the end is to have the room or the quota.
func (h *history) checkOrders(d Decision) {
	orders := slices.Clone(d.Preempt)
	for _, p := range d.Shrink {
		orders = append(orders, p.ID)
	}
	for _, id := range orders {
		j, p := h.live[id], h.pools[h.live[id].Pool]
		if !slices.ContainsFunc(h.waiting(), func(id int64) bool {
			e := h.jobs[id]
			return e.owns && e.Project == j.Project || e.held && p.blocked && p.promise.ID == id
		}) {
			h.bad("job %d gives way, and to nobody: %+v", id, d)
		}
	}
}

// rest carries out all that was told, at once, and decides until nothing is to be done: nobody comes, and nobody ends
// but those that are drained, so that this comes soon.
func (h *history) rest() {
	for range 3 + len(h.live) {
		h.obey()
		d := h.decide()
		if d.Empty() && len(h.told) == 0 && len(h.leaving) == 0 || h.fault != "" {
			return
		}
	}
	h.bad("it does not come to rest: %d jobs, %d run", len(h.live), len(h.runs))
}

// obey lets those shrink that were told to, and those end.
func (h *history) obey() {
	h.shrunk()
	h.drained()
}

func (h *history) shrunk() {
	for _, id := range sorted(h.told) {
		h.runs[id] = h.told[id]
		delete(h.told, id)
		h.Shrunk(id, h.now)
	}
}

func (h *history) drained() {
	for _, id := range sorted(h.leaving) {
		h.end(id)
	}
}

// quotaEnds are when project q has its slots back at the latest, one for each.
func (h *history) quotaEnds() (ends []time.Time) {
	for id, shares := range h.runs {
		if h.live[id].Project == "q" {
			ends = append(ends, slices.Repeat([]time.Time{h.running[id].ends()}, slots(shares))...)
		}
	}
	return ends
}

// checkQuota holds the starts of a bounded project to this: who is less important does not take what the first of those
// that wait needs of the project's own slots, or gives it back before that could start anyway. So it starves nobody.
func (h *history) checkQuota(d Decision, before []int64, ends []time.Time, heads map[string]Promise) {
	var first *entry
	for _, id := range before {
		e := &entry{Job: h.live[id]}
		if e.Project == "q" && e.Ask.need() <= 6 && h.ever(e.Pool, e.Ask) &&
			(first == nil || moreImportant(e, first) < 0) {
			first = e
		}
	}
	if first == nil || h.runs[first.ID] != nil || first.Ask.need() > 4 {
		return
	}
	need := first.Ask.need()
	for _, p := range d.Start {
		j := h.live[p.ID]
		if j.Project != "q" {
			continue
		}
		has, end := len(ends), far
		if j.Ask.Limit > 0 {
			end = h.now.Add(j.Ask.Limit)
		}
		slices.SortFunc(ends, time.Time.Compare)
		frees := h.now
		if over := has + need - 6; over > 0 {
			frees = ends[over-1]
		}
		switch {
		case moreImportant(&entry{Job: j}, first) < 0, has+need <= 4, has+slots(p.Shares)+need <= 6:
		case p.ID == heads[j.Pool].ID && slots(p.Shares) == j.Ask.need(): // it was promised so many
		case j.Pool != first.Pool && j.Ask.Limit > 0 && slices.ContainsFunc(d.Promises, func(p Promise) bool {
			return p.ID == first.ID && p.At.IsZero()
		}): // nobody knows when the first one starts: those of other pools that end have its quota until then
		case frees == far, end.After(frees):
			h.bad("job %d of %d slots and priority %d starts, and job %d of %d and %d waits for their quota, which would be free at %v",
				j.ID, slots(p.Shares), j.Priority, first.ID, need, first.Priority, frees)
		}
		ends = append(ends, slices.Repeat([]time.Time{end}, slots(p.Shares))...)
	}
}

func (h *history) waiting() []int64 {
	var ids []int64
	for _, id := range sorted(h.live) {
		if h.runs[id] == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// note takes down what a decision says, and holds each order to what it may say.
func (h *history) note(d Decision) {
	for _, p := range d.Start {
		j := h.live[p.ID]
		if h.runs[p.ID] != nil || j.ID == 0 {
			h.bad("job %d starts and does not wait", p.ID)
		}
		h.runs[p.ID] = p.Shares
		n, a := slots(p.Shares), j.Ask
		switch {
		case a.Min > 0 && (n < a.Min || n > a.NP), a.Min == 0 && n != a.NP:
			h.bad("job %d asks for %+v and gets %v", p.ID, a, p.Shares)
		case a.Nodes > 0 && len(p.Shares) != a.Nodes:
			h.bad("job %d asks for %d nodes and gets %v", p.ID, a.Nodes, p.Shares)
		}
		took := time.Duration(1+h.rng.IntN(60)) * time.Minute
		if a.Limit > 0 {
			took = min(took, a.Limit)
		}
		h.ends[p.ID] = h.now.Add(took)
		// steps are up to 300 s apart
		if at, promised := h.promise[p.ID]; promised && !at.IsZero() && h.now.Sub(at) > 300*time.Second {
			h.bad("job %d was promised %v and started %v", p.ID, at, h.now)
		}
	}
	for _, p := range d.Shrink {
		if n := slots(p.Shares); h.live[p.ID].Ask.Min == 0 || n < h.live[p.ID].Ask.Min || n >= slots(h.runs[p.ID]) {
			h.bad("job %d shrinks from %v to %v", p.ID, h.runs[p.ID], p.Shares)
		}
		h.told[p.ID] = p.Shares
	}
	for _, p := range d.Grow {
		if n := slots(p.Shares); n > h.live[p.ID].Ask.NP || n <= slots(h.runs[p.ID]) {
			h.bad("job %d grows from %v to %v", p.ID, h.runs[p.ID], p.Shares)
		}
		h.runs[p.ID] = p.Shares
	}
	for _, id := range d.Preempt {
		if !h.live[id].Preemptible || h.runs[id] == nil || h.leaving[id] {
			h.bad("job %d is preempted and may not be", id)
		}
		h.leaving[id] = true
	}
}

// check holds the state after a decision to the rules.
func (h *history) check(d Decision, before []int64) {
	for _, n := range h.nodes {
		used, mem, gpus, whole := 0, int64(0), 0, false
		jobs := 0
		for id, shares := range h.runs {
			for _, s := range shares {
				if a := h.live[id].Ask; s.Node == n.Name {
					used, mem, gpus, jobs = used+s.Slots, mem+int64(s.Slots)*a.Memory, gpus+s.Slots*a.GPUs, jobs+1
					whole = whole || a.Whole
				}
			}
		}
		if used > n.Slots || mem > n.Memory || gpus > n.GPUs {
			h.bad("node %+v is given away twice: %d slots, %d bytes, %d GPUs", n, used, mem, gpus)
		}
		if whole && jobs > 1 {
			h.bad("node %s was taken whole and has %d jobs", n.Name, jobs)
		}
	}
	quota := 0
	for id, shares := range h.runs {
		if h.live[id].Project == "q" {
			quota += slots(shares)
		}
	}
	if quota > 6 {
		h.bad("project q has %d slots of 6", quota)
	}
	h.checkPromises(d)
	for _, id := range h.waiting() {
		r, ok := h.Why(id, h.now)
		if !ok || r.Text == "" || r.Code == "" {
			h.bad("job %d waits without a reason", id)
		}
		j := h.live[id]
		_, fits := h.fit(h.free, j.Pool, j.Ask)
		allowed := h.lends(j.Project, j.Ask.need())
		if fits && allowed && r.Code == CodeNever {
			h.bad("job %d: %q, and it fits now", id, r.Text)
		}
		if fits && allowed && !h.pools[j.Pool].blocked && r.Code != CodeQuota {
			h.bad("job %d fits, nobody is before it, and it waits: %+v", id, r)
		}
	}
	h.checkLines(d, before)
}

// checkPromises holds heads to what they were promised.
func (h *history) checkPromises(d Decision) {
	var gave []int64
	for id := range h.promise {
		if h.gaveWay(d, id) {
			gave = append(gave, id)
		}
	}
	for _, id := range gave {
		delete(h.promise, id)
	}
	for _, p := range d.Start {
		if p.Behind == 0 { // use has decayed, and its turn was before the head's
			h.forget(h.live[p.ID].Pool)
		}
	}
	for id := range h.promise {
		pool := h.live[id].Pool
		if none := !slices.ContainsFunc(d.Promises, func(p Promise) bool { return p.Pool == pool }); !none {
			continue
		}
		if h.live[id].ID != 0 && h.runs[id] == nil {
			h.bad("job %d was promised a start, waits, and is promised nothing", id)
		}
		delete(h.promise, id)
	}
	for _, p := range d.Promises {
		was, known := h.promise[p.ID]
		if known && !was.IsZero() && (p.At.IsZero() || p.At.After(was)) && h.now.Before(was) {
			h.bad("job %d was promised %v and now %v", p.ID, was, p.At)
		}
		h.forget(p.Pool)
		h.promise[p.ID] = p.At
	}
}

// gaveWay says whether a head leaves its project's quota to a more important job of the project: one that starts in
// another pool, or is promised a time there, or for which others give way. A promise is when there is room for the
// head, and holds for as long as none of these has a claim to the quota. One without a time does not stop another head.
func (h *history) gaveWay(d Decision, head int64) bool {
	before := func(id int64, anywhere bool) bool {
		a, b := h.live[id], h.live[head]
		_, too := h.promise[id]
		return a.Project == b.Project && (anywhere || a.Pool != b.Pool) &&
			(moreImportant(&entry{Job: a}, &entry{Job: b}) < 0 || too && h.promise[head].IsZero() && id != head)
	}
	return slices.ContainsFunc(d.Start, func(p Placement) bool { return before(p.ID, false) }) ||
		slices.ContainsFunc(d.Promises, func(p Promise) bool { return !p.At.IsZero() && before(p.ID, false) }) ||
		slices.ContainsFunc(h.waiting(), func(id int64) bool { return h.jobs[id].owns && before(id, true) })
}

// forget drops what was promised in a pool.
func (h *history) forget(pool string) {
	for id := range h.promise {
		if h.live[id].Pool == pool {
			delete(h.promise, id)
		}
	}
}

// checkLines holds starts to the order of their line.
func (h *history) checkLines(d Decision, before []int64) {
	// Nobody overtakes a job of the same line.
	for _, p := range d.Start {
		for _, id := range before {
			a, b := h.live[id], h.live[p.ID]
			if h.runs[id] == nil && a.Pool == b.Pool && lineOf(&a) == lineOf(&b) && a.Queued.Before(b.Queued) {
				h.bad("job %d overtook job %d, which asks for the same", p.ID, id)
			}
		}
	}
}
