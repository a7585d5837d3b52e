//go:build unix

package kernel

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"hora/tensor"
)

// Every vector kernel gives the twin's bits, for every length that takes another path, at any alignment, for every
// aliasing that the contract allows, and touches nothing else.

const longest = 300

// lengths are all short ones, or a random third of those below 70 and a few above where time is dear.
func lengths(r *rand.Rand) []int {
	var list []int
	for n := 0; n <= longest; n++ {
		few := testing.Short() || raceEnabled
		if !few || n < 70 && r.IntN(5) == 0 || r.IntN(60) == 0 {
			list = append(list, n)
		}
	}
	return append(list, 512, 600+r.IntN(100))
}

func TestReduceAgreesWithTwin(t *testing.T) {
	r, some := newRand(t), operands{}
	dst, a, b := newArena(t, 12000), newArena(t, 12000), newArena(t, 12000)
	for _, level := range vectorLevels(t) {
		for _, c := range reducible() {
			t.Run(fmt.Sprintf("%s/%s/%s", level, c.T, c.Op), func(t *testing.T) {
				for _, n := range lengths(r) {
					bytesN := n * c.T.Size()
					x, y, z := a.take(r, bytesN), b.take(r, bytesN), dst.take(r, bytesN)
					some.fill(r, x, c.T)
					some.fill(r, y, c.T)
					want := make([]byte, bytesN)
					Pure.Reduce(ptr(want), ptr(x), ptr(y), n, c.T, c.Op)
					x0, y0 := bytes.Clone(x), bytes.Clone(y)
					level.Reduce(ptr(z), ptr(x), ptr(y), n, c.T, c.Op)
					compare(t, "dst apart", c.T, n, z, want, x0, y0)
					if !bytes.Equal(x, x0) || !bytes.Equal(y, y0) {
						t.Fatalf("n=%d: a source was written", n)
					}
					level.Reduce(ptr(x), ptr(x), ptr(y), n, c.T, c.Op)
					compare(t, "dst is a", c.T, n, x, want, x0, y0)
					copy(x, x0)
					level.Reduce(ptr(y), ptr(x), ptr(y), n, c.T, c.Op)
					compare(t, "dst is b", c.T, n, y, want, x0, y0)
					Pure.Reduce(ptr(want), ptr(x), ptr(x), n, c.T, c.Op)
					level.Reduce(ptr(x), ptr(x), ptr(x), n, c.T, c.Op)
					compare(t, "all the same", c.T, n, x, want, x0, x0)
					if !dst.intact(z) || !a.intact(x) || !b.intact(y) {
						t.Fatalf("n=%d: written outside the range", n)
					}
				}
			})
		}
	}
}

func TestReduceAllAgreesWithTwin(t *testing.T) {
	r, some := newRand(t), operands{}
	const most = 9
	arenas := make([]*arena, most)
	for i := range arenas {
		arenas[i] = newArena(t, 12000)
	}
	dst := newArena(t, 12000)
	for _, level := range vectorLevels(t) {
		for _, c := range reducible() {
			t.Run(fmt.Sprintf("%s/%s/%s", level, c.T, c.Op), func(t *testing.T) {
				for _, n := range lengths(r) {
					k := 1 + r.IntN(5)*2
					bytesN := n * c.T.Size()
					srcs, pointers := make([][]byte, k), make([]unsafe.Pointer, k)
					for i := range srcs {
						srcs[i] = arenas[i].take(r, bytesN)
						some.fill(r, srcs[i], c.T)
						pointers[i] = ptr(srcs[i])
					}
					want := make([]byte, bytesN)
					Pure.ReduceAll(ptr(want), pointers, n, c.T, c.Op)
					z := dst.take(r, bytesN)
					level.ReduceAll(ptr(z), pointers, n, c.T, c.Op)
					compare(t, fmt.Sprintf("%d sources", k), c.T, n, z, want, srcs...)
					alias := r.IntN(k)
					before := bytes.Clone(srcs[alias])
					level.ReduceAll(pointers[alias], pointers, n, c.T, c.Op)
					compare(t, fmt.Sprintf("%d sources, dst is source %d", k, alias), c.T, n, srcs[alias], want)
					copy(srcs[alias], before)
					Pure.ReduceAll(pointers[alias], pointers, n, c.T, c.Op)
					compare(t, fmt.Sprintf("twin, %d sources, dst is source %d", k, alias), c.T, n, srcs[alias], want)
					ok := dst.intact(z)
					for i := range srcs {
						ok = arenas[i].intact(srcs[i]) && ok
					}
					if !ok {
						t.Fatalf("n=%d: written outside the range", n)
					}
				}
			})
		}
	}
}

