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
		n.Memory = int64(n.Slots) * 4
		h.SetNode(n)
	}
	h.SetQuota("q", Quota{Slots: 4, Max: 6})
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
	return Job{
		ID: h.next, Pool: "p", Project: []string{"a", "b", "q"}[r.IntN(3)], Priority: []int{10, 50, 50, 90}[r.IntN(4)],
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
		for _, id := range sorted(h.told) {
			h.runs[id] = h.told[id]
			delete(h.told, id)
			h.Shrunk(id, h.now)
		}
	case 5:
		for _, id := range sorted(h.leaving) {
			h.end(id)
		}
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
	before := h.waiting()
	d := h.Decide(h.now)
	h.note(d)
	h.check(d, before)
	return d
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
	for _, p := range d.Start {
		if p.Behind == 0 { // use has decayed, and its turn was before the head's
			clear(h.promise)
		}
	}
	if len(d.Promises) == 0 { // its quota is used up, or all have started
		clear(h.promise)
	}
	for _, p := range d.Promises {
		if was, known := h.promise[p.ID]; known && !was.IsZero() && (p.At.IsZero() || p.At.After(was)) &&
			h.now.Before(was) {
			h.bad("job %d was promised %v and now %v", p.ID, was, p.At)
		}
		for id := range h.promise {
			if id != p.ID {
				delete(h.promise, id)
			}
		}
		h.promise[p.ID] = p.At
	}
	for _, id := range h.waiting() {
		r, ok := h.Why(id, h.now)
		if !ok || r.Text == "" || r.Code == "" {
			h.bad("job %d waits without a reason", id)
		}
		j := h.live[id]
		_, fits := h.fit(h.free, "p", j.Ask)
		allowed, _ := h.allowed(j.Project, max(j.Ask.Min, 1))
		if fits && allowed && r.Code == CodeNever {
			h.bad("job %d: %q, and it fits now", id, r.Text)
		}
		if fits && len(d.Promises) == 0 && r.Code != CodeQuota {
			h.bad("job %d fits, nobody is before it, and it waits: %+v", id, r)
		}
	}
	// Nobody overtakes a job of the same line.
	for _, p := range d.Start {
		for _, id := range before {
			a, b := h.live[id], h.live[p.ID]
			if h.runs[id] == nil && a.Ask == b.Ask && a.Project == b.Project && a.Priority == b.Priority &&
				a.Queued.Before(b.Queued) {
				h.bad("job %d overtook job %d, which asks for the same", p.ID, id)
			}
		}
	}
}
