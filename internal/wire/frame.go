package wire

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// Kinds of a data frame.
const (
	FrameData uint8 = 1 // payload of an operation
	FrameBye  uint8 = 2 // the sender leaves the group in order; nothing follows
)

// HeaderBytes is the length of a data frame's header.
const HeaderBytes = 32

// SmallBytes is the greatest payload of a frame without a trailer. A sender
// copies so much beside the header and can always complete such a frame. Longer
// payloads are sent from the caller's memory, which a failed operation takes
// back: their frames end in a trailer that says whether the payload is whole.
const SmallBytes = 4096

// TrailerBytes is the length of that trailer.
const TrailerBytes = 8

// Trailers of a frame whose payload is longer than SmallBytes.
const (
	TrailerWhole   uint64 = 0x6c6f687761726f68 // payload is what the sender meant
	TrailerAborted uint64 = 0x74726f6261726f68 // payload was filled up; drop it
)

// MaxFrameBytes bounds a payload; a longer length is garbage.
const MaxFrameBytes = 1 << 46

// ErrFrame says that a stream is not at a frame's header. There is no way back
// from it: the connection is broken.
var ErrFrame = errors.New("read frame: the header is damaged")

// Header describes one message of an operation.
type Header struct {
	Kind  uint8
	Part  uint8 // index of this part where a message is split over connections
	Len   uint64
	Seq   uint64
	Print uint64
}

// Trailer is the number of bytes after the payload.
func (h Header) Trailer() int {
	if h.Len > SmallBytes {
		return TrailerBytes
	}
	return 0
}

// check mixes all fields, so that a header read from the wrong place in a
// stream is noticed. It is no protection against an attacker.
func (h Header) check() uint32 {
	const odd = 0x9e3779b97f4a7c15
	x := (h.Len ^ uint64(h.Kind)<<56 ^ uint64(h.Part)<<48) * odd
	x = bits.RotateLeft64(x^h.Seq, 29) * odd
	x = bits.RotateLeft64(x^h.Print, 31) * odd
	return uint32(x >> 32)
}

// Put writes the header to the first HeaderBytes bytes of b.
func (h Header) Put(b []byte) {
	_ = b[HeaderBytes-1]
	binary.LittleEndian.PutUint32(b, h.check())
	b[4], b[5], b[6], b[7] = h.Kind, h.Part, 0, 0
	binary.LittleEndian.PutUint64(b[8:], h.Len)
	binary.LittleEndian.PutUint64(b[16:], h.Seq)
	binary.LittleEndian.PutUint64(b[24:], h.Print)
}

// ParseHeader reads the first HeaderBytes bytes of b.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderBytes {
		return Header{}, ErrShort
	}
	h := Header{
		Kind:  b[4],
		Part:  b[5],
		Len:   binary.LittleEndian.Uint64(b[8:]),
		Seq:   binary.LittleEndian.Uint64(b[16:]),
		Print: binary.LittleEndian.Uint64(b[24:]),
	}
	if h.check() != binary.LittleEndian.Uint32(b) || b[6]|b[7] != 0 || h.Len > MaxFrameBytes {
		return Header{}, ErrFrame
	}
	if h.Kind != FrameData && (h.Kind != FrameBye || h.Len != 0) {
		return Header{}, ErrFrame
	}
	return h, nil
}
