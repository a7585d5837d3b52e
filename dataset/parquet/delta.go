package parquet

import (
	"encoding/binary"
	"errors"
)

var errDelta = errors.New("its differences are damaged")

// deltas reads DELTA_BINARY_PACKED: blocks of differences, packed at widths of their
// own. It fills to with as many numbers as the page says and answers what follows.
// Sums wrap; of 32-bit numbers the lower halves count.
func deltas(to []int64, b []byte) (rest []byte, err error) {
	var head [3]uint64 // values a block, miniblocks a block, values
	for i := range head {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errDelta
		}
		head[i], b = v, b[n:]
	}
	first, n := binary.Varint(b)
	if n <= 0 || head[2] != uint64(len(to)) || head[1] == 0 || head[1] > 1<<16 || head[0] == 0 || head[0] > 1<<24 ||
		head[0]%head[1] != 0 || head[0]/head[1]%32 != 0 {
		return nil, errDelta
	}
	b = b[n:]
	if len(to) == 0 {
		return b, nil
	}
	to[0] = first
	to = to[1:]
	mini := int(head[0] / head[1])
	for last := first; len(to) > 0; {
		least, n := binary.Varint(b)
		if n <= 0 || len(b)-n < int(head[1]) {
			return nil, errDelta
		}
		widths := b[n : n+int(head[1])]
		b = b[n+int(head[1]):]
		for _, width := range widths {
			if len(to) == 0 {
				break // miniblocks after the last value have no bytes
			}
			bytes := mini / 8 * int(width)
			if width > 64 || bytes > len(b) {
				return nil, errDelta
			}
			k := min(mini, len(to))
			last = sums(to[:k], b[:bytes], uint(width), least, last)
			to, b = to[k:], b[bytes:]
		}
	}
	return b, nil
}

// sums adds up packed differences, each least more than is stored.
func sums(to []int64, packed []byte, width uint, least, last int64) int64 {
	bit := uint(0)
	for i := range to {
		last += least + int64(bitsAt(packed, bit, width))
		to[i] = last
		bit += width
	}
	return last
}

// bitsAt is the number of width ≤ 64 bits at a bit.
func bitsAt(b []byte, bit, width uint) uint64 {
	if width == 0 {
		return 0
	}
	var word [9]byte
	copy(word[:], b[bit>>3:])
	low := binary.LittleEndian.Uint64(word[:]) >> (bit & 7)
	if width+bit&7 > 64 {
		low |= uint64(word[8]) << (64 - bit&7)
	}
	if width == 64 {
		return low
	}
	return low & (1<<width - 1)
}
