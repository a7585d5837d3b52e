//go:build amd64 && !purego

package kernel

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"hora/tensor"
)

// Every hook does a leading part of its elements, returns how many, and leaves the rest to the twin.

// detect asks the processor and, through it, the operating system for every instruction set
// that a level's code uses.
func detect() Level {
	x := &cpu.X86
	if !x.HasAVX2 || !x.HasFMA || !x.HasF16C || !x.HasBMI2 {
		return Pure
	}
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
		return AVX512
	}
	return AVX2
}

func reducePair(l Level, dst, a, b unsafe.Pointer, n int, t tensor.DType, op tensor.Op) int {
	if l == AVX512 {
		return pairAVX512(dst, a, b, n, t, op)
	}
	return pairAVX2(dst, a, b, n, t, op)
}

func reduceMany(l Level, dst unsafe.Pointer, srcs []unsafe.Pointer, from, n int, t tensor.DType, op tensor.Op) int {
	if l == AVX512 {
		return manyAVX512(dst, srcs, from, n, t, op)
	}
	return manyAVX2(dst, srcs, from, n, t, op)
}

// scaleVector: with AVX-512 any length is done to the end.
func scaleVector(l Level, dst, src unsafe.Pointer, n int, t tensor.DType, factor float64, divide bool) int {
	wide := l == AVX512
	if !wide {
		switch t {
		case tensor.Float64:
			n &^= 3
		case tensor.Float32, tensor.Float16:
			n &^= 7
		case tensor.BFloat16:
			n &^= 15
		}
		if n == 0 {
			return 0
		}
	}
	f := float32(factor)
	switch t {
	case tensor.Float32:
		switch {
		case wide && divide:
			divFloat32AVX512(dst, src, n, f)
		case wide:
			mulFloat32AVX512(dst, src, n, f)
		case divide:
			divFloat32AVX2(dst, src, n, f)
		default:
			mulFloat32AVX2(dst, src, n, f)
		}
	case tensor.Float64:
		switch {
		case wide && divide:
			divFloat64AVX512(dst, src, n, factor)
		case wide:
			mulFloat64AVX512(dst, src, n, factor)
		case divide:
			divFloat64AVX2(dst, src, n, factor)
		default:
			mulFloat64AVX2(dst, src, n, factor)
		}
	case tensor.Float16:
		switch {
		case wide && divide:
			divFloat16AVX512(dst, src, n, f)
		case wide:
			mulFloat16AVX512(dst, src, n, f)
		case divide:
			divFloat16AVX2(dst, src, n, f)
		default:
			mulFloat16AVX2(dst, src, n, f)
		}
	case tensor.BFloat16:
		switch {
		case wide && divide:
			divBFloat16AVX512(dst, src, n, f)
		case wide:
			mulBFloat16AVX512(dst, src, n, f)
		case divide:
			divBFloat16AVX2(dst, src, n, f)
		default:
			mulBFloat16AVX2(dst, src, n, f)
		}
	default:
		return 0
	}
	return n
}

func toFloat32Vector(l Level, dst *float32, src unsafe.Pointer, n int, t tensor.DType) int {
	wide := l == AVX512
	if n &^= 7; wide {
		n &^= 15
	}
	if n == 0 {
		return 0
	}
	p := unsafe.Pointer(dst)
	switch {
	case t == tensor.Float16 && wide:
		widenFloat16AVX512(p, src, n)
	case t == tensor.Float16:
		widenFloat16AVX2(p, src, n)
	case t == tensor.BFloat16 && wide:
		widenBFloat16AVX512(p, src, n)
	case t == tensor.BFloat16:
		widenBFloat16AVX2(p, src, n)
	case t == tensor.Float8E4M3 && wide:
		widenE4M3AVX512(p, src, n)
	case t == tensor.Float8E4M3:
		widenE4M3AVX2(p, src, n)
	case t == tensor.Float8E5M2 && wide:
		widenE5M2AVX512(p, src, n)
	case t == tensor.Float8E5M2:
		widenE5M2AVX2(p, src, n)
	default:
		return 0
	}
	return n
}

func fromFloat32Vector(l Level, dst unsafe.Pointer, src *float32, n int, t tensor.DType) int {
	wide := l == AVX512
	if n &^= 7; wide {
		n &^= 15
	}
	if n == 0 {
		return 0
	}
	p := unsafe.Pointer(src)
	switch {
	case t == tensor.Float16 && wide:
		roundFloat16AVX512(dst, p, n)
	case t == tensor.Float16:
		roundFloat16AVX2(dst, p, n)
	case t == tensor.BFloat16 && wide:
		roundBFloat16AVX512(dst, p, n)
	case t == tensor.BFloat16:
		roundBFloat16AVX2(dst, p, n)
	case t == tensor.Float8E4M3 && wide:
		roundE4M3AVX512(dst, p, n)
	case t == tensor.Float8E4M3:
		roundE4M3AVX2(dst, p, n)
	case t == tensor.Float8E5M2 && wide:
		roundE5M2AVX512(dst, p, n)
	case t == tensor.Float8E5M2:
		roundE5M2AVX2(dst, p, n)
	default:
		return 0
	}
	return n
}

func dotVector(l Level, a, b unsafe.Pointer, n int, t tensor.DType, lanes *[3 * dotLanes]float64) int {
	if n &^= dotLanes - 1; n == 0 {
		return 0
	}
	switch {
	case t == tensor.Float32 && l == AVX512:
		dotFloat32AVX512(a, b, n, lanes)
	case t == tensor.Float32:
		dotFloat32AVX2(a, b, n, lanes)
	case l == AVX512:
		dotFloat64AVX512(a, b, n, lanes)
	default:
		dotFloat64AVX2(a, b, n, lanes)
	}
	return n
}

func combineVector(l Level, dst, a, b unsafe.Pointer, n int, t tensor.DType, ca, cb float64) int {
	if n &^= 3; l == AVX512 {
		n &^= 7
	}
	if n == 0 {
		return 0
	}
	switch {
	case t == tensor.Float32 && l == AVX512:
		combineFloat32AVX512(dst, a, b, n, ca, cb)
	case t == tensor.Float32:
		combineFloat32AVX2(dst, a, b, n, ca, cb)
	case l == AVX512:
		combineFloat64AVX512(dst, a, b, n, ca, cb)
	default:
		combineFloat64AVX2(dst, a, b, n, ca, cb)
	}
	return n
}

// copyStreamVector aligns dst to a cache line first: streaming stores of whole lines only.
func copyStreamVector(l Level, dst, src unsafe.Pointer, n int) int {
	head := int(-uintptr(dst) & 63)
	body := (n - head) &^ 255
	if body <= 0 {
		return 0
	}
	Copy(dst, src, head)
	dst, src = unsafe.Add(dst, head), unsafe.Add(src, head)
	if l == AVX512 {
		copyStreamAVX512(dst, src, body)
	} else {
		copyStreamAVX2(dst, src, body)
	}
	return head + body
}

func copyAheadVector(l Level, dst, src unsafe.Pointer, n int) int {
	if n >= stringLeast {
		copyString(dst, src, n)
		return n
	}
	if n &^= 63; n == 0 {
		return 0
	}
	if l == AVX512 {
		copyAheadAVX512(dst, src, n)
	} else {
		copyAheadAVX2(dst, src, n)
	}
	return n
}

func copyFetchVector(l Level, dst, src unsafe.Pointer, n int) int {
	if n &^= 63; n == 0 {
		return 0
	}
	if l == AVX512 {
		copyFetchAVX512(dst, src, n)
	} else {
		copyFetchAVX2(dst, src, n)
	}
	return n
}
