package kernel

import (
	"math"
	"math/bits"
	"unsafe"

	"hora/tensor"
)

// Scale sets dst[i] = src[i] * factor; dst may be src exactly. float64 and complex128 multiply by factor
// itself, narrower floats by factor rounded to float32. Integers multiply in float64, truncate toward zero and stop
// at the ends of their range; 64-bit ones above 2^53 lose their low bits. Bool is copied.
func Scale(dst, src unsafe.Pointer, n int, t tensor.DType, factor float64) {
	Best().Scale(dst, src, n, t, factor)
}

// AverageScale divides n sums by the number of ranks: integers exactly, truncating toward zero; floats
// with one rounding (to float32 and then to t for narrower ones).
func AverageScale(dst unsafe.Pointer, n int, t tensor.DType, ranks int) {
	Best().AverageScale(dst, n, t, ranks)
}

// Scale is the package's Scale with the instructions of l.
func (l Level) Scale(dst, src unsafe.Pointer, n int, t tensor.DType, factor float64) {
	if factor == 1 || t == tensor.Bool {
		if dst != src && n > 0 {
			Copy(dst, src, n*t.Size())
		}
		return
	}
	l.scale(dst, src, n, t, factor, false)
}

// AverageScale is the package's AverageScale with the instructions of l.
func (l Level) AverageScale(dst unsafe.Pointer, n int, t tensor.DType, ranks int) {
	switch {
	case ranks <= 0:
		panic("kernel: average over no ranks")
	case ranks == 1 || t == tensor.Bool:
	case t.IsInteger():
		divideIntegers(dst, n, t, ranks)
	case bits.OnesCount(uint(ranks)) == 1: // the reciprocal is exact, and multiplying is faster
		l.scale(dst, dst, n, t, 1/float64(ranks), false)
	default:
		l.scale(dst, dst, n, t, float64(ranks), true)
	}
}

// scale multiplies, or divides (floats only), in pieces.
func (l Level) scale(dst, src unsafe.Pointer, n int, t tensor.DType, factor float64, divide bool) {
	if n <= 0 {
		return
	}
	if factor != factor {
		factor = math.NaN() // without payload: bfloat16's rounding relies on it
	}
	switch t {
	case tensor.Complex64:
		t, n = tensor.Float32, 2*n
	case tensor.Complex128:
		t, n = tensor.Float64, 2*n
	}
	size := t.Size()
	if size == 0 {
		refuse(t, tensor.Average)
	}
	raceRead(src, n*size)
	raceWrite(dst, n*size)
	step := pieceBytes / 2 / size
	for from := 0; from < n; from += step {
		m, off := min(n-from, step), from*size
		done := 0
		if l != Pure {
			done = scaleVector(l, unsafe.Add(dst, off), unsafe.Add(src, off), m, t, factor, divide)
		}
		if done < m {
			off += done * size
			scalePure(l, unsafe.Add(dst, off), unsafe.Add(src, off), m-done, t, factor, divide)
		}
	}
}

func scalePure(l Level, dst, src unsafe.Pointer, n int, t tensor.DType, factor float64, divide bool) {
	switch t {
	case tensor.Float32:
		scaleFloats(view[float32](dst, n), view[float32](src, n), float32(factor), divide)
	case tensor.Float64:
		scaleFloats(view[float64](dst, n), view[float64](src, n), factor, divide)
	case tensor.Float16, tensor.BFloat16, tensor.Float8E4M3, tensor.Float8E5M2:
		scaleNarrow(l, dst, src, n, t, factor, divide)
	case tensor.Uint8:
		scaleIntegers[uint8](dst, src, n, factor)
	case tensor.Int8:
		scaleIntegers[int8](dst, src, n, factor)
	case tensor.Uint16:
		scaleIntegers[uint16](dst, src, n, factor)
	case tensor.Int16:
		scaleIntegers[int16](dst, src, n, factor)
	case tensor.Uint32:
		scaleIntegers[uint32](dst, src, n, factor)
	case tensor.Int32:
		scaleIntegers[int32](dst, src, n, factor)
	case tensor.Uint64:
		scaleIntegers[uint64](dst, src, n, factor)
	case tensor.Int64:
		scaleIntegers[int64](dst, src, n, factor)
	default:
		refuse(t, tensor.Average)
	}
}

// scaleFloats needs no care for NaNs: the factor is a number or, if it is NaN, every result is; then the
// operand's payload wins on every processor, as x op factor has it first.
func scaleFloats[T float32 | float64](dst, src []T, factor T, divide bool) {
	for i, x := range src {
		r := x * factor
		if divide {
			r = x / factor
		}
		if r != r {
			r = nanOf(x, factor)
		}
		dst[i] = r
	}
}

func nanOf[T float32 | float64](a, b T) T {
	if unsafe.Sizeof(a) == 4 {
		return T(nan32(float32(a), float32(b)))
	}
	return T(nan64(float64(a), float64(b)))
}

func scaleNarrow(l Level, dst, src unsafe.Pointer, n int, t tensor.DType, factor float64, divide bool) {
	const step = 512
	var wide [step]float32
	size := t.Size()
	for from := 0; from < n; from += step {
		m := min(n-from, step)
		l.toFloat32(&wide[0], unsafe.Add(src, from*size), m, t)
		done := 0
		if l != Pure {
			p := unsafe.Pointer(&wide)
			done = scaleVector(l, p, p, m, tensor.Float32, factor, divide)
		}
		scaleFloats(wide[done:m], wide[done:m], float32(factor), divide)
		l.fromFloat32(unsafe.Add(dst, from*size), &wide[0], m, t)
	}
}

func scaleIntegers[T integer](pd, ps unsafe.Pointer, n int, factor float64) {
	dst, src := view[T](pd, n), view[T](ps, n)
	width := uint(unsafe.Sizeof(T(0)) * 8)
	low, high := 0.0, math.Ldexp(1, int(width)) // values are in [low, high)
	var lowest, highest T = 0, ^T(0)
	if highest < 0 { // T is signed
		low, high = -math.Ldexp(1, int(width)-1), math.Ldexp(1, int(width)-1)
		lowest = T(1) << (width - 1)
		highest = ^lowest
	}
	for i, x := range src {
		r := math.Trunc(float64(x) * factor)
		switch {
		case r >= high:
			dst[i] = highest
		case r <= low:
			dst[i] = lowest
		case r == r:
			dst[i] = T(r)
		default:
			dst[i] = 0
		}
	}
}

func divideIntegers(dst unsafe.Pointer, n int, t tensor.DType, ranks int) {
	switch t {
	case tensor.Uint8:
		divideUnsigned(view[uint8](dst, n), ranks)
	case tensor.Uint16:
		divideUnsigned(view[uint16](dst, n), ranks)
	case tensor.Uint32:
		divideUnsigned(view[uint32](dst, n), ranks)
	case tensor.Uint64:
		divideUnsigned(view[uint64](dst, n), ranks)
	case tensor.Int8:
		divideSigned(view[int8](dst, n), ranks)
	case tensor.Int16:
		divideSigned(view[int16](dst, n), ranks)
	case tensor.Int32:
		divideSigned(view[int32](dst, n), ranks)
	case tensor.Int64:
		divideSigned(view[int64](dst, n), ranks)
	}
}

func divideUnsigned[T uint8 | uint16 | uint32 | uint64](x []T, ranks int) {
	for i := range x {
		x[i] = T(uint64(x[i]) / uint64(ranks))
	}
}

func divideSigned[T int8 | int16 | int32 | int64](x []T, ranks int) {
	for i := range x {
		x[i] = T(int64(x[i]) / int64(ranks))
	}
}
