// Package source reads tables that are no Parquet: images in folders, WebDataset's tar
// files, TFRecord, CSV and MosaicML's shards. Each becomes columns and groups of rows
// like a Parquet file's, so that everything else is the same for all of them: order,
// state, shares of ranks, filters.
//
// What has no index of its own (tar, TFRecord, CSV) is read through once, and what was
// found is kept in a folder for such things. Sizes that a file states are compared with
// the file's before memory is taken; damage is an error that names the place, and never
// a panic. A Table may be used by several goroutines at once; the package starts none.
package source

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"runtime/debug"
	"strings"

	"hora/dataset/parquet"
	"hora/storage"
)

// Kind is a format.
type Kind uint8

const (
	None    Kind = iota // Parquet, or nothing that is known
	Tar                 // WebDataset
	Records             // TFRecord
	CSV
	Shards // MosaicML's MDS
	Images // JPEG and PNG files
)

var kindNames = [...]string{"parquet", "tar", "tfrecord", "csv", "mds", "images"}

func (k Kind) String() string { return kindNames[k] }

// Names says what files are called that are read, for messages.
const Names = ".tar, .tfrecord, .csv, .tsv, .jpg, .jpeg, .png, or MosaicML's index.json"

// Of is the format of a file by its name.
func Of(name string) Kind {
	name = strings.ToLower(name)
	base := path.Base(name)
	switch ext := path.Ext(base); {
	case ext == ".tar":
		return Tar
	case ext == ".tfrecord" || ext == ".tfrecords" || ext == ".tfrec" || strings.Contains(base, ".tfrecord-"):
		return Records
	case ext == ".csv" || ext == ".tsv":
		return CSV
	case base == "index.json":
		return Shards
	case ext == ".jpg" || ext == ".jpeg" || ext == ".png":
		return Images
	}
	return None
}

// Table is a file, or a folder of images.
type Table interface {
	// About is what a Parquet file's footer would say.
	About() *parquet.File
	// Checked reports whether damage can be told from data.
	Checked() bool
	// Fetch reads a group's bytes to buf, or to more memory where it is too small.
	Fetch(ctx context.Context, group int, buf []byte) ([]byte, error)
	// Decode puts a column's values of a group to a target.
	Decode(group, column int, data []byte, t *parquet.Target) error
}

// File is where a table lies.
type File struct {
	Store  storage.Store
	Object storage.Object
}

func (f *File) read(ctx context.Context, p []byte, offset int64) error {
	if offset < 0 || int64(len(p)) > f.Object.Size-offset {
		return fmt.Errorf("%d bytes at %d are asked for and the file has %d", len(p), offset, f.Object.Size)
	}
	return f.Store.ReadAt(ctx, f.Object, p, offset)
}

// Open reads a table's index, or makes it. shelf keeps what was found; nil keeps nothing.
func Open(ctx context.Context, kind Kind, f File, shelf *storage.Shelf) (t Table, err error) {
	defer guard(&err)
	switch kind {
	case Tar:
		return openTar(ctx, f, shelf)
	case Records:
		return openRecords(ctx, f, shelf)
	case CSV:
		return openCSV(ctx, f, shelf)
	}
	return nil, fmt.Errorf("it is %s, which is not read file by file", kind)
}

// guard makes an error of a panic: what a decoder meets is none of ours.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("internal fault of hora: %v; please report it with this: %s", p, debug.Stack())
	}
}

const (
	groupBytes = 1 << 20 // what a group has at least, where rows are small
	groupRows  = 4096
	maxGroup   = 1 << 30 // what is read at once at most
	maxRows    = 1 << 28 // of a file
)

// groups cuts rows into groups of about a MiB by where each begins; starts has one more
// for the end. It answers the first row of each group, and the number of rows.
func groups(starts []int64) []int {
	first := []int{0}
	rows := len(starts) - 1
	for i := 1; i < rows; i++ {
		at := first[len(first)-1]
		if starts[i]-starts[at] >= groupBytes || i-at >= groupRows {
			first = append(first, i)
		}
	}
	return append(first, rows)
}

// about makes a footer of columns and groups. plain says how many bytes a group's column
// has; per how many values each row of a list has, 0 where that differs.
func about(by string, columns []parquet.Column, first []int, digest [32]byte, plain func(group, column int) int64,
	per func(column int) int,
) *parquet.File {
	f := &parquet.File{Columns: columns, By: by, Digest: digest}
	for g := range len(first) - 1 {
		n := int64(first[g+1] - first[g])
		if n == 0 {
			continue
		}
		group := parquet.Group{Rows: n, Chunks: make([]parquet.Chunk, len(columns))}
		for c := range columns {
			k := &group.Chunks[c]
			k.Plain, k.Values = plain(g, c), n
			if columns[c].List {
				k.Values = n * int64(per(c))
			}
		}
		f.Groups = append(f.Groups, group)
		f.Rows += n
	}
	return f
}

