package engine

import (
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var programSeed = flag.Uint64("programs", 0, "the one random program to run in TestRandomPrograms")

// program is a rank's calls: how many tensors each brings, and how long those are.
type program [][2]int

func randomProgram(rng *rand.Rand) (p program) {
	for range 3 + rng.IntN(6) {
		p = append(p, [2]int{1 + rng.IntN(5)/4*rng.IntN(3), 1 + rng.IntN(2)})
	}
	return p
}

// changed is p as a rank has it that missed a call, made one more, gave a longer list or
// another shape, or has two calls in the other order.
func (p program) changed(rng *rand.Rand) program {
	q, at := slices.Clone(p), rng.IntN(len(p))
	switch rng.IntN(5) {
	case 0:
		q = slices.Delete(q, at, at+1)
	case 1:
		q = slices.Insert(q, at, q[rng.IntN(len(q))])
	case 2:
		q[at][0]++
	case 3:
		q[at][1]++
	case 4:
		to := rng.IntN(len(q))
		q[at], q[to] = q[to], q[at]
	}
	return q
}

// play makes a rank's calls and leaves. It gives what it was told, and whether all sums were
// right.
func (p program) play(g *Group, wait bool) (told []string, right bool) {
	right = true
	var later []func() // where it waits for all in the end
	note := func(err error) {
		if err != nil {
			told = append(told, err.Error())
		}
	}
	for _, c := range p {
		var rs []Request
		var xs [][]float32
		for range c[0] {
			xs = append(xs, slices.Repeat([]float32{1}, c[1]))
			rs = append(rs, sum(xs[len(xs)-1], ""))
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
		}
	}
	for _, look := range later {
		look()
	}
	note(g.Farewell(5 * time.Second))
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
	for s := first; s < first+uint64(seeds) && !t.Failed(); s++ {
		rng := rand.New(rand.NewPCG(s, 17))
		n := 2 + rng.IntN(3)
		base := randomProgram(rng)
		all := slices.Repeat([]program{base}, n)
		if rng.IntN(4) > 0 {
			all[rng.IntN(n)] = base.changed(rng)
		}
		equal := true
		for _, p := range all {
			equal = equal && slices.Equal(p, base)
		}
		told, right := make([][]string, n), make([]bool, n)
		c := newCluster(t, n, rng.IntN(2) == 0, Config{StallWarn: -1})
		wait := rng.IntN(3) > 0
		began := time.Now()
		c.each(func(rank int, g *Group) error {
			told[rank], right[rank] = all[rank].play(g, wait)
			if len(told[rank]) > 0 {
				g.Close() // its program ends with that
			}
			return nil
		})
		for r := range n {
			wordy := strings.Join(told[r], "\n")
			switch {
			case equal && (wordy != "" || !right[r]):
				t.Errorf("rank %d of equal programs %v: right %v, %s", r, base, right[r], wordy)
			case !equal && !strings.Contains(wordy, "Mismatched") && !strings.Contains(wordy, "it has left"):
				t.Errorf("rank %d was told nothing; programs %v: %q", r, all, told)
			}
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("took %v", took)
		}
		if t.Failed() {
			t.Logf("replay with: go test ./engine -run TestRandomPrograms -programs %d", s)
		}
	}
	t.Logf("%d programs from seed %d", seeds, first)
}
