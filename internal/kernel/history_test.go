package kernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"hora/tensor"
)

// Random histories: memory goes through a random sequence of operations, once at each level; all levels must end with
// the same bits. What single operations cannot show (a register left over, a constant spoiled, state in the processor)
// shows here.

func TestHistories(t *testing.T) {
	r := newRand(t)
	for range 60 {
		history(t, r.Uint64())
	}
}

func FuzzHistory(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { history(t, seed) })
}

func history(t *testing.T, seed uint64) {
	if *anyNaN {
		return // one NaN for another goes on to other bits
	}
	type state struct {
		level  Level
		memory [4][]byte
		dots   []float64
	}
	var states []*state
	for _, l := range Levels() {
		states = append(states, &state{level: l})
	}
	r := rand.New(rand.NewPCG(seed, 1))
	bytesN := 16 * (1 + r.IntN(400))
	offset := r.IntN(16)
	for i := range 4 {
		p := make([]byte, bytesN)
		fill(r, p, tensor.DTypes()[r.IntN(len(tensor.DTypes()))])
		for _, s := range states {
			s.memory[i] = make([]byte, bytesN+offset)[offset:]
			copy(s.memory[i], p)
		}
	}
	story := ""
	for range 12 {
		c := reducible()[r.IntN(len(reducible()))]
		n := r.IntN(bytesN/c.T.Size() + 1)
		d, a, b, k := r.IntN(4), r.IntN(4), r.IntN(4), 1+r.IntN(4)
		factor, ranks, verb := r.NormFloat64(), 1+r.IntN(9), r.IntN(6)
		story += fmt.Sprintf("\nverb %d: %s of %d %s, to %d from %d and %d (%d sources), factor %g, %d ranks", verb, c.Op, n, c.T, d, a, b, k, factor, ranks)
		for _, s := range states {
			dst, x, y := ptr(s.memory[d]), ptr(s.memory[a]), ptr(s.memory[b])
			switch verb {
			case 0, 1:
				s.level.Reduce(dst, x, y, n, c.T, c.Op)
			case 2:
				var srcs [4]unsafe.Pointer
				for i := range srcs {
					srcs[i] = ptr(s.memory[i])
				}
				s.level.ReduceAll(dst, srcs[:k], n, c.T, c.Op)
			case 3:
				s.level.Scale(dst, x, n, c.T, factor)
			case 4:
				s.level.AverageScale(dst, n, c.T, ranks)
			case 5:
				if tensor.Check(tensor.Adasum, c.T) == nil {
					dot, aa, bb := s.level.DotNorms(x, y, n, c.T)
					s.dots = append(s.dots, dot, aa, bb)
					s.level.AdasumCombine(dst, x, y, n, c.T, factor, 1-factor)
				}
			}
		}
		for _, s := range states[1:] {
			for i := range s.memory {
				if !bytes.Equal(s.memory[i], states[0].memory[i]) {
					t.Fatalf("seed %d: %s differs from the twin in memory %d after %s", seed, s.level, i, story)
				}
			}
			for i := range s.dots {
				if !same(s.dots[i], states[0].dots[i]) {
					t.Fatalf("seed %d: %s differs from the twin in a dot product after %s", seed, s.level, story)
				}
			}
		}
	}
}