// compare fails with the first element that differs and the operands it came from.
func compare(t *testing.T, what string, d tensor.DType, n int, got, want []byte, operands ...[]byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	s := d.Size()
	for i := range n {
		if g, w := got[i*s:(i+1)*s], want[i*s:(i+1)*s]; !bytes.Equal(g, w) && !(*anyNaN && bothNaN(g, w, d)) {
			from := ""
			for _, o := range operands {
				from += fmt.Sprintf(" %x", o[i*s:(i+1)*s])
			}
			t.Fatalf("%s, n=%d: element %d is %x, the twin says %x (operands%s, little-endian)", what, n, i, g, w, from)
		}
	}
}

// bothNaN reports that two elements (or the same parts of two complex ones) are NaN and the rest of them is equal.
func bothNaN(g, w []byte, d tensor.DType) bool {
	switch d {
	case tensor.Complex64, tensor.Complex128:
		half, part := len(g)/2, map[tensor.DType]tensor.DType{
			tensor.Complex64:  tensor.Float32,
			tensor.Complex128: tensor.Float64,
		}[d]
		return (bytes.Equal(g[:half], w[:half]) || bothNaN(g[:half], w[:half], part)) &&
			(bytes.Equal(g[half:], w[half:]) || bothNaN(g[half:], w[half:], part))
	case tensor.Float64:
		x, y := *(*float64)(ptr(g)), *(*float64)(ptr(w))
		return x != x && y != y
	case tensor.Float32:
		x, y := *(*float32)(ptr(g)), *(*float32)(ptr(w))
		return x != x && y != y
	case tensor.Float16, tensor.BFloat16, tensor.Float8E4M3, tensor.Float8E5M2:
		var x, y float32
		Pure.ToFloat32(&x, ptr(g), 1, d)
		Pure.ToFloat32(&y, ptr(w), 1, d)
		return x != x && y != y
	}
	return false
}

func TestScaleAgreesWithTwin(t *testing.T) {
	r := newRand(t)
	dst, src := newArena(t, 12000), newArena(t, 12000)
	factors := []float64{0.5, 1.0 / 3, -7, 1e30, 1e-30, 0, math.Inf(1), math.NaN()}
	for _, level := range vectorLevels(t) {
		for _, d := range tensor.DTypes() {
			t.Run(fmt.Sprintf("%s/%s", level, d), func(t *testing.T) {
				for _, n := range lengths(r) {
					factor, ranks := factors[r.IntN(len(factors))], 1+r.IntN(12)
					bytesN := n * d.Size()
					x, z := src.take(r, bytesN), dst.take(r, bytesN)
					fill(r, x, d)
					x0, want := bytes.Clone(x), make([]byte, bytesN)
					Pure.Scale(ptr(want), ptr(x), n, d, factor)
					level.Scale(ptr(z), ptr(x), n, d, factor)
					compare(t, fmt.Sprintf("times %g", factor), d, n, z, want, x0)
					level.Scale(ptr(x), ptr(x), n, d, factor)
					compare(t, fmt.Sprintf("in place times %g", factor), d, n, x, want, x0)
					copy(x, x0)
					copy(want, x0)
					Pure.AverageScale(ptr(want), n, d, ranks)
					level.AverageScale(ptr(x), n, d, ranks)
					compare(t, fmt.Sprintf("over %d ranks", ranks), d, n, x, want, x0)
					if !dst.intact(z) || !src.intact(x) {
						t.Fatalf("n=%d: written outside the range", n)
					}
				}
			})
		}
	}
}

