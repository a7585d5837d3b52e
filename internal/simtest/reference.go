package simtest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"unsafe"

	"hora/internal/kernel"
	"hora/tensor"
)

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// Random is n elements of type t: integers of any value, floats within [-1, 1] that
// the type holds exactly.
func Random(rng *rand.Rand, n int, t tensor.DType) []byte {
	b := make([]byte, n*t.Size())
	switch {
	case n == 0:
	case t == tensor.Bool:
		for i := range b {
			b[i] = byte(rng.UintN(2))
		}
	case t.IsInteger():
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
	default:
		parts := floats(t)
		for i := range n * parts {
			put(b, i, t, rng.Float64()*2-1)
		}
	}
	return b
}

// floats is how many floats an element is made of.
func floats(t tensor.DType) int {
	if t.IsComplex() {
		return 2
	}
	return 1
}

func put(b []byte, i int, t tensor.DType, v float64) {
	switch t {
	case tensor.Float32, tensor.Complex64:
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(v)))
	case tensor.Float64, tensor.Complex128:
		binary.LittleEndian.PutUint64(b[8*i:], math.Float64bits(v))
	default:
		f := float32(v)
		kernel.FromFloat32(unsafe.Add(pointer(b), i*t.Size()), &f, 1, t)
	}
}

// Float is the i-th float in b; a complex element holds two.
func Float(b []byte, i int, t tensor.DType) float64 {
	switch t {
	case tensor.Float32, tensor.Complex64:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	case tensor.Float64, tensor.Complex128:
		return math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	var f float32
	kernel.ToFloat32(&f, unsafe.Add(pointer(b), i*t.Size()), 1, t)
	return float64(f)
}

func integer(b []byte, i, size int, signed bool) int64 {
	b = b[i*size : (i+1)*size]
	var v uint64
	for k := size - 1; k >= 0; k-- {
		v = v<<8 | uint64(b[k])
	}
	if shift := 64 - 8*size; signed {
		return int64(v<<shift) >> shift
	}
	return int64(v)
}

func signed(t tensor.DType) bool {
	return t == tensor.Int8 || t == tensor.Int16 || t == tensor.Int32 || t == tensor.Int64
}

// fold is the reduction of one integer or bool element over all inputs, wrapped to
// the type's width as its sum would be.
func fold(inputs [][]byte, i int, t tensor.DType, op tensor.Op) uint64 {
	size, sign := t.Size(), signed(t)
	v := integer(inputs[0], i, size, sign)
	for _, in := range inputs[1:] {
		x := integer(in, i, size, sign)
		less := x < v
		if !sign {
			less = uint64(x) < uint64(v)
		}
		switch {
		case t == tensor.Bool && (op == tensor.Sum || op == tensor.Or || op == tensor.Max), op == tensor.Or:
			v |= x
		case t == tensor.Bool && (op == tensor.Product || op == tensor.And || op == tensor.Min), op == tensor.And:
			v &= x
		case op == tensor.Xor:
			v ^= x
		case op == tensor.Sum || op == tensor.Average:
			v += x
		case op == tensor.Product:
			v *= x
		case op == tensor.Min && less, op == tensor.Max && !less:
			v = x
		}
	}
	if op == tensor.Average {
		if sign {
			shift := 64 - 8*size
			v = v << shift >> shift / int64(len(inputs))
		} else {
			v = int64(uint64(v) << (64 - 8*size) >> (64 - 8*size) / uint64(len(inputs)))
		}
	}
	return uint64(v)
}

// Epsilon is the relative rounding of one operation in the type.
func Epsilon(t tensor.DType) float64 {
	switch t {
	case tensor.Float16:
		return 0x1p-11
	case tensor.BFloat16:
		return 0x1p-8
	case tensor.Float8E4M3:
		return 0x1p-4
	case tensor.Float8E5M2:
		return 0x1p-3
	case tensor.Float32, tensor.Complex64:
		return 0x1p-24
	default:
		return 0x1p-53
	}
}

// smallest is half the distance between the least numbers of the type.
func smallest(t tensor.DType) float64 {
	switch t {
	case tensor.Float16:
		return 0x1p-25
	case tensor.BFloat16:
		return 0x1p-134
	case tensor.Float8E4M3:
		return 0x1p-10
	case tensor.Float8E5M2:
		return 0x1p-17
	case tensor.Float32, tensor.Complex64:
		return 0x1p-150
	}
	return 0
}

// adasum is what Adasum makes of all inputs: the members too many for a power of two are
// combined with their neighbours, then neighbours, and so on.
func adasum(inputs [][]float64) []float64 {
	rest := len(inputs)
	for rest&(rest-1) != 0 {
		rest &= rest - 1
	}
	rest = len(inputs) - rest // so many pairs come first
	var level [][]float64
	for r := 0; r < len(inputs); r++ {
		if r < 2*rest {
			level = append(level, adasumOf(inputs[r], inputs[r+1]))
			r++
		} else {
			level = append(level, inputs[r])
		}
	}
	for len(level) > 1 {
		var next [][]float64
		for i := 0; i < len(level); i += 2 {
			next = append(next, adasumOf(level[i], level[i+1]))
		}
		level = next
	}
	return level[0]
}

func adasumOf(a, b []float64) []float64 {
	var dot, aa, bb float64
	for i := range a {
		dot, aa, bb = dot+a[i]*b[i], aa+a[i]*a[i], bb+b[i]*b[i]
	}
	ca, cb := 1.0, 1.0
	if aa > 0 {
		ca = 1 - dot/(2*aa)
	}
	if bb > 0 {
		cb = 1 - dot/(2*bb)
	}
	out := make([]float64, len(a))
	for i := range a {
		out[i] = ca*a[i] + cb*b[i]
	}
	return out
}

// wrongAdasum is Wrong for Adasum: within 100 × ranks × ε × (sum of the inputs' norms), with
// the ε of what the type is combined as, and one rounding to the type.
func wrongAdasum(got []byte, inputs [][]byte, t tensor.DType) (at int, have, want float64) {
	var all [][]float64
	norms := 0.0
	for _, in := range inputs {
		x := make([]float64, len(in)/t.Size())
		square := 0.0
		for i := range x {
			x[i] = Float(in, i, t)
			square += x[i] * x[i]
		}
		norms += math.Sqrt(square)
		all = append(all, x)
	}
	bound := 100 * float64(len(inputs)) * min(Epsilon(t), Epsilon(tensor.Float32)) * norms
	for i, want := range adasum(all) {
		if g := Float(got, i, t); !(math.Abs(g-want) <= bound+Epsilon(t)*math.Abs(want)+smallest(t)) {
			return i, g, want
		}
	}
	return -1, 0, 0
}

// Wrong compares got with the reduction of inputs: integers and bool bitwise; floats
// within
//
//	sum, average   n × ε × (sum of the magnitudes), n = number of ranks (+1 for average)
//	product        2n × ε × (product of the magnitudes) + n × the least number
//	min, max       nothing: exactly
//
// where ε is the type's, which covers one rounding at every hop. It returns the
// first element that is wrong, or -1.
func Wrong(got []byte, inputs [][]byte, t tensor.DType, op tensor.Op) (at int, have, want float64) {
	n := len(got) / t.Size()
	if op == tensor.Adasum {
		return wrongAdasum(got, inputs, t)
	}
	if t.IsInteger() || t == tensor.Bool {
		size := t.Size()
		for i := range n {
			w := fold(inputs, i, t, op)
			mask := ^uint64(0) >> (64 - 8*size)
			if g := uint64(integer(got, i, size, false)); g != w&mask {
				return i, float64(g), float64(w & mask)
			}
		}
		return -1, 0, 0
	}
	if t.IsComplex() && op == tensor.Product {
		return wrongComplexProduct(got, inputs, t)
	}
	for i := range n * floats(t) {
		want, bound := foldFloat(inputs, i, t, op)
		if g := Float(got, i, t); !(math.Abs(g-want) <= bound) {
			return i, g, want
		}
	}
	return -1, 0, 0
}

func foldFloat(inputs [][]byte, i int, t tensor.DType, op tensor.Op) (want, bound float64) {
	ranks := float64(len(inputs))
	want = Float(inputs[0], i, t)
	size := math.Abs(want)
	for _, in := range inputs[1:] {
		x := Float(in, i, t)
		switch op {
		case tensor.Sum, tensor.Average:
			want += x
			size += math.Abs(x)
		case tensor.Product:
			want *= x
		case tensor.Min:
			want = min(want, x)
		case tensor.Max:
			want = max(want, x)
		}
	}
	eps := Epsilon(t)
	switch op {
	case tensor.Sum:
		return want, ranks*eps*size + smallest(t)
	case tensor.Average:
		return want / ranks, (ranks+1)*eps*size/ranks + ranks*smallest(t)
	case tensor.Product:
		return want, 2*ranks*eps*math.Abs(want) + ranks*smallest(t)
	}
	return want, 0
}

func wrongComplexProduct(got []byte, inputs [][]byte, t tensor.DType) (int, float64, float64) {
	for i := range len(got) / t.Size() {
		v, size := complex(1, 0), 1.0
		for _, in := range inputs {
			x := complex(Float(in, 2*i, t), Float(in, 2*i+1, t))
			v *= x
			size *= math.Abs(real(x)) + math.Abs(imag(x))
		}
		bound := 4*float64(len(inputs))*Epsilon(t)*size + float64(len(inputs))*4*smallest(t)
		if re, im := Float(got, 2*i, t), Float(got, 2*i+1, t); math.Abs(re-real(v)) > bound ||
			math.Abs(im-imag(v)) > bound {
			return i, re, real(v)
		}
	}
	return -1, 0, 0
}
