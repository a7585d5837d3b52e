package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"hora/tensor"
)

// The twin against what the numbers mean.

// narrowFloat describes a float of few bits for an oracle that knows only its layout.
type narrowFloat struct {
	t              tensor.DType
	exp, frac      int // bits
	finite         bool
	values         map[uint32]float64
	largest        uint32
	codes, signBit uint32
}

func narrowFloats() []*narrowFloat {
	list := []*narrowFloat{
		{t: tensor.Float16, exp: 5, frac: 10},
		{t: tensor.BFloat16, exp: 8, frac: 7},
		{t: tensor.Float8E4M3, exp: 4, frac: 3, finite: true},
		{t: tensor.Float8E5M2, exp: 5, frac: 2},
	}
	for _, f := range list {
		f.codes, f.signBit, f.values = 1<<(1+f.exp+f.frac), 1<<(f.exp+f.frac), map[uint32]float64{}
		for c := range f.signBit {
			e, m := int(c>>f.frac), int(c)&(1<<f.frac-1)
			bias := 1<<(f.exp-1) - 1
			v := math.Ldexp(float64(m), 1-bias-f.frac)
			switch top := e == 1<<f.exp-1; {
			case top && f.finite && m == 1<<f.frac-1, top && !f.finite && m > 0:
				v = math.NaN()
			case top && !f.finite:
				v = math.Inf(1)
			case e > 0:
				v = math.Ldexp(float64(1<<f.frac+m), e-bias-f.frac)
			}
			if !math.IsInf(v, 0) && v == v {
				f.largest = c
			}
			f.values[c], f.values[c|f.signBit] = v, math.Copysign(v, -1)
		}
	}
	return list
}

func (f *narrowFloat) decode(c uint32) float32 {
	var out float32
	code := []byte{byte(c), byte(c >> 8)}
	Pure.ToFloat32(&out, ptr(code), 1, f.t)
	return out
}

func (f *narrowFloat) encode(v float32) uint32 {
	var code [2]byte
	Pure.FromFloat32(ptr(code[:]), &v, 1, f.t)
	return uint32(code[0]) | uint32(code[1])<<8
}

func TestNarrowFloatsMeanWhatTheySay(t *testing.T) {
	for _, f := range narrowFloats() {
		for c := range f.codes {
			want, got := f.values[c], f.decode(c)
			if !same(want, float64(got)) && (want == want || got == got) {
				t.Fatalf("%s %#x is %g, not %g", f.t, c, want, got)
			}
			if want == want {
				if back := f.encode(got); back != c {
					t.Fatalf("%s %#x comes back as %#x", f.t, c, back)
				}
			} else if back := f.decode(f.encode(got)); back == back {
				t.Fatalf("%s %#x is NaN and comes back as %g", f.t, c, back)
			}
		}
	}
}

// Halfway between two neighbours the even one is taken; a hair to either side, the nearer.
func TestNarrowFloatsRoundToNearestEven(t *testing.T) {
	for _, f := range narrowFloats() {
		for c := uint32(0); c < f.largest; c++ {
			half := float32((f.values[c] + f.values[c+1]) / 2)
			even := c + c&1
			below, above := math.Nextafter32(half, 0), math.Nextafter32(half, float32(math.Inf(1)))
			for _, sign := range []uint32{0, f.signBit} {
				flip := float32(1)
				if sign != 0 {
					flip = -1
				}
				for _, probe := range []struct {
					v    float32
					want uint32
				}{{half, even}, {below, c}, {above, c + 1}} {
					if got := f.encode(flip * probe.v); got != probe.want|sign {
						t.Fatalf("%s: %g is rounded to %#x, not %#x", f.t, flip*probe.v, got, probe.want|sign)
					}
				}
			}
		}
		top := f.values[f.largest]
		over := float32(top + (top-f.values[f.largest-1])/2) // halfway to where the next would be
		if f.finite {
			if got := f.encode(over); f.values[got] != top {
				t.Fatalf("%s: a tie above the largest is even, so it should stay; it is %#x", f.t, got)
			}
			for _, v := range []float32{math.Nextafter32(over, math.MaxFloat32), 1e30, float32(math.Inf(-1))} {
				if got := f.encode(v); f.values[got] == f.values[got] {
					t.Fatalf("%s: %g is %#x, not NaN", f.t, v, got)
				}
			}
			continue
		}
		if got := f.encode(math.Nextafter32(over, 0)); got != f.largest {
			t.Fatalf("%s: just below halfway to infinity is %#x", f.t, got)
		}
		for _, v := range []float32{over, math.MaxFloat32, float32(math.Inf(1))} {
			if got := f.encode(v); f.decode(got) != float32(math.Inf(1)) {
				t.Fatalf("%s: %g is %#x, not infinite", f.t, v, got)
			}
		}
	}
}