func TestConversionsAgreeWithTwin(t *testing.T) {
	r := newRand(t)
	wide, narrow := newArena(t, 12000), newArena(t, 12000)
	for _, level := range vectorLevels(t) {
		for _, d := range []tensor.DType{tensor.Float16, tensor.BFloat16, tensor.Float8E4M3, tensor.Float8E5M2} {
			t.Run(fmt.Sprintf("%s/%s", level, d), func(t *testing.T) {
				for _, n := range lengths(r) {
					w, h := wide.take(r, 4*n), narrow.take(r, n*d.Size())
					fill(r, h, d)
					want := make([]byte, 4*n)
					Pure.ToFloat32((*float32)(ptr(want)), ptr(h), n, d)
					level.ToFloat32((*float32)(ptr(w)), ptr(h), n, d)
					compare(t, "to float32", tensor.Float32, n, w, want)
					fill(r, w, tensor.Float32)
					want = make([]byte, n*d.Size())
					Pure.FromFloat32(ptr(want), (*float32)(ptr(w)), n, d)
					level.FromFloat32(ptr(h), (*float32)(ptr(w)), n, d)
					compare(t, "from float32", d, n, h, want)
					if !wide.intact(w) || !narrow.intact(h) {
						t.Fatalf("n=%d: written outside the range", n)
					}
				}
			})
		}
	}
}

func TestAdasumAgreesWithTwin(t *testing.T) {
	r := newRand(t)
	dst, a, b := newArena(t, 12000), newArena(t, 12000), newArena(t, 12000)
	for _, level := range vectorLevels(t) {
		for _, d := range []tensor.DType{tensor.Float16, tensor.BFloat16, tensor.Float32, tensor.Float64} {
			t.Run(fmt.Sprintf("%s/%s", level, d), func(t *testing.T) {
				for _, n := range lengths(r) {
					x, y, z := a.take(r, n*d.Size()), b.take(r, n*d.Size()), dst.take(r, n*d.Size())
					fill(r, x, d)
					fill(r, y, d)
					if n%2 == 0 { // numbers only, so that the dots are not all NaN
						number(r, x, d)
						number(r, y, d)
					}
					p1, p2, p3 := Pure.DotNorms(ptr(x), ptr(y), n, d)
					q1, q2, q3 := level.DotNorms(ptr(x), ptr(y), n, d)
					if !same(p1, q1) || !same(p2, q2) || !same(p3, q3) {
						t.Fatalf("n=%d: dot and norms are %g %g %g, the twin says %g %g %g", n, q1, q2, q3, p1, p2, p3)
					}
					ca, cb := r.NormFloat64(), r.NormFloat64()
					want := make([]byte, len(x))
					x0, y0 := bytes.Clone(x), bytes.Clone(y)
					Pure.AdasumCombine(ptr(want), ptr(x), ptr(y), n, d, ca, cb)
					level.AdasumCombine(ptr(z), ptr(x), ptr(y), n, d, ca, cb)
					compare(t, "combine", d, n, z, want, x0, y0)
					level.AdasumCombine(ptr(y), ptr(x), ptr(y), n, d, ca, cb)
					compare(t, "combine into b", d, n, y, want, x0, y0)
					copy(y, y0)
					level.AdasumCombine(ptr(x), ptr(x), ptr(y), n, d, ca, cb)
					compare(t, "combine into a", d, n, x, want, x0, y0)
					if !dst.intact(z) || !a.intact(x) || !b.intact(y) {
						t.Fatalf("n=%d: written outside the range", n)
					}
				}
			})
		}
	}
}

// same is equality of bits, any NaN for any other.
func same(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || a != a && b != b
}

