package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Faults of a message. Decoders return them wrapped or bare; nobody needs more
// than to close the connection and log one line.
var (
	ErrShort = errors.New("decode message: it ends too early")
	ErrLong  = errors.New("decode message: bytes are left over")
	ErrLimit = errors.New("decode message: a length is above its limit")
	ErrValue = errors.New("decode message: a value is out of range")
)

// AppendU8 and its siblings append one value to b.
func AppendU8(b []byte, v uint8) []byte   { return append(b, v) }
func AppendU16(b []byte, v uint16) []byte { return binary.LittleEndian.AppendUint16(b, v) }
func AppendU32(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }
func AppendU64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }
func AppendI64(b []byte, v int64) []byte  { return binary.LittleEndian.AppendUint64(b, uint64(v)) }

// AppendF64 appends the bits of v.
func AppendF64(b []byte, v float64) []byte { return AppendU64(b, math.Float64bits(v)) }

// AppendBool appends 0 or 1.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendBytes appends a 32-bit length and p.
func AppendBytes(b, p []byte) []byte {
	return append(AppendU32(b, uint32(len(p))), p...)
}

// AppendString appends a 32-bit length and s.
func AppendString(b []byte, s string) []byte {
	return append(AppendU32(b, uint32(len(s))), s...)
}

// AppendStrings appends a 32-bit count and each string.
func AppendStrings(b []byte, list []string) []byte {
	b = AppendU32(b, uint32(len(list)))
	for _, s := range list {
		b = AppendString(b, s)
	}
	return b
}

// AppendInts appends a 32-bit count and each value as 64 bits.
func AppendInts(b []byte, list []int) []byte {
	b = AppendU32(b, uint32(len(list)))
	for _, v := range list {
		b = AppendI64(b, int64(v))
	}
	return b
}

// Decoder is a cursor over one message. After the first fault every method
// returns a zero value, so that a message is read field by field and judged
// once, by Done.
type Decoder struct {
	b   []byte
	err error
}

// NewDecoder reads from b, which must not change while the decoder and what
// its Bytes method returned are in use.
func NewDecoder(b []byte) Decoder { return Decoder{b: b} }

// Err is the first fault so far.
func (d *Decoder) Err() error { return d.err }

// Left is the number of bytes not read yet; 0 after a fault.
func (d *Decoder) Left() int { return len(d.b) }

// Done returns the first fault, or ErrLong when bytes are left over.
func (d *Decoder) Done() error {
	if d.err == nil && len(d.b) != 0 {
		d.err = ErrLong
	}
	return d.err
}

// Fail records err unless an earlier fault is recorded; callers use it for
// checks of their own.
func (d *Decoder) Fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *Decoder) take(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n < 0 || n > len(d.b) {
		d.Fail(ErrShort)
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

// U8 and its siblings read one value.
func (d *Decoder) U8() uint8 {
	if p := d.take(1); p != nil {
		return p[0]
	}
	return 0
}

// U16 reads 16 bits.
func (d *Decoder) U16() uint16 {
	if p := d.take(2); p != nil {
		return binary.LittleEndian.Uint16(p)
	}
	return 0
}

// U32 reads 32 bits.
func (d *Decoder) U32() uint32 {
	if p := d.take(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

// U64 reads 64 bits.
func (d *Decoder) U64() uint64 {
	if p := d.take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

// I64 reads a signed value.
func (d *Decoder) I64() int64 { return int64(d.U64()) }

// F64 reads a float64; any bits are allowed.
func (d *Decoder) F64() float64 { return math.Float64frombits(d.U64()) }

// Bool reads 0 or 1; anything else is a fault.
func (d *Decoder) Bool() bool {
	v := d.U8()
	if v > 1 {
		d.Fail(ErrValue)
	}
	return v == 1
}

// Int reads a signed value that must lie in lo … hi.
func (d *Decoder) Int(lo, hi int) int {
	v := d.I64()
	if d.err != nil {
		return 0
	}
	if v < int64(lo) || v > int64(hi) {
		d.Fail(fmt.Errorf("%w: %d is not in %d … %d", ErrValue, v, lo, hi))
		return 0
	}
	return int(v)
}

// Bytes reads a length of at most limit and that many bytes. The result is a
// view of the message.
func (d *Decoder) Bytes(limit int) []byte {
	n := d.U32()
	if d.err != nil {
		return nil
	}
	if int64(n) > int64(limit) {
		d.Fail(fmt.Errorf("%w: %d bytes, at most %d", ErrLimit, n, limit))
		return nil
	}
	return d.take(int(n))
}

// String reads a length of at most limit and that many bytes, copied.
func (d *Decoder) String(limit int) string { return string(d.Bytes(limit)) }

// Count reads the number of elements that follow, at most limit. Each element
// takes at least elemBytes (≥ 1) of the message, so a short message cannot ask
// for much memory.
func (d *Decoder) Count(limit, elemBytes int) int {
	n := d.U32()
	if d.err != nil {
		return 0
	}
	if int64(n) > int64(limit) {
		d.Fail(fmt.Errorf("%w: %d elements, at most %d", ErrLimit, n, limit))
		return 0
	}
	if int64(n)*int64(max(elemBytes, 1)) > int64(len(d.b)) {
		d.Fail(ErrShort)
		return 0
	}
	return int(n)
}

// Strings reads a list of at most limit strings of at most each bytes.
func (d *Decoder) Strings(limit, each int) []string {
	n := d.Count(limit, 4)
	if n == 0 {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, d.String(each))
	}
	if d.err != nil {
		return nil
	}
	return list
}

// Ints reads a list of at most limit values in lo … hi.
func (d *Decoder) Ints(limit, lo, hi int) []int {
	n := d.Count(limit, 8)
	if n == 0 {
		return nil
	}
	list := make([]int, 0, n)
	for range n {
		list = append(list, d.Int(lo, hi))
	}
	if d.err != nil {
		return nil
	}
	return list
}
