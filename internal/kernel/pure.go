package kernel

import (
	"unsafe"

	"hora/tensor"
)

// integer is the set of types whose sums and products wrap around.
type integer interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64
}

// view is n elements of type T at p, which need not be aligned: both of our processors read
// and write unaligned elements.
func view[T any](p unsafe.Pointer, n int) []T { return unsafe.Slice((*T)(p), n) }

// reducePure is the twin of every pair kernel. It knows only the cases that plainer leaves. l
// chooses how 8-bit floats are reduced once they are float32.
func reducePure(l Level, dst, a, b unsafe.Pointer, n int, t tensor.DType, op tensor.Op) {
	switch t {
	case tensor.Bool:
		foldBool(view[uint8](dst, n), view[uint8](a, n), view[uint8](b, n), op)
	case tensor.Uint8:
		foldInteger[uint8](dst, a, b, n, op)
	case tensor.Int8:
		foldInteger[int8](dst, a, b, n, op)
	case tensor.Uint16:
		foldInteger[uint16](dst, a, b, n, op)
	case tensor.Int16:
		foldInteger[int16](dst, a, b, n, op)
	case tensor.Uint32:
		foldInteger[uint32](dst, a, b, n, op)
	case tensor.Int32:
		foldInteger[int32](dst, a, b, n, op)
	case tensor.Uint64:
		foldInteger[uint64](dst, a, b, n, op)
	case tensor.Int64:
		foldInteger[int64](dst, a, b, n, op)
	case tensor.Float32:
		foldFloat32(view[float32](dst, n), view[float32](a, n), view[float32](b, n), op)
	case tensor.Float64:
		foldFloat64(view[float64](dst, n), view[float64](a, n), view[float64](b, n), op)
	case tensor.Complex64:
		multiplyComplex64(view[complex64](dst, n), view[complex64](a, n), view[complex64](b, n))
	case tensor.Complex128:
		multiplyComplex128(view[complex128](dst, n), view[complex128](a, n), view[complex128](b, n))
	default:
		pair := [2]unsafe.Pointer{a, b}
		reduceNarrow(l, dst, pair[:], 0, n, t, op)
	}
}

// reduceAllPure is the twin of every kernel of many sources, over elements [from, from+n) of all of them. Scratch
// memory is cleared each time, so the few elements that a vector kernel leaves get little of it.
func reduceAllPure(l Level, dst unsafe.Pointer, srcs []unsafe.Pointer, from, n int, t tensor.DType, op tensor.Op) {
	size := t.Size()
	switch {
	case t == tensor.Float16 || t == tensor.BFloat16 || isFloat8(t):
		reduceNarrow(l, dst, srcs, from, n, t, op)
	case n*size <= 64:
		var block [64]byte
		reduceBlocks(l, block[:], dst, srcs, from, n, t, op)
	default:
		var block [2048]byte
		reduceBlocks(l, block[:], dst, srcs, from, n, t, op)
	}
}

// reduceBlocks writes a block of dst only when all sources have been read there, for dst may be any of them.
func reduceBlocks(l Level, block []byte, dst unsafe.Pointer, srcs []unsafe.Pointer, from, n int, t tensor.DType,
	op tensor.Op,
) {
	size := t.Size()
	acc, step := unsafe.Pointer(unsafe.SliceData(block)), len(block)/size
	for end := from + n; from < end; from += step {
		m := min(end-from, step)
		reducePure(l, acc, unsafe.Add(srcs[0], from*size), unsafe.Add(srcs[1], from*size), m, t, op)
		for _, s := range srcs[2:] {
			reducePure(l, acc, acc, unsafe.Add(s, from*size), m, t, op)
		}
		copy(view[byte](unsafe.Add(dst, from*size), m*size), block)
	}
}

// reduceNarrow folds floats of 16 and 8 bits in float32 and rounds once.
func reduceNarrow(l Level, dst unsafe.Pointer, srcs []unsafe.Pointer, from, n int, t tensor.DType, op tensor.Op) {
	if n <= 16 {
		var acc, next [16]float32
		reduceWidened(l, acc[:], next[:], dst, srcs, from, n, t, op)
		return
	}
	var acc, next [512]float32
	reduceWidened(l, acc[:], next[:], dst, srcs, from, n, t, op)
}

