package kernel

import (
	"math"
	"math/bits"
	"unsafe"

	"hora/tensor"
)

// ToFloat32 widens n floats of 16 or 8 bits; every value is exact. Signalling NaNs become quiet, except
// bfloat16's, whose bits are kept.
func ToFloat32(dst *float32, src unsafe.Pointer, n int, t tensor.DType) {
	Best().ToFloat32(dst, src, n, t)
}

// FromFloat32 rounds n float32 to nearest even in t. 16-bit NaNs keep their sign and the payload that fits, 8-bit ones
// their sign; e4m3fn, which has no infinity, takes what is too large as NaN (as ml_dtypes does).
func FromFloat32(dst unsafe.Pointer, src *float32, n int, t tensor.DType) {
	Best().FromFloat32(dst, src, n, t)
}

// ToFloat32 is the package's ToFloat32 with the instructions of l.
func (l Level) ToFloat32(dst *float32, src unsafe.Pointer, n int, t tensor.DType) {
	if n <= 0 {
		return
	}
	raceRead(src, n*t.Size())
	raceWrite(unsafe.Pointer(dst), 4*n)
	const step = pieceBytes / 8
	for from := 0; from < n; from += step {
		out := (*float32)(unsafe.Add(unsafe.Pointer(dst), 4*from))
		l.toFloat32(out, unsafe.Add(src, from*t.Size()), min(n-from, step), t)
	}
}

// FromFloat32 is the package's FromFloat32 with the instructions of l.
func (l Level) FromFloat32(dst unsafe.Pointer, src *float32, n int, t tensor.DType) {
	if n <= 0 {
		return
	}
	raceRead(unsafe.Pointer(src), 4*n)
	raceWrite(dst, n*t.Size())
	const step = pieceBytes / 8
	for from := 0; from < n; from += step {
		in := (*float32)(unsafe.Add(unsafe.Pointer(src), 4*from))
		l.fromFloat32(unsafe.Add(dst, from*t.Size()), in, min(n-from, step), t)
	}
}

// toFloat32 converts one piece.
func (l Level) toFloat32(dst *float32, src unsafe.Pointer, n int, t tensor.DType) {
	done := 0
	if l != Pure {
		done = toFloat32Vector(l, dst, src, n, t)
	}
	out := unsafe.Slice(dst, n)
	switch t {
	case tensor.Float16:
		in := view[uint16](src, n)
		for i := done; i < n; i++ {
			out[i] = float16Value(in[i])
		}
	case tensor.BFloat16:
		in := view[uint16](src, n)
		for i := done; i < n; i++ {
			out[i] = bfloat16Value(in[i])
		}
	case tensor.Float8E4M3:
		in := view[uint8](src, n)
		for i := done; i < n; i++ {
			out[i] = e4m3Values[in[i]]
		}
	case tensor.Float8E5M2:
		in := view[uint8](src, n)
		for i := done; i < n; i++ {
			out[i] = e5m2Values[in[i]]
		}
	default:
		refuse(t, tensor.Sum)
	}
}

// fromFloat32 converts one piece.
func (l Level) fromFloat32(dst unsafe.Pointer, src *float32, n int, t tensor.DType) {
	done := 0
	if l != Pure {
		done = fromFloat32Vector(l, dst, src, n, t)
	}
	in := unsafe.Slice(src, n)
	switch t {
	case tensor.Float16:
		out := view[uint16](dst, n)
		for i := done; i < n; i++ {
			out[i] = float16Bits(in[i])
		}
	case tensor.BFloat16:
		out := view[uint16](dst, n)
		for i := done; i < n; i++ {
			out[i] = bfloat16Bits(in[i])
		}
	case tensor.Float8E4M3:
		out := view[uint8](dst, n)
		for i := done; i < n; i++ {
			out[i] = e4m3Bits(in[i])
		}
	case tensor.Float8E5M2:
		out := view[uint8](dst, n)
		for i := done; i < n; i++ {
			out[i] = e5m2Bits(in[i])
		}
	default:
		refuse(t, tensor.Sum)
	}
}

