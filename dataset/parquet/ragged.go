package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ragged reads a page of lists: a value whose repetition level is 0 begins a row, and
// one whose definition level is too low stands for a list without values.
func (d *Decoder) ragged(h *header, repetition, definition, b []byte) error {
	n, t, w := int(h.values), d.to, d.col.Width
	if cap(d.starts) < n {
		d.starts = make([]uint8, n+n/4)
	}
	starts, lv := d.starts[:n], d.levels[:n]
	if _, err := levels(starts, repetition, d.col.repetition); err != nil {
		return err
	}
	if _, err := levels(lv, definition, d.col.definition); err != nil {
		return err
	}
	there, listed, present := uint8(d.col.definition), uint8(d.col.listed), 0
	for _, l := range lv {
		if l == there {
			present++
		}
	}
	var values []byte
	var text func() ([]byte, error)
	var err error
	if w == 0 {
		text, err = d.reader(h.encoding, b, present)
	} else {
		values, err = d.fixed(h.encoding, b, present)
	}
	if err != nil {
		return err
	}
	if len(t.Bytes)+n*max(w, 4) > t.Most {
		return d.crowded()
	}
	for i, l := range lv {
		if starts[i] == 0 {
			if d.row++; d.row >= len(t.Offsets) {
				return errors.New("it has more rows than the row group")
			}
		} else if d.row == 0 {
			return errors.New("its first list begins in the middle")
		}
		switch {
		case l == there && w == 0:
			if err := d.listText(text); err != nil {
				return err
			}
		case l == there:
			t.Bytes, values = append(t.Bytes, values[:w]...), values[w:]
		case l >= listed && t.NoNulls:
			return fmt.Errorf(`a list of row %d of the row group has a null; say what a null becomes: nulls={%q: 0}`, d.first+d.row-1, d.col.Name)
		case l >= listed && w == 0:
			t.Bytes = binary.LittleEndian.AppendUint32(t.Bytes, NullText)
		case l >= listed:
			t.Bytes = append(t.Bytes, t.Null...)
		}
		t.Offsets[d.row] = int64(len(t.Bytes))
	}
	d.done += n
	return nil
}

// NullText stands in a list of texts where a text's length would, and for one that is null.
const NullText = 1<<32 - 1

// listText adds a text of a list: its length as four bytes, little end first, and itself.
func (d *Decoder) listText(next func() ([]byte, error)) error {
	v, err := next()
	if err != nil {
		return err
	}
	t := d.to
	if len(t.Bytes)+4+len(v) > t.Most {
		return d.crowded()
	}
	t.Bytes = append(binary.LittleEndian.AppendUint32(t.Bytes, uint32(len(v))), v...)
	return nil
}

func (d *Decoder) crowded() error {
	return fmt.Errorf("the row group's lists have more than %d MiB; write the file with smaller row groups", d.to.Most>>20)
}
