// Package kernel does the arithmetic of collectives over raw memory: reduce, scale,
// convert, copy, and Adasum's dot products. Every function has a twin in plain Go and,
// where it pays, vector code for AVX2, AVX-512 (amd64) and NEON (arm64) whose results are
// equal to the twin's bit for bit: same order of additions, same roundings, same NaNs.
//
// It owns no memory, starts no goroutines, allocates nothing, keeps no pointer after it
// returns and reads or writes nothing outside the ranges it was given. Pointers need not be
// aligned. Vector calls are cut into pieces of some 256 KiB, so that the garbage collector
// never waits long for one. Callers have asked tensor.Check; what it refuses panics here.
//
// How NaNs come out. Min and Max give one quiet NaN, the positive one without payload. Sums and
// products follow the processor: on amd64 (and in the twin elsewhere) the first NaN operand made quiet, on arm64 the
// first signalling one before the first quiet one; what inf-inf makes is negative on amd64,
// positive on arm64. Min takes -0 below +0.
package kernel

import (
	"fmt"
	"unsafe"

	"hora/tensor"
)

// pieceBytes bounds what one vector call reads: at the slowest memory speed measured
// (some 5 GB/s) that is 50 µs during which the garbage collector cannot stop the thread.
const pieceBytes = 256 << 10

// Reduce sets dst[i] = a[i] op b[i] for n elements. dst may be a or b exactly, and a may be b; other overlaps
// are not allowed. Average adds as Sum does: dividing is AverageScale's.
func Reduce(dst, a, b unsafe.Pointer, n int, t tensor.DType, op tensor.Op) {
	Best().Reduce(dst, a, b, n, t, op)
}

// ReduceAll folds all sources in their order: ((s0 op s1) op s2) … Floats of 16 and 8 bits
// are summed in float32 and rounded once. dst may equal any of srcs exactly. One source is a copy.
func ReduceAll(dst unsafe.Pointer, srcs []unsafe.Pointer, n int, t tensor.DType, op tensor.Op) {
	Best().ReduceAll(dst, srcs, n, t, op)
}

// Reduce is the package's Reduce with the instructions of l.
func (l Level) Reduce(dst, a, b unsafe.Pointer, n int, t tensor.DType, op tensor.Op) {
	if n <= 0 {
		return
	}
	p := planOf(t, op)
	t, op, n = p.t, p.op, n*p.times
	if l == Pure || isFloat8(t) {
		reducePure(l, dst, a, b, n, t, op)
		return
	}
	size := p.size
	raceRead(a, n*size)
	raceRead(b, n*size)
	raceWrite(dst, n*size)
	step := pieceBytes / 2 / size
	for from := 0; from < n; from += step { // no pointer is ever moved past its range: the collector might see it
		m, off := min(n-from, step), from*size
		done := reducePair(l, unsafe.Add(dst, off), unsafe.Add(a, off), unsafe.Add(b, off), m, t, op)
		if done < m {
			off += done * size
			reducePure(l, unsafe.Add(dst, off), unsafe.Add(a, off), unsafe.Add(b, off), m-done, t, op)
		}
	}
}

// ReduceAll is the package's ReduceAll with the instructions of l.
func (l Level) ReduceAll(dst unsafe.Pointer, srcs []unsafe.Pointer, n int, t tensor.DType, op tensor.Op) {
	switch {
	case n <= 0:
		return
	case len(srcs) == 0:
		panic("kernel: reduce of no sources")
	case len(srcs) == 1:
		Copy(dst, srcs[0], n*t.Size())
		return
	case len(srcs) == 2:
		l.Reduce(dst, srcs[0], srcs[1], n, t, op)
		return
	}
	p := planOf(t, op)
	t, op, n = p.t, p.op, n*p.times
	if l == Pure || isFloat8(t) {
		reduceAllPure(l, dst, srcs, 0, n, t, op)
		return
	}
	size := p.size
	for _, s := range srcs {
		raceRead(s, n*size)
	}
	raceWrite(dst, n*size)
	step := max(pieceBytes/len(srcs), 1024) &^ 255 / size // whole registers, so that only the last piece has a tail
	for from := 0; from < n; from += step {
		m := min(n-from, step)
		if done := reduceMany(l, dst, srcs, from*size, m, t, op); done < m {
			reduceAllPure(l, dst, srcs, from+done, m-done, t, op)
		}
	}
}

// plan is a reduction rewritten to the plainest kernel with the same bits: complex sums are sums of their parts,
// bitwise operators work on bytes, and sums and products of integers do not see the sign.
type plan struct {
	t     tensor.DType
	op    tensor.Op
	size  int // bytes of an element of t
	times int // elements of t in one that was asked for; 0: there is no such reduction
}

const (
	typeSpan = 32 // above every number of a type and of an operator
	opSpan   = 16
)

// plans is filled once, when the program starts: looking a reduction up must cost no more than reducing a few elements.
var plans = tabulatePlans()

func tabulatePlans() (table [typeSpan][opSpan]plan) {
	for _, t := range tensor.DTypes() {
		for _, op := range tensor.Ops() {
			if op != tensor.Adasum && tensor.Check(op, t) == nil {
				p := &table[t][op]
				p.t, p.op, p.times = plainer(t, op)
				p.size = p.t.Size()
			}
		}
	}
	return table
}

func planOf(t tensor.DType, op tensor.Op) *plan {
	if t >= typeSpan || op >= opSpan || plans[t][op].times == 0 {
		refuse(t, op)
	}
	return &plans[t%typeSpan][op%opSpan]
}

func plainer(t tensor.DType, op tensor.Op) (tensor.DType, tensor.Op, int) {
	if op == tensor.Average {
		op = tensor.Sum
	}
	switch {
	case t == tensor.Bool:
		switch op {
		case tensor.Sum, tensor.Max:
			op = tensor.Or
		case tensor.Product, tensor.Min:
			op = tensor.And
		}
	case t.IsInteger():
		switch op {
		case tensor.And, tensor.Or, tensor.Xor:
			return tensor.Uint8, op, t.Size()
		case tensor.Sum, tensor.Product:
			switch t {
			case tensor.Int8:
				t = tensor.Uint8
			case tensor.Int16:
				t = tensor.Uint16
			case tensor.Int32:
				t = tensor.Uint32
			case tensor.Int64:
				t = tensor.Uint64
			}
		}
	case t == tensor.Complex64 && op == tensor.Sum:
		return tensor.Float32, op, 2
	case t == tensor.Complex128 && op == tensor.Sum:
		return tensor.Float64, op, 2
	}
	return t, op, 1
}

func isFloat8(t tensor.DType) bool { return t == tensor.Float8E4M3 || t == tensor.Float8E5M2 }

func refuse(t tensor.DType, op tensor.Op) {
	panic(fmt.Sprintf("kernel: no %s of %s", op, t))
}
