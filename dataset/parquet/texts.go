package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var errTexts = errors.New("its texts are longer than it is")

// text takes a plain text from b.
func text(b []byte) (v, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errTexts
	}
	n := binary.LittleEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-4) {
		return nil, nil, errTexts
	}
	return b[4 : 4+n], b[4+n:], nil
}

func (d *Decoder) textDictionary(b []byte, n int) error {
	if n > len(b)/4 {
		return errTexts
	}
	d.dict, d.ends = d.dict[:0], append(d.ends[:0], 0)
	for range n {
		v, rest, err := text(b)
		if err != nil {
			return err
		}
		d.dict = append(d.dict, v...)
		d.ends = append(d.ends, int64(len(d.dict)))
		b = rest
	}
	d.entries = n
	return nil
}

// texts reads a page of texts: n values of which so many are there.
func (d *Decoder) texts(e encoding, b []byte, n, present int, lv []uint8) error {
	next, err := d.reader(e, b, present)
	if err != nil {
		return err
	}
	t := d.to
	for i := range n {
		v := t.Null
		if lv == nil || int(lv[i]) == d.col.definition {
			if v, err = next(); err != nil {
				return err
			}
		} else if t.Mask != nil {
			t.Mask[(d.done+i)*t.MaskStep] = 1
		}
		if len(t.Bytes)+len(v) > t.Most {
			return fmt.Errorf("the row group's texts have more than %d MiB; write the file with smaller row groups", t.Most>>20)
		}
		t.Bytes = append(t.Bytes, v...)
		t.Offsets[d.done+i+1] = int64(len(t.Bytes))
	}
	d.done += n
	return nil
}

// reader answers a function that takes text after text; a text lives until the next.
func (d *Decoder) reader(e encoding, b []byte, n int) (func() ([]byte, error), error) {
	switch e {
	case ePlain:
		return func() (v []byte, err error) {
			v, b, err = text(b)
			return v, err
		}, nil
	case eDictionary, ePlainDictionary:
		if err := d.indices(b, n); err != nil {
			return nil, err
		}
		at := 0
		return func() ([]byte, error) {
			i := d.index[at]
			at++
			return d.dict[d.ends[i]:d.ends[i+1]], nil
		}, nil
	case eDeltaLength:
		return d.lengths(b, n, nil)
	case eDeltaBytes:
		return d.prefixes(b, n)
	}
	return nil, fmt.Errorf("its texts are written as %s, which hora does not read", e)
}

// lengths reads texts after their lengths; shared says how many bytes each has in
// common with the one before.
func (d *Decoder) lengths(b []byte, n int, shared []int64) (func() ([]byte, error), error) {
	if n > len(b)*64*32 { // a miniblock of equal differences has no bytes of its own
		return nil, errDelta
	}
	all := make([]int64, n)
	b, err := deltas(all, b)
	if err != nil {
		return nil, err
	}
	d.text = d.text[:0]
	at := 0
	return func() ([]byte, error) {
		k := all[at]
		if k < 0 || k > int64(len(b)) {
			return nil, errTexts
		}
		v := b[:k]
		b = b[k:]
		if shared != nil {
			if p := shared[at]; p < 0 || p > int64(len(d.text)) {
				return nil, errTexts
			}
			d.text = append(d.text[:shared[at]], v...)
			v = d.text
		}
		at++
		return v, nil
	}, nil
}

func (d *Decoder) prefixes(b []byte, n int) (func() ([]byte, error), error) {
	if n > len(b)*64*32 {
		return nil, errDelta
	}
	shared := make([]int64, n)
	b, err := deltas(shared, b)
	if err != nil {
		return nil, err
	}
	return d.lengths(b, n, shared)
}
