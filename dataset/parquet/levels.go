package parquet

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"unsafe"
)

var errRuns = errors.New("its runs of equal and packed numbers are damaged")

// runs reads the mixture of repeated and bit-packed numbers that levels and dictionary
// indices are stored in.
type runs struct {
	b     []byte
	width uint
}

// next answers the next run: count times value where packed is nil, else count numbers
// packed (a multiple of 8, which may be more than the page needs).
func (r *runs) next() (count int, value uint32, packed []byte, err error) {
	head, n := binary.Uvarint(r.b)
	if n <= 0 || head>>1 == 0 || head>>1 >= 1<<31 {
		return 0, 0, nil, errRuns
	}
	r.b = r.b[n:]
	if head&1 == 1 {
		groups := head >> 1
		need := groups * uint64(r.width)
		if need > uint64(len(r.b)) {
			// The last group may be cut to the numbers that there are.
			if groups*uint64(r.width)-uint64(len(r.b)) >= uint64(r.width) {
				return 0, 0, nil, errRuns
			}
			need = uint64(len(r.b))
		}
		packed, r.b = r.b[:need:need], r.b[need:]
		return int(groups * 8), 0, packed, nil
	}
	bytes := int(r.width+7) / 8
	if len(r.b) < bytes {
		return 0, 0, nil, errRuns
	}
	for i := range bytes {
		value |= uint32(r.b[i]) << (8 * i)
	}
	if r.width < 32 && value>>r.width != 0 {
		return 0, 0, nil, errRuns
	}
	r.b = r.b[bytes:]
	return int(head >> 1), value, nil, nil
}

// unpack reads numbers of width bits. Bytes that are not there count as zero, so who
// cuts a last group gets zeros that nobody asks for.
func unpack(to []uint32, packed []byte, width uint) {
	if width == 0 {
		clear(to)
		return
	}
	mask := uint64(1)<<width - 1
	// So many numbers begin at least eight bytes before the end: their words are there.
	whole := 0
	if len(packed) >= 8 {
		whole = min(len(to), int((uint(len(packed)-8)*8+7)/width)+1)
	}
	from := unsafe.Pointer(unsafe.SliceData(packed))
	bit := uint(0)
	for i := range to[:whole] {
		to[i] = uint32(*(*uint64)(unsafe.Add(from, bit>>3)) >> (bit & 7) & mask)
		bit += width
	}
	for i := whole; i < len(to); i++ {
		var last [8]byte
		if at := int(bit >> 3); at < len(packed) {
			copy(last[:], packed[at:])
		}
		to[i] = uint32(binary.LittleEndian.Uint64(last[:]) >> (bit & 7) & mask)
		bit += width
	}
}

// numbers fills to from runs of a width.
func numbers(to []uint32, b []byte, width uint) error {
	r := runs{b, width}
	for len(to) > 0 {
		n, value, packed, err := r.next()
		if err != nil {
			return err
		}
		n = min(n, len(to))
		if packed != nil || width == 0 {
			unpack(to[:n], packed, width)
		} else {
			fill(to[:n], value)
		}
		to = to[n:]
	}
	return nil
}

func fill[T uint8 | uint32](to []T, value T) {
	n := min(len(to), 32) // few are more quickly written than copied
	for i := range to[:n] {
		to[i] = value
	}
	for ; n < len(to); n *= 2 {
		copy(to[n:], to[:n])
	}
}

// levelWidth returns with how many bits levels of at most most are written.
func levelWidth(most int) uint { return uint(bits.Len(uint(most))) }

// levels fills to with levels of at most most, and answers how many are most.
func levels(to []uint8, b []byte, most int) (there int, err error) {
	r := runs{b, levelWidth(most)}
	for len(to) > 0 {
		n, value, packed, err := r.next()
		if err != nil {
			return 0, err
		}
		n = min(n, len(to))
		switch {
		case packed == nil:
			if int(value) > most {
				return 0, errRuns
			}
			if int(value) == most {
				there += n
			}
			fill(to[:n], uint8(value))
		case r.width == 1:
			bitsTo(to[:n], packed)
			there += ones(packed, n)
		default:
			k, whole := unpackLevels(to[:n], packed, r.width, most)
			if !whole {
				return 0, errRuns
			}
			there += k
		}
		to = to[n:]
	}
	return there, nil
}

func unpackLevels(to []uint8, packed []byte, width uint, most int) (there int, whole bool) {
	var some [64]uint32
	for at := 0; at < len(to); at += len(some) {
		n := min(len(some), len(to)-at)
		from := min(at*int(width)/8, len(packed))
		unpack(some[:n], packed[from:], width)
		for i, v := range some[:n] {
			if int(v) > most {
				return 0, false
			}
			if int(v) == most {
				there++
			}
			to[at+i] = uint8(v)
		}
	}
	return there, true
}

// bitsTo spreads bits to bytes of 0 and 1.
func bitsTo(to []uint8, packed []byte) {
	for len(to) >= 8 && len(packed) > 0 {
		// Eight bits to eight bytes: copy them to each, keep another one in each.
		x := uint64(packed[0]) * 0x0101010101010101 & 0x8040201008040201
		x = (x + 0x7F7F7F7F7F7F7F7F) | x
		binary.LittleEndian.PutUint64(to, x>>7&0x0101010101010101)
		to, packed = to[8:], packed[1:]
	}
	for i := range to {
		to[i] = 0
		if i>>3 < len(packed) {
			to[i] = packed[i>>3] >> (i & 7) & 1
		}
	}
}

// ones counts those of the first n bits that are 1; bits that are not there are 0.
func ones(packed []byte, n int) int {
	count := 0
	for ; n >= 64 && len(packed) >= 8; n -= 64 {
		count += bits.OnesCount64(binary.LittleEndian.Uint64(packed))
		packed = packed[8:]
	}
	for ; n >= 8 && len(packed) > 0; n -= 8 {
		count += bits.OnesCount8(packed[0])
		packed = packed[1:]
	}
	if n > 0 && n < 8 && len(packed) > 0 {
		count += bits.OnesCount8(packed[0] & (1<<n - 1))
	}
	return count
}
