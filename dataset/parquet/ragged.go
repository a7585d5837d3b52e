package parquet

import (
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
	values, err := d.fixed(h.encoding, b, present)
	if err != nil {
		return err
	}
	if len(t.Bytes)+n*w > t.Most {
		return fmt.Errorf("the row group's lists have more than %d MiB; write the file with smaller row groups", t.Most>>20)
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
		case l == there:
			t.Bytes, values = append(t.Bytes, values[:w]...), values[w:]
		case l >= listed && t.NoNulls:
			return fmt.Errorf(`a list of row %d of the row group has a null; say what a null becomes: nulls={%q: 0}`, d.row-1, d.col.Name)
		case l >= listed:
			t.Bytes = append(t.Bytes, t.Null...)
		}
		t.Offsets[d.row] = int64(len(t.Bytes))
	}
	d.done += n
	return nil
}