func reduceOne[T tensor.Element](a, b T, op tensor.Op) T {
	var r T
	Pure.Reduce(unsafe.Pointer(&r), unsafe.Pointer(&a), unsafe.Pointer(&b), 1, tensor.TypeOf[T](), op)
	return r
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, not %v", what, got, want)
	}
}

func TestIntegersAndBools(t *testing.T) {
	expect(t, "uint8 200+100", reduceOne[uint8](200, 100, tensor.Sum), 44)
	expect(t, "int8 100+100", reduceOne[int8](100, 100, tensor.Sum), -56)
	expect(t, "int8 min", reduceOne[int8](-1, 1, tensor.Min), -1)
	expect(t, "uint8 max", reduceOne[uint8](255, 1, tensor.Max), 255)
	expect(t, "int64 max", reduceOne[int64](math.MinInt64, -1, tensor.Max), -1)
	expect(t, "uint64 min", reduceOne[uint64](1<<63, 1, tensor.Min), 1)
	expect(t, "int64 product", reduceOne[int64](-3, 1<<40, tensor.Product), -3<<40)
	expect(t, "int16 xor", reduceOne[int16](0x0ff0, 0x00ff, tensor.Xor), 0x0f0f)
	expect(t, "uint32 and", reduceOne[uint32](0xffff0000, 0x0ff00ff0, tensor.And), 0x0ff00000)
	for _, a := range []bool{false, true} {
		for _, b := range []bool{false, true} {
			for op, want := range map[tensor.Op]bool{
				tensor.Sum: a || b, tensor.Max: a || b, tensor.Or: a || b,
				tensor.Product: a && b, tensor.Min: a && b, tensor.And: a && b, tensor.Xor: a != b,
			} {
				expect(t, op.String()+" of bools", reduceOne(a, b, op), want)
			}
		}
	}
}

func TestFloatsAndTheirNaNs(t *testing.T) {
	nan, inf, zero := math.NaN(), math.Inf(1), math.Copysign(0, -1)
	for _, c := range []struct {
		a, b, sum, product, least, most float64
	}{
		{1.5, 2, 3.5, 3, 1.5, 2},
		{zero, 0, 0, zero, zero, 0},
		{0, zero, 0, zero, zero, 0},
		{inf, -inf, nan, -inf, -inf, inf},
		{nan, 1, nan, nan, nan, nan},
		{1, nan, nan, nan, nan, nan},
		{inf, 0, inf, nan, 0, inf},
		{5e-324, 5e-324, 1e-323, 0, 5e-324, 5e-324},
	} {
		for op, want := range map[tensor.Op]float64{
			tensor.Sum: c.sum, tensor.Average: c.sum,
			tensor.Product: c.product, tensor.Min: c.least, tensor.Max: c.most,
		} {
			if got := reduceOne(c.a, c.b, op); !same(got, want) {
				t.Errorf("%s of %g and %g = %g, not %g", op, c.a, c.b, got, want)
			}
			if math.Abs(c.a) < 1e-300 && c.a != 0 {
				continue
			}
			if got := reduceOne(float32(c.a), float32(c.b), op); !same(float64(got), want) {
				t.Errorf("%s of float32 %g and %g = %g, not %g", op, c.a, c.b, got, want)
			}
		}
	}
	expect(t, "complex product", reduceOne[complex128](1+2i, 3-1i, tensor.Product), 5+5i)
	expect(t, "complex64 product", reduceOne[complex64](1+2i, 3-1i, tensor.Product), 5+5i)
	expect(t, "complex sum", reduceOne[complex64](1+2i, 3-1i, tensor.Sum), 4+1i)
}

// Many 16-bit floats are summed in float32 in the order of the sources, with one rounding.
func TestNarrowSumsRoundOnce(t *testing.T) {
	r := newRand(t)
	for _, level := range Levels() {
		for _, f := range narrowFloats() {
			size := f.t.Size()
			const n, k = 67, 7
			srcs, pointers := make([][]byte, k), make([]unsafe.Pointer, k)
			for i := range srcs {
				srcs[i] = make([]byte, n*size)
				number(r, srcs[i], f.t)
				pointers[i] = ptr(srcs[i])
			}
			got := make([]byte, n*size)
			level.ReduceAll(ptr(got), pointers, n, f.t, tensor.Sum)
			for i := range n {
				var sum float32
				for j := range srcs {
					sum += float32(f.values[code(srcs[j], i, size)])
				}
				if g := code(got, i, size); g != f.encode(sum) {
					t.Fatalf("%s %s: element %d is %#x, not %#x", level, f.t, i, g, f.encode(sum))
				}
			}
		}
	}
}

func code(p []byte, i, size int) uint32 {
	c := uint32(p[i*size])
	if size == 2 {
		c |= uint32(p[i*size+1]) << 8
	}
	return c
}

