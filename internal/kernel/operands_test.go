package kernel

import (
	"encoding/binary"
	"flag"
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"hora/tensor"
)

var (
	seedFlag = flag.Uint64("seed", 0, "seed of random operands; 0 takes a new one")
	anyNaN   = flag.Bool("anynan", false, "take any NaN for any other: qemu's amd64 chooses among two as the x87 did")
)

// newRand prints the seed that repeats this run.
func newRand(t testing.TB) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with: go test ./internal/kernel -run '^%s$' -seed %d", t.Name(), seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// The values where float arithmetic goes wrong, as bits.
var (
	odd32 = []uint32{
		0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
		0x7fc00000, 0xffc00000, 0x7fc12345, 0xffffffff, 0x7f800001, 0xff8abcde, 0x7fa00000, 0x3f800000, 0xbf800000,
		0x3f808000, 0x3f818000, 0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x38800000, 0x387fffff,
	}
	odd64 = []uint64{
		0, 1 << 63, 1, 1<<63 | 1, 0x000fffffffffffff, 0x0010000000000000, 0x7fefffffffffffff, 0x7ff0000000000000,
		0xfff0000000000000,
		0x7ff8000000000000, 0xfff8000000000000, 0x7ff8123456789abc, 0xffffffffffffffff, 0x7ff0000000000001,
		0xfff4dead00000000, 0x3ff0000000000000, 0x47efffffe0000000, 0x36a0000000000000,
	}
	odd16 = []uint16{
		0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7c01, 0xfd23, 0x7e00,
		0xfe45, 0xffff, 0x7f80, 0xff80, 0x7f81, 0xffa3, 0x7fc0, 0xffc7, 0x7f7f, 0x0080, 0x007f, 0x3f80, 0x3c00,
	}
)

// operands are random elements to copy from: making them anew for every length would take most of the test's time.
type operands map[tensor.DType][]byte

// fill copies random elements to p.
func (o operands) fill(r *rand.Rand, p []byte, t tensor.DType) {
	const room = 8192
	if o[t] == nil || r.IntN(200) == 0 {
		o[t] = make([]byte, room+len(p))
		fill(r, o[t], t)
	}
	if size := t.Size(); len(p) <= len(o[t])/2 {
		from := r.IntN((len(o[t])-len(p))/size) * size
		copy(p, o[t][from:])
		return
	}
	fill(r, p, t)
}

// fill writes random elements: plain bits, small numbers and odd values mixed.
func fill(r *rand.Rand, p []byte, t tensor.DType) {
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	le := binary.LittleEndian
	switch t {
	case tensor.Float32, tensor.Complex64:
		for ; len(p) >= 4; p = p[4:] {
			switch r.IntN(4) {
			case 0:
				le.PutUint32(p, odd32[r.IntN(len(odd32))])
			case 1, 2:
				le.PutUint32(p, math.Float32bits(float32(r.NormFloat64())))
			}
		}
	case tensor.Float64, tensor.Complex128:
		for ; len(p) >= 8; p = p[8:] {
			switch r.IntN(4) {
			case 0:
				le.PutUint64(p, odd64[r.IntN(len(odd64))])
			case 1, 2:
				le.PutUint64(p, math.Float64bits(r.NormFloat64()))
			}
		}
	case tensor.Float16, tensor.BFloat16:
		for ; len(p) >= 2; p = p[2:] {
			switch r.IntN(4) {
			case 0:
				le.PutUint16(p, odd16[r.IntN(len(odd16))])
			case 1, 2:
				h := bfloat16Bits(float32(r.NormFloat64()))
				if t == tensor.Float16 {
					h = float16Bits(float32(r.NormFloat64()))
				}
				le.PutUint16(p, h)
			}
		}
	case tensor.Bool:
		for i := range p {
			if r.IntN(3) > 0 {
				p[i] &= 1
			}
		}
	default:
		for i := range p {
			if r.IntN(8) == 0 {
				p[i] = []byte{0, 0xff, 0x80, 0x7f}[r.IntN(4)]
			}
		}
	}
}

// vectorLevels are the levels that have to agree with Pure; none is a stated skip.
func vectorLevels(t testing.TB) []Level {
	levels := Levels()[1:]
	if len(levels) == 0 {
		t.Log("no vector code in this build or for this processor: nothing to compare")
	}
	return levels
}

func ptr(p []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(p)) }

// reducible lists every (type, operator) that Reduce takes.
func reducible() (list []struct {
	T  tensor.DType
	Op tensor.Op
},
) {
	for _, t := range tensor.DTypes() {
		for _, op := range tensor.Ops() {
			if op != tensor.Adasum && tensor.Check(op, t) == nil {
				list = append(list, struct {
					T  tensor.DType
					Op tensor.Op
				}{t, op})
			}
		}
	}
	return list
}