func number(r *rand.Rand, p []byte, d tensor.DType) {
	values := make([]float32, len(p)/d.Size())
	for i := range values {
		values[i] = float32(r.NormFloat64())
	}
	switch d {
	case tensor.Float64:
		out := view[float64](ptr(p), len(values))
		for i, v := range values {
			out[i] = float64(v) * 1.000000001
		}
	case tensor.Float32:
		copy(view[float32](ptr(p), len(values)), values)
	default:
		Pure.FromFloat32(ptr(p), unsafe.SliceData(values), len(values), d)
	}
}

func TestCopies(t *testing.T) {
	r := newRand(t)
	dst, src := newArena(t, 400000), newArena(t, 400000)
	for _, level := range Levels() {
		for _, n := range append(lengths(r), 4096, 65536, 131072, 262144, 262145, 393000) {
			x, z := src.take(r, n), dst.take(r, n)
			for _, way := range []struct {
				name string
				copy func(dst, src unsafe.Pointer, bytes int)
			}{{"Copy", Copy}, {"CopyStream", level.CopyStream}, {"CopyAhead", level.CopyAhead}, {"CopyFetch", level.CopyFetch}, {"CopyTake", level.CopyTake}} {
				fill(r, x, tensor.Uint8)
				way.copy(ptr(z), ptr(x), n)
				if !bytes.Equal(x, z) {
					t.Fatalf("%s %s: %d bytes differ", level, way.name, n)
				}
			}
			if !dst.intact(z) || !src.intact(x) {
				t.Fatalf("%s: %d bytes: written outside the range", level, n)
			}
		}
	}
}

// Long ranges are cut into pieces: the seams must not show.
func TestPiecesAgreeWithTwin(t *testing.T) {
	r := newRand(t)
	for _, level := range vectorLevels(t) {
		types := []tensor.DType{tensor.BFloat16, tensor.Float32}
		if !testing.Short() {
			types = append(types, tensor.Bool, tensor.Uint16, tensor.Float16, tensor.Float64, tensor.Complex64)
		}
		for _, d := range types {
			n := (pieceBytes + pieceBytes/3) / d.Size()
			k := 3
			srcs, pointers := make([][]byte, k), make([]unsafe.Pointer, k)
			for i := range srcs {
				srcs[i] = make([]byte, n*d.Size()+1)[1:]
				fill(r, srcs[i], d)
				pointers[i] = ptr(srcs[i])
			}
			got, want := make([]byte, n*d.Size()), make([]byte, n*d.Size())
			Pure.Reduce(ptr(want), pointers[0], pointers[1], n, d, tensor.Sum)
			level.Reduce(ptr(got), pointers[0], pointers[1], n, d, tensor.Sum)
			compare(t, fmt.Sprintf("%s %s", level, d), d, n, got, want, srcs[:2]...)
			Pure.ReduceAll(ptr(want), pointers, n, d, tensor.Sum)
			level.ReduceAll(ptr(got), pointers, n, d, tensor.Sum)
			compare(t, fmt.Sprintf("all, %s %s", level, d), d, n, got, want, srcs...)
			Pure.Scale(ptr(want), pointers[0], n, d, 1.0/3)
			level.Scale(ptr(got), pointers[0], n, d, 1.0/3)
			compare(t, fmt.Sprintf("scale, %s %s", level, d), d, n, got, want, srcs[0])
			if tensor.Check(tensor.Adasum, d) == nil {
				number(r, srcs[0], d)
				number(r, srcs[1], d)
				p1, p2, p3 := Pure.DotNorms(pointers[0], pointers[1], n, d)
				q1, q2, q3 := level.DotNorms(pointers[0], pointers[1], n, d)
				if !same(p1, q1) || !same(p2, q2) || !same(p3, q3) {
					t.Fatalf("%s %s: dot and norms are %g %g %g, the twin says %g %g %g", level, d, q1, q2, q3, p1, p2, p3)
				}
				Pure.AdasumCombine(ptr(want), pointers[0], pointers[1], n, d, 0.3, 0.9)
				level.AdasumCombine(ptr(got), pointers[0], pointers[1], n, d, 0.3, 0.9)
				compare(t, fmt.Sprintf("combine, %s %s", level, d), d, n, got, want, srcs[:2]...)
			}
		}
	}
}
