package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"unsafe"
)

// fixed reads n values of a fixed width; what it answers lives until the next page.
func (d *Decoder) fixed(e encoding, b []byte, n int) ([]byte, error) {
	p := d.col.physical
	switch {
	case p == pBool:
		return d.booleans(e, b, n)
	case p == pBytes && (e == ePlain || e == eDeltaLength || e == eDeltaBytes): // decimals
		return d.decimalTexts(e, b, n)
	case e == ePlain:
		width := p.width(d.col.length)
		if len(b) != n*width {
			return nil, fmt.Errorf("its %d values have %d bytes and should have %d", n, len(b), n*width)
		}
		return d.converted(b, n), nil
	case e == eDictionary || e == ePlainDictionary:
		if err := d.indices(b, n); err != nil {
			return nil, err
		}
		to := room(&d.values, n*d.col.Width)
		d.gather(to, d.col.Width, d.index[:n])
		return to, nil
	case e == eDelta && (p == pInt32 || p == pInt64):
		return d.differences(b, n)
	case e == eDeltaBytes && p == pFixed:
		return d.prefixed(b, n)
	case e == eSplit && p != pBytes && p != pInt96:
		return d.split(b, n)
	}
	return nil, fmt.Errorf("its values (%s) are written as %s, which hora does not read", p, e)
}

func (d *Decoder) booleans(e encoding, b []byte, n int) ([]byte, error) {
	to := room(&d.values, n)
	switch e {
	case ePlain:
		if len(b) != (n+7)/8 {
			return nil, fmt.Errorf("its %d values have %d bytes and should have %d", n, len(b), (n+7)/8)
		}
		bitsTo(to, b)
		return to, nil
	case eRLE:
		if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
			return nil, errRuns
		}
		_, err := levels(to, b[4:4+binary.LittleEndian.Uint32(b)], 1)
		return to, err
	}
	return nil, fmt.Errorf("its values (boolean) are written as %s, which hora does not read", e)
}

func (d *Decoder) differences(b []byte, n int) ([]byte, error) {
	if cap(d.wide) < n {
		d.wide = make([]int64, n+n/4)
	}
	wide := d.wide[:n]
	if _, err := deltas(wide, b); err != nil {
		return nil, err
	}
	if d.col.physical == pInt64 {
		return d.converted(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(wide))), 8*n), n), nil
	}
	to := room(&d.text, 4*n)
	for i, v := range wide {
		binary.LittleEndian.PutUint32(to[4*i:], uint32(v))
	}
	return d.converted(to, n), nil
}

// split undoes byte stream split: first all first bytes, then all second ones, ….
func (d *Decoder) split(b []byte, n int) ([]byte, error) {
	width := d.col.physical.width(d.col.length)
	if len(b) != n*width {
		return nil, fmt.Errorf("its %d values have %d bytes and should have %d", n, len(b), n*width)
	}
	to := room(&d.text, n*width)
	for k := range width {
		from := b[k*n : (k+1)*n]
		for i, v := range from {
			to[i*width+k] = v
		}
	}
	return d.converted(to, n), nil
}

// converted turns stored values into those that come out.
func (d *Decoder) converted(b []byte, n int) []byte {
	if d.col.convert == asIs {
		return b
	}
	to := room(&d.values, n*d.col.Width)
	le := binary.LittleEndian
	switch d.col.convert {
	case toByte:
		for i := range to {
			to[i] = b[4*i]
		}
	case toShort:
		for i := range n {
			to[2*i], to[2*i+1] = b[4*i], b[4*i+1]
		}
	case widen:
		for i := range n {
			le.PutUint64(to[8*i:], uint64(int64(int32(le.Uint32(b[4*i:])))))
		}
	case julian:
		for i := range n {
			day := int64(le.Uint32(b[12*i+8:])) - 2440588 // Julian day of 1970-01-01
			le.PutUint64(to[8*i:], uint64(day*86400_000_000_000+int64(le.Uint64(b[12*i:]))))
		}
	case decimal:
		width := d.col.physical.width(d.col.length)
		for i := range n {
			le.PutUint64(to[8*i:], math.Float64bits(d.decimal(b[i*width:(i+1)*width])))
		}
	}
	return to
}

// decimal is the float64 nearest to a stored decimal.
func (d *Decoder) decimal(b []byte) float64 {
	var v int64
	switch p := d.col.physical; {
	case p == pInt32:
		v = int64(int32(binary.LittleEndian.Uint32(b)))
	case p == pInt64:
		v = int64(binary.LittleEndian.Uint64(b))
	case len(b) == 0:
		return 0
	default: // big-endian, two's complement
		if len(b) > 8 {
			sign, cut := byte(int8(b[0])>>7), len(b)-8
			for _, x := range b[:cut] {
				if x != sign {
					return d.large(b)
				}
			}
			if byte(int8(b[cut])>>7) != sign {
				return d.large(b)
			}
			b = b[cut:]
		}
		v = int64(int8(b[0]))
		for _, x := range b[1:] {
			v = v<<8 | int64(x)
		}
	}
	if d.col.scale <= 22 && v > -1<<53 && v < 1<<53 {
		return float64(v) / math.Pow10(d.col.scale) // both are exact, so the quotient is the nearest
	}
	return d.ratio(big.NewInt(v))
}

func (d *Decoder) large(b []byte) float64 {
	v := new(big.Int).SetBytes(b)
	if b[0] >= 0x80 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return d.ratio(v)
}

func (d *Decoder) ratio(v *big.Int) float64 {
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(d.col.scale)), nil)
	f, _ := new(big.Rat).SetFrac(v, scale).Float64()
	return f
}