func reduceWidened(l Level, acc, next []float32, dst unsafe.Pointer, srcs []unsafe.Pointer, from, n int,
	t tensor.DType, op tensor.Op,
) {
	size, step := t.Size(), len(acc)
	p, q := unsafe.Pointer(&acc[0]), unsafe.Pointer(&next[0])
	for end := from + n; from < end; from += step {
		m, done := min(end-from, step), 0
		l.toFloat32(&acc[0], unsafe.Add(srcs[0], from*size), m, t)
		for _, s := range srcs[1:] {
			l.toFloat32(&next[0], unsafe.Add(s, from*size), m, t)
			if l != Pure {
				done = reducePair(l, p, p, q, m, tensor.Float32, op)
			}
			foldFloat32(acc[done:m], acc[done:m], next[done:m], op)
		}
		l.fromFloat32(unsafe.Add(dst, from*size), &acc[0], m, t)
	}
}

func foldInteger[T integer](pd, pa, pb unsafe.Pointer, n int, op tensor.Op) {
	dst, a, b := view[T](pd, n), view[T](pa, n), view[T](pb, n)
	a, b = a[:len(dst)], b[:len(dst)]
	switch op {
	case tensor.Sum:
		for i := range dst {
			dst[i] = a[i] + b[i]
		}
	case tensor.Product:
		for i := range dst {
			dst[i] = a[i] * b[i]
		}
	case tensor.Min:
		for i := range dst {
			dst[i] = min(a[i], b[i])
		}
	case tensor.Max:
		for i := range dst {
			dst[i] = max(a[i], b[i])
		}
	case tensor.And:
		for i := range dst {
			dst[i] = a[i] & b[i]
		}
	case tensor.Or:
		for i := range dst {
			dst[i] = a[i] | b[i]
		}
	case tensor.Xor:
		for i := range dst {
			dst[i] = a[i] ^ b[i]
		}
	}
}

// foldBool takes any byte but 0 as true and writes 0 and 1 only.
func foldBool(dst, a, b []uint8, op tensor.Op) {
	switch op {
	case tensor.Or:
		for i := range dst {
			dst[i] = min(a[i]|b[i], 1)
		}
	case tensor.And:
		for i := range dst {
			dst[i] = min(a[i], b[i], 1)
		}
	case tensor.Xor:
		for i := range dst {
			dst[i] = min(a[i], 1) ^ min(b[i], 1)
		}
	}
}

func foldFloat32(dst, a, b []float32, op tensor.Op) {
	a, b = a[:len(dst)], b[:len(dst)]
	switch op {
	case tensor.Sum:
		for i := range dst {
			r := a[i] + b[i]
			if r != r {
				r = nan32(a[i], b[i])
			}
			dst[i] = r
		}
	case tensor.Product:
		for i := range dst {
			r := a[i] * b[i]
			if r != r {
				r = nan32(a[i], b[i])
			}
			dst[i] = r
		}
	case tensor.Min:
		for i := range dst {
			r := min(a[i], b[i])
			if r != r {
				r = quietNaN32
			}
			dst[i] = r
		}
	case tensor.Max:
		for i := range dst {
			r := max(a[i], b[i])
			if r != r {
				r = quietNaN32
			}
			dst[i] = r
		}
	}
}

func foldFloat64(dst, a, b []float64, op tensor.Op) {
	a, b = a[:len(dst)], b[:len(dst)]
	switch op {
	case tensor.Sum:
		for i := range dst {
			r := a[i] + b[i]
			if r != r {
				r = nan64(a[i], b[i])
			}
			dst[i] = r
		}
	case tensor.Product:
		for i := range dst {
			r := a[i] * b[i]
			if r != r {
				r = nan64(a[i], b[i])
			}
			dst[i] = r
		}
	case tensor.Min:
		for i := range dst {
			r := min(a[i], b[i])
			if r != r {
				r = quietNaN64
			}
			dst[i] = r
		}
	case tensor.Max:
		for i := range dst {
			r := max(a[i], b[i])
			if r != r {
				r = quietNaN64
			}
			dst[i] = r
		}
	}
}

// multiplyComplex64 takes the products exactly, in float64, and rounds each part twice: the sum to
// float64, then to float32.
func multiplyComplex64(dst, a, b []complex64) {
	for i := range dst {
		ar, ai := float64(real(a[i])), float64(imag(a[i]))
		br, bi := float64(real(b[i])), float64(imag(b[i]))
		dst[i] = complex(float32(float64(ar*br)-float64(ai*bi)), float32(float64(ar*bi)+float64(ai*br)))
	}
}

// multiplyComplex128 rounds every product: the conversions keep the compiler from fusing, which
// would make arm64 and amd64 differ.
func multiplyComplex128(dst, a, b []complex128) {
	for i := range dst {
		ar, ai, br, bi := real(a[i]), imag(a[i]), real(b[i]), imag(b[i])
		dst[i] = complex(float64(ar*br)-float64(ai*bi), float64(ar*bi)+float64(ai*br))
	}
}