// sink puts values to a target, row after row.
type sink struct {
	*parquet.Target
	name string
	row  int
}

func newSink(t *parquet.Target, name string) sink {
	if t.Offsets != nil {
		t.Bytes, t.Offsets[0] = t.Bytes[:0], 0
	}
	return sink{Target: t, name: name}
}

// text adds a text, or the bytes of a ragged list's values.
func (s *sink) text(v []byte) error {
	if s.row+1 >= len(s.Offsets) {
		return errors.New("it has more rows than its index says")
	}
	if len(s.Bytes)+len(v) > s.Most {
		return fmt.Errorf("column %q has more than %d MiB in a group of rows; make several files of it", s.name, s.Most>>20)
	}
	s.Bytes = append(s.Bytes, v...)
	s.row++
	s.Offsets[s.row] = int64(len(s.Bytes))
	return nil
}

// fixed adds a value of a fixed width, or a row's values of a list of which all have as
// many.
func (s *sink) fixed(v []byte, width int) error {
	per := max(1, s.Per)
	if len(v) != per*width {
		return fmt.Errorf("column %q has %d values where others have %d; lists of different lengths are read where ragged= names them", s.name, len(v)/max(1, width), per)
	}
	at := s.row * per * s.Step
	if len(s.Data) < at+(per-1)*s.Step+width {
		return errors.New("it has more rows than its index says")
	}
	if s.Step == width {
		copy(s.Data[at:], v)
	} else {
		for k := range per {
			copy(s.Data[at+k*s.Step:], v[k*width:(k+1)*width])
		}
	}
	s.row++
	return nil
}

func (s *sink) int(v int64) error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(v))
	return s.fixed(b[:], 8)
}

// null adds what stands for one.
func (s *sink) null() error {
	if s.NoNulls {
		return fmt.Errorf(`column %q has no value here; say what a null becomes: nulls={%q: "mask"}, "nan" or a value`, s.name, s.name)
	}
	if s.Mask != nil {
		for k := range max(1, s.Per) {
			s.Mask[(s.row*max(1, s.Per)+k)*s.MaskStep] = 1
		}
	}
	if s.Offsets != nil {
		if s.Ragged {
			return s.text(nil)
		}
		return s.text(s.Null)
	}
	if s.Per > 1 {
		return fmt.Errorf("column %q has no values where others have %d; lists of different lengths are read where ragged= names them", s.name, s.Per)
	}
	return s.fixed(s.Null, len(s.Null))
}

// full checks that every row got a value.
func (s *sink) full(rows int) error {
	if s.row != rows {
		return fmt.Errorf("it has %d rows in a group that has %d by its index", s.row, rows)
	}
	return nil
}

// room is buf with n bytes.
func room(buf []byte, n int64) ([]byte, error) {
	if n < 0 || n > maxGroup {
		return nil, fmt.Errorf("a group of its rows has %d MiB, more than hora reads at once", n>>20)
	}
	if int64(cap(buf)) < n {
		buf = make([]byte, n)
	}
	return buf[:n], nil
}

// stream reads a file from its beginning to its end, and skips what is not wanted.
type stream struct {
	ctx  context.Context
	file *File
	at   int64  // of the next byte
	buf  []byte // what was read ahead, from from on
	from int64
}

const readAhead = 128 << 10

func (s *stream) Read(p []byte) (int, error) {
	if s.at >= s.file.Object.Size {
		return 0, errEnd
	}
	if s.at < s.from || s.at >= s.from+int64(len(s.buf)) {
		n := min(readAhead, s.file.Object.Size-s.at)
		if int64(cap(s.buf)) < n {
			s.buf = make([]byte, n)
		}
		s.buf, s.from = s.buf[:n], s.at
		if err := s.file.read(s.ctx, s.buf, s.at); err != nil {
			s.buf = s.buf[:0]
			return 0, err
		}
	}
	n := copy(p, s.buf[s.at-s.from:])
	s.at += int64(n)
	return n, nil
}

// Seek goes on elsewhere.
func (s *stream) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case 1:
		offset += s.at
	case 2:
		offset += s.file.Object.Size
	}
	if offset < 0 {
		return 0, errors.New("it begins before the file")
	}
	s.at = offset
	return offset, nil
}

// digest is a fingerprint of an index.
func digest(index []byte) [32]byte { return sha256.Sum256(index) }