// bfloat16Value keeps every bit.
func bfloat16Value(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// bfloat16Bits rounds to nearest even.
func bfloat16Bits(f float32) uint16 {
	x := math.Float32bits(f)
	if x&0x7fffffff > 0x7f800000 {
		return uint16((x | quiet32) >> 16)
	}
	return uint16((x + 0x7fff + x>>16&1) >> 16)
}

// float16Value is exact. A NaN becomes quiet.
func float16Value(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp, frac := uint32(h>>10)&31, uint32(h)&0x3ff
	switch {
	case exp == 31 && frac != 0:
		return math.Float32frombits(sign | 0x7fc00000 | frac<<13)
	case exp == 31:
		return math.Float32frombits(sign | 0x7f800000)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	case frac == 0:
		return math.Float32frombits(sign)
	}
	shift := uint32(bits.LeadingZeros32(frac)) - 21 // brings the leading one to bit 10
	return math.Float32frombits(sign | (113-shift)<<23 | (frac<<shift&0x3ff)<<13)
}

// float16Bits rounds to nearest even: what is too small keeps fewer bits, what is too large is infinite.
func float16Bits(f float32) uint16 {
	x := math.Float32bits(f)
	sign := uint16(x >> 16 & 0x8000)
	x &= 0x7fffffff
	switch {
	case x > 0x7f800000:
		return sign | 0x7e00 | uint16(x>>13&0x3ff)
	case x >= 0x477ff000: // halfway from the largest float16 to 65536
		return sign | 0x7c00
	case x >= 0x38800000: // normal
		x += 0xfff + x>>13&1
		return sign | uint16((x-0x38000000)>>13)
	case x < 0x33000000: // below half of the smallest
		return sign
	}
	shift := 126 - x>>23 // 14 … 24 bits fall off the 24-bit significand
	frac := x&0x7fffff | 0x800000
	kept, lost := frac>>shift, frac<<(32-shift)
	if lost > 1<<31 || lost == 1<<31 && kept&1 == 1 {
		kept++
	}
	return sign | uint16(kept)
}

// e4m3Values are all 256 values of e4m3fn.
var e4m3Values = tabulateE4M3()

func tabulateE4M3() (table [256]float32) {
	for i := range table {
		exp, frac := i>>3&15, i&7
		v := math.Ldexp(float64(frac), -9)
		switch {
		case exp == 15 && frac == 7:
			table[i] = math.Float32frombits(uint32(i&0x80)<<24 | 0x7fc00000)
			continue
		case exp > 0:
			v = math.Ldexp(float64(8+frac), exp-10)
		}
		if i >= 0x80 {
			v = math.Copysign(v, -1)
		}
		table[i] = float32(v)
	}
	return table
}

// e5m2Values are all 256 values of e5m2: upper halves of float16.
var e5m2Values = tabulateE5M2()

func tabulateE5M2() (table [256]float32) {
	for i := range table {
		table[i] = float16Value(uint16(i) << 8)
	}
	return table
}

// e4m3Bits rounds to nearest even. Above 464, halfway from 448 to what would be 480, there is only NaN.
func e4m3Bits(f float32) uint8 {
	x := math.Float32bits(f)
	sign := uint8(x >> 24 & 0x80)
	x &= 0x7fffffff
	switch {
	case x > 0x43e80000: // 464
		return sign | 0x7f
	case x >= 0x3c800000: // 2^-6, the smallest normal
		x += 0x7ffff + x>>20&1
		return sign | uint8((x-0x3c000000)>>20)
	}
	// Below the normal range the unit is 2^-9: adding 1.5*2^14 leaves the rounded multiple in the low bits.
	rounded := math.Float32frombits(x) + 1.5*(1<<14)
	return sign | uint8(math.Float32bits(rounded)&0xff)
}

// e5m2Bits rounds to nearest even. e5m2 is the upper half of a float16, but going through one would round twice.
func e5m2Bits(f float32) uint8 {
	x := math.Float32bits(f)
	sign := uint8(x >> 24 & 0x80)
	x &= 0x7fffffff
	switch {
	case x > 0x7f800000:
		return sign | 0x7e
	case x >= 0x47700000: // 61440, halfway from 57344 to 65536
		return sign | 0x7c
	case x >= 0x38800000: // 2^-14, the smallest normal
		x += 0xfffff + x>>21&1
		return sign | uint8((x-0x38000000)>>21)
	}
	// The unit is 2^-16: see e4m3Bits.
	rounded := math.Float32frombits(x) + 1.5*(1<<7)
	return sign | uint8(math.Float32bits(rounded)&0xff)
}
