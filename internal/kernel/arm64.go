//go:build arm64 && !purego

package kernel

import (
	"math"
	"unsafe"

	"hora/tensor"
)

// Every hook does a leading part of its elements, returns how many, and leaves the rest to the twin.

// detect: every arm64 processor that Go runs on has NEON with conversions of float16.
func detect() Level { return NEON }

func reducePair(_ Level, dst, a, b unsafe.Pointer, n int, t tensor.DType, op tensor.Op) int {
	return pairNEON(dst, a, b, n, t, op)
}

func reduceMany(_ Level, dst unsafe.Pointer, srcs []unsafe.Pointer, from, n int, t tensor.DType, op tensor.Op) int {
	return manyNEON(dst, srcs, from, n, t, op)
}

func scaleVector(_ Level, dst, src unsafe.Pointer, n int, t tensor.DType, factor float64, divide bool) int {
	if size := t.Size(); size > 0 {
		n &^= 16/size - 1
	}
	if n == 0 {
		return 0
	}
	f := float32(factor)
	switch t {
	case tensor.Float32:
		if divide {
			divFloat32NEON(dst, src, n, f)
		} else {
			mulFloat32NEON(dst, src, n, f)
		}
	case tensor.Float64:
		if divide {
			divFloat64NEON(dst, src, n, factor)
		} else {
			mulFloat64NEON(dst, src, n, factor)
		}
	case tensor.Float16:
		if divide {
			divFloat16NEON(dst, src, n, f)
		} else {
			mulFloat16NEON(dst, src, n, f)
		}
	case tensor.BFloat16:
		if divide {
			divBFloat16NEON(dst, src, n, f)
		} else {
			mulBFloat16NEON(dst, src, n, f)
		}
	default:
		return 0
	}
	return n
}

func toFloat32Vector(_ Level, dst *float32, src unsafe.Pointer, n int, t tensor.DType) int {
	if n &^= 7; n == 0 {
		return 0
	}
	switch t {
	case tensor.Float16:
		widenFloat16NEON(unsafe.Pointer(dst), src, n)
	case tensor.BFloat16:
		widenBFloat16NEON(unsafe.Pointer(dst), src, n)
	default:
		return 0
	}
	return n
}

func fromFloat32Vector(_ Level, dst unsafe.Pointer, src *float32, n int, t tensor.DType) int {
	if n &^= 7; n == 0 {
		return 0
	}
	switch t {
	case tensor.Float16:
		roundFloat16NEON(dst, unsafe.Pointer(src), n)
	case tensor.BFloat16:
		roundBFloat16NEON(dst, unsafe.Pointer(src), n)
	default:
		return 0
	}
	return n
}

func dotVector(_ Level, a, b unsafe.Pointer, n int, t tensor.DType, lanes *[3 * dotLanes]float64) int {
	if n &^= dotLanes - 1; n == 0 {
		return 0
	}
	if t == tensor.Float32 {
		dotFloat32NEON(a, b, n, lanes)
	} else {
		dotFloat64NEON(a, b, n, lanes)
	}
	return n
}

func combineVector(_ Level, dst, a, b unsafe.Pointer, n int, t tensor.DType, ca, cb float64) int {
	if n &^= 3; n == 0 {
		return 0
	}
	if t == tensor.Float32 {
		combineFloat32NEON(dst, a, b, n, ca, cb)
	} else {
		combineFloat64NEON(dst, a, b, n, ca, cb)
	}
	return n
}

// copyStreamVector: Go's assembler has no streaming pair store, and the plain copy is good there.
func copyStreamVector(Level, unsafe.Pointer, unsafe.Pointer, int) int { return 0 }

// copyFetchVector leaves it to the processor, which finds the stream by itself.
func copyFetchVector(Level, unsafe.Pointer, unsafe.Pointer, int) int { return 0 }

// stringLeast says that no string instruction copies here.
const stringLeast = math.MaxInt

func copyTakeVector(Level, unsafe.Pointer, unsafe.Pointer, int) int { return 0 }

func copyAheadVector(_ Level, dst, src unsafe.Pointer, n int) int {
	if n &^= 63; n == 0 {
		return 0
	}
	copyAheadNEON(dst, src, n)
	return n
}
