package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestDecisionsOnALargeCluster measures decisions with a long queue, a thousand nodes full of jobs, and something
// ending or coming before each.
func TestDecisionsOnALargeCluster(t *testing.T) {
	queue, rounds := 10_000, 100
	if soaks(10) == 10 {
		queue, rounds = 100_000, 1000
	}
	m := New(0)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		m.SetNode(Node{Name: fmt.Sprintf("node%04d", i), Pool: "p", Slots: 8, GPUs: 8})
	}
	id := int64(0)
	job := func() {
		id++
		a := Ask{NP: 1 << r.IntN(6), Limit: time.Duration(1+r.IntN(8)) * time.Hour}
		if r.IntN(4) == 0 {
			a = Ask{Nodes: 1 + r.IntN(8), PerNode: 8}
		}
		m.Submit(Job{
			ID: id, Pool: "p", Project: fmt.Sprint("project", r.IntN(20)), Priority: 10 * r.IntN(5),
			Queued: after(time.Duration(id) * time.Millisecond), Ask: a,
		})
	}
	for range queue {
		job()
	}
	now := after(time.Hour)
	first := time.Now()
	var runs []int64
	for _, p := range m.Decide(now).Start {
		runs = append(runs, p.ID)
	}
	t.Logf("the first decision starts %d jobs and takes %v", len(runs), time.Since(first))
	var took []time.Duration
	for range rounds {
		now = now.Add(time.Second)
		for range 3 {
			at := r.IntN(len(runs))
			m.Ended(runs[at], now)
			runs = slices.Delete(runs, at, at+1)
			job()
		}
		begin := time.Now()
		d := m.Decide(now)
		took = append(took, time.Since(begin))
		for _, p := range d.Start {
			runs = append(runs, p.ID)
		}
	}
	slices.Sort(took)
	begin := time.Now()
	if _, ok := m.Why(id, now); !ok {
		t.Fatal("the last one does not wait")
	}
	t.Logf("%d wait, %d run: decision p50 %v, p99 %v; one reason %v", m.Waiting(), m.Running(), took[len(took)/2], took[len(took)*99/100], time.Since(begin))
}
