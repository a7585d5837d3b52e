package kernel

import (
	"math"
	"runtime"
)

const (
	quiet32 = 1 << 22
	quiet64 = 1 << 51
)

// The NaN of min and max.
var (
	quietNaN32 = math.Float32frombits(0x7fc00000)
	quietNaN64 = math.Float64frombits(0x7ff8000000000000)
)

// onARM selects arm64's rules for the NaN of a sum or product.
const onARM = runtime.GOARCH == "arm64"

// nan32 is the NaN that the processor makes of a+b or a*b; the compiler is free to swap the
// operands, so the twin chooses by itself. The result is known to be NaN.
func nan32(a, b float32) float32 {
	x, y := math.Float32bits(a), math.Float32bits(b)
	first, second := a != a, b != b
	switch {
	case onARM && second && y&quiet32 == 0 && !(first && x&quiet32 == 0):
		return math.Float32frombits(y | quiet32)
	case first:
		return math.Float32frombits(x | quiet32)
	case second:
		return math.Float32frombits(y | quiet32)
	case onARM:
		return math.Float32frombits(0x7fc00000)
	default:
		return math.Float32frombits(0xffc00000)
	}
}

// nan64 is nan32 for float64.
func nan64(a, b float64) float64 {
	x, y := math.Float64bits(a), math.Float64bits(b)
	first, second := a != a, b != b
	switch {
	case onARM && second && y&quiet64 == 0 && !(first && x&quiet64 == 0):
		return math.Float64frombits(y | quiet64)
	case first:
		return math.Float64frombits(x | quiet64)
	case second:
		return math.Float64frombits(y | quiet64)
	case onARM:
		return math.Float64frombits(0x7ff8000000000000)
	default:
		return math.Float64frombits(0xfff8000000000000)
	}
}
