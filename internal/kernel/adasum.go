package kernel

import (
	"unsafe"

	"hora/tensor"
)

// dotLanes is how many partial sums a dot product keeps: lane i%16 takes element i. The order of
// additions is thus the same at every level.
const dotLanes = 16

// DotNorms is a·b, a·a and b·b of floats (16, 32 and 64 bits), accumulated in float64.
func DotNorms(a, b unsafe.Pointer, n int, t tensor.DType) (dot, aa, bb float64) {
	return Best().DotNorms(a, b, n, t)
}

// AdasumCombine sets dst[i] = ca*a[i] + cb*b[i], computed in float64 and rounded for float32 once, for
// 16-bit floats through float32. dst may be a or b exactly.
func AdasumCombine(dst, a, b unsafe.Pointer, n int, t tensor.DType, ca, cb float64) {
	Best().AdasumCombine(dst, a, b, n, t, ca, cb)
}

// DotNorms is the package's DotNorms with the instructions of l.
func (l Level) DotNorms(a, b unsafe.Pointer, n int, t tensor.DType) (dot, aa, bb float64) {
	if err := tensor.Check(tensor.Adasum, t); err != nil {
		refuse(t, tensor.Adasum)
	}
	if n <= 0 {
		return 0, 0, 0
	}
	size := t.Size()
	raceRead(a, n*size)
	raceRead(b, n*size)
	var lanes [3 * dotLanes]float64
	for from := 0; from < n; {
		p, q := unsafe.Add(a, from*size), unsafe.Add(b, from*size)
		if t == tensor.Float32 || t == tensor.Float64 {
			m := min(n-from, pieceBytes/2/size)
			l.dot(p, q, m, t, &lanes)
			from += m
			continue
		}
		const step = 512 // a multiple of dotLanes, so that lanes go on where they were
		var x, y [step]float32
		m := min(n-from, step)
		l.toFloat32(&x[0], p, m, t)
		l.toFloat32(&y[0], q, m, t)
		l.dot(unsafe.Pointer(&x), unsafe.Pointer(&y), m, tensor.Float32, &lanes)
		from += m
	}
	return addLanes(lanes[:dotLanes]), addLanes(lanes[dotLanes : 2*dotLanes]), addLanes(lanes[2*dotLanes:])
}

// addLanes adds pairs, then pairs of pairs.
func addLanes(x []float64) float64 {
	for len(x) > 1 {
		half := len(x) / 2
		for i := range half {
			x[i] += x[i+half]
		}
		x = x[:half]
	}
	return x[0]
}

// dot adds n elements to lanes: dots first, then squares of a, then of b. The first element
// goes to lane 0.
func (l Level) dot(a, b unsafe.Pointer, n int, t tensor.DType, lanes *[3 * dotLanes]float64) {
	done := 0
	if l != Pure {
		done = dotVector(l, a, b, n, t, lanes)
	}
	if t == tensor.Float32 {
		dotPure(view[float32](a, n), view[float32](b, n), done, lanes)
	} else {
		dotPure(view[float64](a, n), view[float64](b, n), done, lanes)
	}
}

// The conversions of products keep the compiler from fusing them into the additions.
func dotPure[T float32 | float64](a, b []T, from int, lanes *[3 * dotLanes]float64) {
	for i := from; i < len(a); i++ {
		x, y, k := float64(a[i]), float64(b[i]), i%dotLanes
		lanes[k] += float64(x * y)
		lanes[k+dotLanes] += float64(x * x)
		lanes[k+2*dotLanes] += float64(y * y)
	}
}

// AdasumCombine is the package's AdasumCombine with the instructions of l.
func (l Level) AdasumCombine(dst, a, b unsafe.Pointer, n int, t tensor.DType, ca, cb float64) {
	if err := tensor.Check(tensor.Adasum, t); err != nil {
		refuse(t, tensor.Adasum)
	}
	if n <= 0 {
		return
	}
	size := t.Size()
	raceRead(a, n*size)
	raceRead(b, n*size)
	raceWrite(dst, n*size)
	for from := 0; from < n; {
		m := n - from
		dst, a, b := unsafe.Add(dst, from*size), unsafe.Add(a, from*size), unsafe.Add(b, from*size)
		if t == tensor.Float32 || t == tensor.Float64 {
			m = min(m, pieceBytes/4/size)
			l.combine(dst, a, b, m, t, ca, cb)
		} else {
			const step = 512
			var x, y [step]float32
			m = min(m, step)
			l.toFloat32(&x[0], a, m, t)
			l.toFloat32(&y[0], b, m, t)
			l.combine(unsafe.Pointer(&x), unsafe.Pointer(&x), unsafe.Pointer(&y), m, tensor.Float32, ca, cb)
			l.fromFloat32(dst, &x[0], m, t)
		}
		from += m
	}
}

func (l Level) combine(dst, a, b unsafe.Pointer, n int, t tensor.DType, ca, cb float64) {
	done := 0
	if l != Pure {
		done = combineVector(l, dst, a, b, n, t, ca, cb)
	}
	if t == tensor.Float32 {
		combinePure(view[float32](dst, n)[done:], view[float32](a, n)[done:], view[float32](b, n)[done:], ca, cb)
	} else {
		combinePure(view[float64](dst, n)[done:], view[float64](a, n)[done:], view[float64](b, n)[done:], ca, cb)
	}
}

func combinePure[T float32 | float64](dst, a, b []T, ca, cb float64) {
	for i := range dst {
		x, y := float64(a[i]), float64(b[i])
		x, y = float64(ca*x), float64(cb*y)
		r := x + y
		if r != r {
			r = nan64(x, y)
		}
		dst[i] = T(r)
	}
}