// prefixed reads values of one length that are written as texts which share their beginnings.
func (d *Decoder) prefixed(b []byte, n int) ([]byte, error) {
	next, err := d.prefixes(b, n)
	if err != nil {
		return nil, err
	}
	to := d.alike[:0]
	for range n {
		v, err := next()
		if err != nil {
			return nil, err
		}
		if len(v) != d.col.length {
			return nil, fmt.Errorf("it has a value of %d bytes where all have %d", len(v), d.col.length)
		}
		to = append(to, v...)
	}
	d.alike = to
	return d.converted(to, n), nil
}

// decimalTexts reads decimals that are stored as byte arrays.
func (d *Decoder) decimalTexts(e encoding, b []byte, n int) ([]byte, error) {
	if e == ePlain && n > len(b)/4 {
		return nil, errTexts
	}
	next, err := d.reader(e, b, n)
	if err != nil {
		return nil, err
	}
	to := room(&d.values, 8*n)
	for i := range n {
		v, err := next()
		if err != nil {
			return nil, err
		}
		if len(v) > 64 {
			return nil, errors.New("it has a decimal of more than 64 bytes")
		}
		binary.LittleEndian.PutUint64(to[8*i:], math.Float64bits(d.decimal(v)))
	}
	return to, nil
}

// gather copies dictionary entries to places step bytes apart. index is checked and to
// has room.
func (d *Decoder) gather(to []byte, step int, index []uint32) {
	if len(index) == 0 {
		return
	}
	dict, at := unsafe.Pointer(unsafe.SliceData(d.dict)), unsafe.Pointer(unsafe.SliceData(to))
	_ = to[(len(index)-1)*step+d.col.Width-1]
	switch w := d.col.Width; w {
	case 4:
		for _, i := range index {
			*(*[4]byte)(at) = *(*[4]byte)(unsafe.Add(dict, 4*int(i)))
			at = unsafe.Add(at, step)
		}
	case 8:
		for _, i := range index {
			*(*[8]byte)(at) = *(*[8]byte)(unsafe.Add(dict, 8*int(i)))
			at = unsafe.Add(at, step)
		}
	default:
		for k, i := range index {
			copy(to[k*step:k*step+w], d.dict[int(i)*w:])
		}
	}
}

// spread copies values of a width to places step bytes apart; to has room for them.
func spread(to []byte, step int, values []byte, width int) {
	if step == width {
		copy(to, values)
		return
	}
	n := len(values) / width
	if n == 0 {
		return
	}
	_ = to[(n-1)*step+width-1]
	from, at := unsafe.Pointer(unsafe.SliceData(values)), unsafe.Pointer(unsafe.SliceData(to))
	switch width {
	case 4:
		for k := range n {
			*(*[4]byte)(unsafe.Add(at, k*step)) = *(*[4]byte)(unsafe.Add(from, 4*k))
		}
	case 8:
		for k := range n {
			*(*[8]byte)(unsafe.Add(at, k*step)) = *(*[8]byte)(unsafe.Add(from, 8*k))
		}
	default:
		for k := range n {
			copy(to[k*step:k*step+width], values[k*width:])
		}
	}
}

// sparse puts values where the levels say that one is, and nulls elsewhere.
func (d *Decoder) sparse(values []byte, lv []uint8) {
	t, w, there := d.to, d.col.Width, uint8(d.col.definition)
	to := t.Data[d.done*t.Step:]
	_ = to[(len(lv)-1)*t.Step+w-1]
	if t.Mask != nil {
		for i, l := range lv {
			if l != there {
				t.Mask[(d.done+i)*t.MaskStep] = 1
			}
		}
	}
	at, from := unsafe.Pointer(unsafe.SliceData(to)), unsafe.Pointer(unsafe.SliceData(values))
	null := unsafe.Pointer(unsafe.SliceData(t.Null))
	switch w {
	case 4:
		sparsely[[4]byte](at, t.Step, from, null, lv, there)
	case 8:
		sparsely[[8]byte](at, t.Step, from, null, lv, there)
	default:
		for i, l := range lv {
			v := t.Null
			if l == there {
				v, values = values, values[w:]
			}
			copy(to[i*t.Step:i*t.Step+w], v)
		}
	}
}

// sparsely is sparse for one width. Eight values that are there, the most frequent case
// by far, are copied at once. Places are counted in bytes from the beginnings, so that no
// pointer is made of a place behind the end.
func sparsely[T [4]byte | [8]byte](to unsafe.Pointer, step int, values, null unsafe.Pointer, lv []uint8, there uint8) {
	width := int(unsafe.Sizeof(*new(T)))
	all := uint64(there) * 0x0101010101010101
	at, from := 0, 0
	for len(lv) >= 8 {
		if step == width && binary.LittleEndian.Uint64(lv) == all {
			*(*[32]byte)(unsafe.Add(to, at)) = *(*[32]byte)(unsafe.Add(values, from))
			if width == 8 {
				*(*[32]byte)(unsafe.Add(to, at+32)) = *(*[32]byte)(unsafe.Add(values, from+32))
			}
			at, from, lv = at+8*width, from+8*width, lv[8:]
			continue
		}
		for _, l := range lv[:8] {
			v := null
			if l == there {
				v = unsafe.Add(values, from)
				from += width
			}
			*(*T)(unsafe.Add(to, at)) = *(*T)(v)
			at += step
		}
		lv = lv[8:]
	}
	for _, l := range lv {
		v := null
		if l == there {
			v = unsafe.Add(values, from)
			from += width
		}
		*(*T)(unsafe.Add(to, at)) = *(*T)(v)
		at += step
	}
}
