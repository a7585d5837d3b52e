package device

import "hora/tensor"

// NCCL's numbers.
const (
	opSum = iota
	opProduct
	opMax
	opMin
	opAverage
)

const byteType = 1 // uint8: for what is only moved

// nativeTypes gives NCCL's number of an element type and how many of NCCL's elements
// make one; types that are missing can be moved as bytes but not reduced.
var nativeTypes = [...]struct{ number, each int }{
	tensor.Bool: {1, 1}, tensor.Uint8: {1, 1}, tensor.Int8: {0, 1}, tensor.Int32: {2, 1}, tensor.Uint32: {3, 1},
	tensor.Int64: {4, 1}, tensor.Uint64: {5, 1}, tensor.Float16: {6, 1}, tensor.Float32: {7, 1}, tensor.Float64: {8, 1},
	tensor.BFloat16: {9, 1}, tensor.Complex64: {7, 2}, tensor.Complex128: {8, 2},
}

// Reduction is how NCCL is asked for a reduction.
type Reduction struct {
	Type   int     // NCCL's type
	Each   int     // NCCL's elements in one of ours
	Op     int     // NCCL's operator, unless Scale is another number than 1
	Factor float64 // of a scaled sum; 1 for none
}

// Native tells how NCCL does a reduction over ranks, and false where it cannot with the
// meaning that hora gives it: then the tensor passes through host memory.
func Native(t tensor.DType, op tensor.Op, factor float64, ranks int) (Reduction, bool) {
	if int(t) >= len(nativeTypes) || nativeTypes[t].each == 0 {
		return Reduction{}, false
	}
	r := Reduction{Type: nativeTypes[t].number, Each: nativeTypes[t].each, Factor: 1}
	if factor != 1 && (op != tensor.Sum && op != tensor.Average || t.IsInteger() || t == tensor.Bool) {
		return Reduction{}, false
	}
	switch op {
	case tensor.Sum, tensor.Average:
		switch {
		case t == tensor.Bool && op == tensor.Sum:
			r.Op = opMax // or
		case t == tensor.Bool:
			return Reduction{}, false
		case op == tensor.Sum && factor == 1:
			r.Op = opSum
		case op == tensor.Sum:
			r.Factor = factor
		case t.IsInteger() || factor == 1 && r.Each == 1:
			r.Op = opAverage
		default:
			r.Factor = factor / float64(ranks)
		}
	case tensor.Product:
		if r.Op = opProduct; t == tensor.Bool {
			r.Op = opMin // and
		}
		return r, r.Each == 1
	case tensor.Min:
		r.Op = opMin
		return r, r.Each == 1
	case tensor.Max:
		r.Op = opMax
		return r, r.Each == 1
	case tensor.And, tensor.Or:
		if r.Op = opMin; op == tensor.Or {
			r.Op = opMax
		}
		return r, t == tensor.Bool
	default:
		return Reduction{}, false
	}
	return r, true
}

// Bytes is NCCL's type for what is only moved.
func Bytes() int { return byteType }
