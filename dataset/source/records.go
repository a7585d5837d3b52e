package source

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"hora/dataset/parquet"
	"hora/storage"
)

// recordTable is a TFRecord file: frames with checksums, in each a tf.train.Example,
// whose features are columns. Where the first record is none, there is one column
// "record" with the bytes.
type recordTable struct {
	file   File
	meta   *parquet.File
	kinds  []int   // of each column: which list of a Feature it is; 0: the record's bytes
	counts []int   // of each column: values of a row; 0: they differ
	starts []int64 // where frames begin; one more for the end
	first  []int   // record of each group
}

// Lists of a Feature, by their number in its description.
const (
	bytesList  = 1
	floatsList = 2
	intsList   = 3
)

const (
	frameHead = 12
	frameTail = 4
	sampled   = 256 // records that are looked at for columns
	maxColumn = 4096
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is the checksum as TFRecord stores it.
func masked(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

func openRecords(ctx context.Context, f File, shelf *storage.Shelf) (Table, error) {
	index, err := indexed("tfrecord", &f, shelf, func() ([]byte, error) { return indexRecords(ctx, &f) })
	if err != nil {
		return nil, err
	}
	return newRecords(f, index)
}

// indexRecords goes through the frames and looks at the first records.
func indexRecords(ctx context.Context, f *File) ([]byte, error) {
	s := &stream{ctx: ctx, file: f}
	var lengths packer
	var seen features
	rows := int64(0)
	for s.at < f.Object.Size {
		at := s.at
		var head [frameHead]byte
		if err := fill(s, head[:]); err != nil {
			return nil, fmt.Errorf("record %d at byte %d is cut: %w", rows, at, err)
		}
		length, err := frame(head[:], f.Object.Size-s.at)
		if err != nil {
			if head[0] == 0x1f && head[1] == 0x8b && rows == 0 {
				return nil, errors.New("it is compressed as a whole, which cannot be read in parts: unpack it, or write it again without compression")
			}
			return nil, fmt.Errorf("record %d at byte %d: %w", rows, at, err)
		}
		if rows < sampled {
			if length > maxGroup {
				return nil, fmt.Errorf("record %d at byte %d has %d MiB, more than hora reads at once", rows, at, length>>20)
			}
			body := make([]byte, length+frameTail)
			if err := fill(s, body); err != nil {
				return nil, fmt.Errorf("record %d at byte %d is cut: %w", rows, at, err)
			}
			if err := sum(body); err != nil {
				return nil, fmt.Errorf("record %d at byte %d: %w", rows, at, err)
			}
			if err := seen.add(body[:length], rows); err != nil {
				return nil, fmt.Errorf("record %d at byte %d: %w", rows, at, err)
			}
		} else {
			s.at += length + frameTail
		}
		lengths.int(length)
		if rows++; rows > maxRows {
			return nil, fmt.Errorf("it has more than %d records", maxRows)
		}
	}
	if rows == 0 {
		return nil, errors.New("it is empty")
	}
	var p packer
	seen.pack(&p, min(rows, sampled))
	p.int(rows)
	p.b = append(p.b, lengths.b...)
	return p.b, nil
}

func fill(s *stream, p []byte) error {
	for n := 0; n < len(p); {
		k, err := s.Read(p[n:])
		if errors.Is(err, errEnd) {
			return errors.New("the file ends in it")
		}
		if err != nil {
			return err
		}
		n += k
	}
	return nil
}

// frame checks a frame's head and answers how long its record is.
func frame(head []byte, left int64) (int64, error) {
	if masked(head[:8]) != binary.LittleEndian.Uint32(head[8:]) {
		return 0, errors.New("the checksum of its length is wrong: it is no TFRecord file, or damaged")
	}
	n := binary.LittleEndian.Uint64(head)
	if n > math.MaxInt64/2 || int64(n) > left-frameTail {
		return 0, fmt.Errorf("it is said to have %d bytes, and %d are left of the file", n, left)
	}
	return int64(n), nil
}

// sum checks a record with the checksum behind it.
func sum(body []byte) error {
	n := len(body) - frameTail
	if masked(body[:n]) != binary.LittleEndian.Uint32(body[n:]) {
		return errors.New("its checksum is wrong: the file is damaged")
	}
	return nil
}

// features are what the first records have.
type features struct {
	names []string
	kinds []int
	least []int
	most  []int
	times []int64
	raw   bool // the records are no Examples
}

// add looks at one record.
func (f *features) add(record []byte, row int64) error {
	if f.raw {
		return nil
	}
	if row == 0 && !isExample(record) {
		f.raw = true
		return nil
	}
	return each(record, func(name, feature []byte) error {
		kind, n, err := measure(feature)
		if err != nil || kind == 0 {
			return err
		}
		i := slices.Index(f.names, string(name))
		if i < 0 {
			if len(f.names) >= maxColumn {
				return fmt.Errorf("it has more than %d features", maxColumn)
			}
			i = len(f.names)
			f.names, f.kinds = append(f.names, string(name)), append(f.kinds, kind)
			f.least, f.most, f.times = append(f.least, n), append(f.most, n), append(f.times, 0)
		}
		if f.kinds[i] != kind {
			return fmt.Errorf("its feature %q is of another type than before", name)
		}
		f.least[i], f.most[i] = min(f.least[i], n), max(f.most[i], n)
		f.times[i]++
		return nil
	})
}

func isExample(record []byte) bool {
	named := false
	err := each(record, func(name, feature []byte) error {
		named = true
		_, _, err := measure(feature)
		return err
	})
	return err == nil && named
}

func (f *features) pack(p *packer, rows int64) {
	if f.raw || len(f.names) == 0 {
		p.int(1)
		p.text("record")
		for _, v := range []int64{0, 1, 1, 0} {
			p.int(v)
		}
		return
	}
	order := make([]int, len(f.names))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { // a map's order says nothing
		if f.names[a] < f.names[b] {
			return -1
		}
		return 1
	})
	p.int(int64(len(order)))
	for _, i := range order {
		p.text(f.names[i])
		p.int(int64(f.kinds[i]))
		p.int(int64(f.least[i]))
		p.int(int64(f.most[i]))
		missing := int64(0)
		if f.times[i] < rows || f.least[i] == 0 && f.most[i] <= 1 {
			missing = 1
		}
		p.int(missing)
	}
}

func newRecords(f File, index []byte) (*recordTable, error) {
	u := &unpacker{b: index}
	t := &recordTable{file: f}
	var columns []parquet.Column
	for range min(u.count(), maxColumn) {
		col := parquet.Column{Name: u.text()}
		kind, least, most := int(u.int()), u.int(), u.int()
		col.MayBeNull = u.int() > 0 || most > 0 // later records may lack it
		per := 0
		if least == most && most <= 1<<24 {
			per = int(most)
		}
		switch kind {
		case 0, bytesList:
			col.Type = "binary"
			if most > 1 {
				col.Why = "it has several byte strings in a record"
			}
		case floatsList:
			col.Type, col.Width = "float32", 4
		case intsList:
			col.Type, col.Width = "int64", 8
		default:
			return nil, errIndex
		}
		if kind == 0 {
			col.MayBeNull = false
		}
		if col.Width > 0 && most > 1 {
			col.List, col.MayBeNull = true, false
		} else {
			per = 1
		}
		columns, t.kinds, t.counts = append(columns, col), append(t.kinds, kind), append(t.counts, per)
	}
	rows, at := u.count(), int64(0)
	t.starts = make([]int64, 0, rows+1)
	for range rows {
		t.starts = append(t.starts, at)
		n := u.int()
		if n < 0 || n > f.Object.Size {
			return nil, errIndex
		}
		at += frameHead + n + frameTail
	}
	if u.bad || rows == 0 || at != f.Object.Size {
		return nil, errIndex
	}
	t.starts = append(t.starts, at)
	t.first = groups(t.starts)
	t.meta = about("tfrecord", columns, t.first, digest(index), func(g, _ int) int64 {
		return (t.starts[t.first[g+1]] - t.starts[t.first[g]]) / int64(max(1, len(columns)))
	}, func(c int) int { return t.counts[c] })
	return t, nil
}

func (t *recordTable) About() *parquet.File { return t.meta }
func (t *recordTable) Checked() bool        { return true }

// Fetch reads a group's frames and compares their checksums.
func (t *recordTable) Fetch(ctx context.Context, group int, buf []byte) ([]byte, error) {
	from, to := t.first[group], t.first[group+1]
	begin := t.starts[from]
	buf, err := room(buf, t.starts[to]-begin)
	if err != nil {
		return nil, err
	}
	if err := t.file.read(ctx, buf, begin); err != nil {
		return nil, err
	}
	for i := from; i < to; i++ {
		one := buf[t.starts[i]-begin : t.starts[i+1]-begin]
		n, err := frame(one[:frameHead], int64(len(one))-frameHead)
		if err == nil && n != int64(len(one))-frameHead-frameTail {
			err = errors.New("its length is not what it was when the file was indexed")
		}
		if err == nil {
			err = sum(one[frameHead:])
		}
		if err != nil {
			return nil, fmt.Errorf("record %d at byte %d: %w", i, t.starts[i], err)
		}
	}
	return buf, nil
}

// Decode puts a feature of a group's records to a target.
func (t *recordTable) Decode(group, column int, data []byte, to *parquet.Target) (err error) {
	defer guard(&err)
	from, end := t.first[group], t.first[group+1]
	begin := t.starts[from]
	col, kind := &t.meta.Columns[column], t.kinds[column]
	s := newSink(to, col.Name)
	var scratch []byte
	for i := from; i < end; i++ {
		record := data[t.starts[i]-begin+frameHead : t.starts[i+1]-begin-frameTail]
		var err error
		if kind == 0 {
			err = s.text(record)
		} else {
			scratch, err = s.feature(record, kind, col, scratch)
		}
		if err != nil {
			return fmt.Errorf("record %d at byte %d: %w", i, t.starts[i], err)
		}
	}
	return s.full(end - from)
}

// feature adds a record's feature of the sink's name.
func (s *sink) feature(record []byte, kind int, col *parquet.Column, scratch []byte) ([]byte, error) {
	var found []byte
	err := each(record, func(name, feature []byte) error {
		if string(name) == s.name {
			found = feature // of two with a name the last counts, as everywhere in this encoding
		}
		return nil
	})
	if err != nil {
		return scratch, err
	}
	got, n, err := measure(found)
	if err != nil {
		return scratch, err
	}
	if n == 0 && !s.Ragged {
		return scratch, s.null()
	}
	if n > 0 && got != kind {
		return scratch, fmt.Errorf("its feature %q is of another type than in the first records", s.name)
	}
	if scratch, err = values(scratch[:0], found); err != nil {
		return scratch, err
	}
	if kind == bytesList {
		if n != 1 {
			return scratch, fmt.Errorf("its feature %q has %d byte strings, and one is expected", s.name, n)
		}
		return scratch, s.text(scratch)
	}
	if s.Ragged {
		return scratch, s.text(scratch)
	}
	return scratch, s.fixed(scratch, col.Width)
}
