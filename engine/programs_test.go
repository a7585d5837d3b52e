package engine

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var programSeed = flag.Uint64("programs", 0, "the one random program to run in TestRandomPrograms")

// call is one of a program: how many tensors it brings, how long they are, and where: in the ordered group of all (0),
// in the named one, under one of four names (1), or in another ordered group of all (2).
type call struct{ tensors, length, where, name int }

// program is a rank's calls.
type program []call

// randomProgram makes calls in those of the three groups that wheres lists.
func randomProgram(rng *rand.Rand, wheres []int) (p program) {
	for range 3 + rng.IntN(6) {
		p = append(p, call{1 + rng.IntN(5)/4*rng.IntN(3), 1 + rng.IntN(2), wheres[rng.IntN(len(wheres))], rng.IntN(4)})
	}
	return p
}

// changed is p as a rank has it that missed a call, made one more, gave a longer list or
// another shape, or has two calls in the other order, or one in another group.
func (p program) changed(rng *rand.Rand, wheres []int) program {
	q, at := slices.Clone(p), rng.IntN(len(p))
	switch rng.IntN(6) {
	case 0:
		q = slices.Delete(q, at, at+1)
	case 1:
		q = slices.Insert(q, at, q[rng.IntN(len(q))])
	case 2:
		q[at].tensors++
	case 3:
		q[at].length++
	case 4:
		to := rng.IntN(len(q))
		q[at], q[to] = q[to], q[at]
	case 5:
		q[at].where = wheres[rng.IntN(len(wheres))]
	}
	return q
}

// play makes a rank's calls and leaves. It gives what it was told, and whether all sums were
// right.
func (p program) play(groups []*Group, wait bool, limit time.Duration) (told []string, right bool) {
	right = true
	var later []func() // where it waits for all in the end
	note := func(err error) {
		if err != nil {
			told = append(told, err.Error())
		}
	}
	var times [4]int
	for _, c := range p {
		if c.where == 1 && !wait { // a name is in flight once
			times[c.name]++
		}
		var rs []Request
		var xs [][]float32
		g := groups[c.where]
		for i := range c.tensors {
			name := ""
			if c.where == 1 {
				name = fmt.Sprint("name ", c.name, " ", times[c.name], " ", i)
			}
			xs = append(xs, slices.Repeat([]float32{1}, c.length))
			rs = append(rs, sum(xs[len(xs)-1], name))
			rs[i].Timeout = limit
		}
		tickets := make([]Ticket, len(rs))
		if err := g.Submit(rs, tickets); err != nil {
			note(err)
			break
		}
		look := func() {
			for i, tk := range tickets {
				_, err := g.Wait(tk, -1)
				note(err)
				for _, v := range xs[i] {
					right = right && (err != nil || v == float32(g.Size()))
				}
			}
		}
		if later = append(later, look); wait {
			look()
			later = later[:0]
			if g.Err() != nil {
				break // a group that is over ends the program; after a mismatch it goes on
			}
		}
	}
	for _, look := range later {
		look()
	}
	if len(told) > 0 {
		return told, right // its program ends with that
	}
	byes := make([]error, len(groups))
	var wg sync.WaitGroup
	for i, g := range groups {
		wg.Go(func() { byes[i] = g.Farewell(5 * time.Second) })
	}
	wg.Wait()
	for _, err := range byes {
		note(err)
	}
	return told, right
}

// TestRandomPrograms: ranks with equal programs get right sums and no word, all others a true
// sentence on every rank, at the latest as they leave.
func TestRandomPrograms(t *testing.T) {
	seeds := 200
	if os.Getenv("HORA_SOAK") != "" {
		seeds = 2000
	}
	first := uint64(time.Now().UnixNano())
	if *programSeed != 0 {
		first, seeds = *programSeed, 1
	}
	var next atomic.Uint64
	next.Store(first)
	var wg sync.WaitGroup
	for range 4 { // most of the time they wait
		wg.Go(func() {
			for s := next.Add(1) - 1; s < first+uint64(seeds) && !t.Failed(); s = next.Add(1) - 1 {
				playRandom(t, rand.New(rand.NewPCG(s, 17)))
				if t.Failed() {
					t.Logf("replay with one of: go test ./engine -run TestRandomPrograms -programs %d", s)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d programs from seed %d", seeds, first)
}

// playRandom has ranks play programs, of which one may differ.
func playRandom(t *testing.T, rng *rand.Rand) {
	n := 2 + rng.IntN(3)
	wheres := [][]int{{0}, {1}, {0, 1}, {0, 2}, {0, 1, 2}}[rng.IntN(5)]
	base := randomProgram(rng, wheres)
	all := slices.Repeat([]program{base}, n)
	if rng.IntN(4) > 0 {
		all[rng.IntN(n)] = base.changed(rng, wheres)
	}
	told, right := make([][]string, n), make([]bool, n)
	one := rng.IntN(2) == 0
	var clusters []*cluster
	for i := range 3 {
		clusters = append(clusters, newCluster(t, n, one, Config{StallWarn: -1, Named: i == 1}))
	}
	wait := rng.IntN(3) > 0
	equal := true
	for _, p := range all {
		equal = equal && slices.Equal(p, base)
	}
	limit := time.Duration(0)
	if !equal { // ranks that wait for each other in different groups or names are a knot, which package hora unties
		limit = 700 * time.Millisecond
	}
	began := time.Now()
	clusters[0].each(func(rank int, _ *Group) error {
		var groups []*Group
		for _, c := range clusters {
			groups = append(groups, c.groups[rank])
		}
		told[rank], right[rank] = all[rank].play(groups, wait, limit)
		for _, g := range groups {
			g.Close()
		}
		return nil
	})
	for r := range n {
		wordy := strings.Join(told[r], "\n")
		switch {
		case equal && (wordy != "" || !right[r]):
			t.Errorf("rank %d of equal programs %v: right %v, %s", r, base, right[r], wordy)
		case !right[r]:
			t.Errorf("rank %d: a wrong sum and no word; programs %v: %q", r, all, told)
		case !equal && !slices.ContainsFunc([]string{"Mismatched", "it has left", "Duplicate", "the timeout of", "its timeout"},
			func(s string) bool { return strings.Contains(wordy, s) }) &&
			!alike(all):
			t.Errorf("rank %d was told nothing true; programs %v: %q", r, all, told)
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v; programs %v: %q", took, all, told)
	}
}

// alike reports programs that differ only in what is free: the order of named calls, and of calls in different groups.
func alike(all []program) bool {
	var first [3]program
	for r, p := range all {
		var by [3]program
		for _, c := range p {
			if c.where != 1 {
				c.name = 0
			}
			by[c.where] = append(by[c.where], c)
		}
		slices.SortStableFunc(by[1], func(a, b call) int { return a.name - b.name })
		if r == 0 {
			first = by
		}
		for i := range by {
			if !slices.Equal(by[i], first[i]) {
				return false
			}
		}
	}
	return true
}