func TestScaleAndAverage(t *testing.T) {
	for _, level := range Levels() {
		x := []int32{7, -7, math.MaxInt32, math.MinInt32, 0}
		level.AverageScale(unsafe.Pointer(&x[0]), len(x), tensor.Int32, 2)
		for i, want := range []int32{3, -3, math.MaxInt32 / 2, math.MinInt32 / 2, 0} {
			expect(t, "int32 average", x[i], want)
		}
		big := []int64{math.MaxInt64, math.MinInt64, -10}
		level.AverageScale(unsafe.Pointer(&big[0]), len(big), tensor.Int64, 3)
		for i, want := range []int64{math.MaxInt64 / 3, math.MinInt64 / 3, -3} {
			expect(t, "int64 average", big[i], want)
		}
		y := []int8{100, -100, 7, -7}
		level.Scale(unsafe.Pointer(&y[0]), unsafe.Pointer(&y[0]), len(y), tensor.Int8, 1.5)
		for i, want := range []int8{127, -128, 10, -10} {
			expect(t, "int8 times 1.5", y[i], want)
		}
		u := []uint64{math.MaxUint64, 3}
		level.Scale(unsafe.Pointer(&u[0]), unsafe.Pointer(&u[0]), len(u), tensor.Uint64, 2)
		expect(t, "uint64 times 2", u[0], math.MaxUint64)
		expect(t, "uint64 times 2", u[1], 6)
		r := rand.New(rand.NewPCG(1, 2))
		f := make([]float32, 50)
		for i := range f {
			f[i] = float32(r.NormFloat64())
		}
		for _, ranks := range []int{1, 2, 3, 7, 8} {
			g := make([]float32, len(f))
			copy(g, f)
			level.AverageScale(unsafe.Pointer(&g[0]), len(g), tensor.Float32, ranks)
			for i := range g {
				expect(t, "float32 average", g[i], float32(float64(f[i])/float64(ranks)))
			}
		}
	}
}

func TestAdasumValues(t *testing.T) {
	a, b := []float32{1, 2, 3}, []float32{4, -5, 6}
	dot, aa, bb := DotNorms(unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0]), 3, tensor.Float32)
	expect(t, "dot", dot, 12)
	expect(t, "norm of a", aa, 14)
	expect(t, "norm of b", bb, 77)
	AdasumCombine(unsafe.Pointer(&a[0]), unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0]), 3, tensor.Float32, 0.5, 2)
	for i, want := range []float32{8.5, -9, 13.5} {
		expect(t, "combine", a[i], want)
	}
}

func TestRefusals(t *testing.T) {
	var x [16]byte
	p := unsafe.Pointer(&x)
	for what, f := range map[string]func(){
		"min of complex":    func() { Reduce(p, p, p, 1, tensor.Complex64, tensor.Min) },
		"and of float":      func() { ReduceAll(p, []unsafe.Pointer{p, p, p}, 1, tensor.Float32, tensor.And) },
		"adasum by Reduce":  func() { Reduce(p, p, p, 1, tensor.Float32, tensor.Adasum) },
		"no sources":        func() { ReduceAll(p, nil, 1, tensor.Float32, tensor.Sum) },
		"no ranks":          func() { AverageScale(p, 1, tensor.Float32, 0) },
		"dots of integers":  func() { DotNorms(p, p, 1, tensor.Int32) },
		"scale of no type":  func() { Scale(p, p, 1, tensor.Invalid, 2) },
		"widening float64s": func() { ToFloat32((*float32)(p), p, 1, tensor.Float64) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was not refused", what)
				}
			}()
			f()
		}()
	}
	Reduce(nil, nil, nil, 0, tensor.Float32, tensor.Sum)
	ReduceAll(nil, nil, 0, tensor.Float32, tensor.Sum)
	Scale(nil, nil, 0, tensor.Float32, 2)
	CopyStream(nil, nil, 0)
}

func TestNothingAllocates(t *testing.T) {
	if raceEnabled {
		return // the detector allocates
	}
	x, y, z := make([]byte, 4096), make([]byte, 4096), make([]byte, 4096)
	for _, level := range Levels() {
		for _, c := range reducible() {
			n := len(x) / c.T.Size()
			got := testing.AllocsPerRun(10, func() {
				level.Reduce(ptr(x), ptr(y), ptr(z), n, c.T, c.Op)
				srcs := [3]unsafe.Pointer{ptr(x), ptr(y), ptr(z)}
				level.ReduceAll(ptr(x), srcs[:], n, c.T, c.Op)
				level.Scale(ptr(x), ptr(y), n, c.T, 0.5)
			})
			if got != 0 {
				t.Errorf("%s %s %s: %g allocations", level, c.T, c.Op, got)
			}
		}
	}
}
