package source

import (
	"slices"
	"unsafe"

	"hora/dataset/parquet"
)

// Splitter is a Table whose rows have to be parsed as a whole to find a column: that is done once for all columns that
// are wanted.
type Splitter interface {
	// Split finds the fields of some columns of a group in what Fetch has read.
	Split(group int, columns []int, data []byte, f *Fields) error
	// DecodeFields puts one of these columns to a target.
	DecodeFields(group, column int, f *Fields, t *parquet.Target) error
}

// Fields are a group's fields of some columns, row after row. Whoever has one may use it for the next group.
type Fields struct {
	columns []int // from the lowest on
	text    []byte
	ends    []int   // of each field in text
	lines   []int64 // of the group in which each field begins, from 1 on
}

func (f *Fields) begin(columns []int) {
	f.columns = append(f.columns[:0], columns...)
	slices.Sort(f.columns)
	f.columns = slices.Compact(f.columns)
	f.text, f.ends, f.lines = f.text[:0], f.ends[:0], f.lines[:0]
}

func (f *Fields) add(v string, line int) {
	f.text = append(f.text, v...)
	f.ends, f.lines = append(f.ends, len(f.text)), append(f.lines, int64(line))
}

// at is the field of that number, as long as nothing is added.
func (f *Fields) at(i int) string {
	begin := 0
	if i > 0 {
		begin = f.ends[i-1]
	}
	field := f.text[begin:f.ends[i]]
	return unsafe.String(unsafe.SliceData(field), len(field))
}
