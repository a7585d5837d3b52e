package source

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"hora/dataset/parquet"
	"hora/storage"
)

// csvTable is a file of rows with the columns' names in its first line. A column is of
// whole numbers, of numbers or of booleans where all values are, else of texts; an empty
// field is a null but in texts.
type csvTable struct {
	file   File
	meta   *parquet.File
	comma  rune
	kinds  []int   // of each column
	starts []int64 // where rows begin; one more for the end
	lines  []int64 // the line that each group begins with
	first  []int
}

const maxRow = 64 << 20

// Kinds of columns, from the narrowest on.
const (
	csvBool = iota
	csvInt
	csvFloat
	csvText
	csvEmpty // no value is there
)

// guess narrows down what a column is.
type guess struct {
	not   [csvText]bool
	empty bool
	some  bool
	bytes int64
}

func (g *guess) add(v string) {
	g.bytes += int64(len(v))
	if v == "" {
		g.empty = true
		return
	}
	g.some = true
	if !g.not[csvBool] {
		_, g.not[csvBool] = boolean(v)
		g.not[csvBool] = !g.not[csvBool]
	}
	if !g.not[csvInt] {
		_, err := strconv.ParseInt(v, 10, 64)
		g.not[csvInt] = err != nil
	}
	if g.not[csvInt] && !g.not[csvFloat] {
		_, err := number(v)
		g.not[csvFloat] = err != nil
	}
}

func boolean(v string) (value, is bool) {
	switch v {
	case "true", "True", "TRUE":
		return true, true
	case "false", "False", "FALSE":
		return false, true
	}
	return false, false
}

func number(v string) (float64, error) {
	if strings.ContainsAny(v, "xX_pP") { // Go's numbers are more than others'
		return 0, errors.New("it is no number")
	}
	return strconv.ParseFloat(v, 64)
}

func (g *guess) kind() int {
	if !g.some {
		return csvEmpty
	}
	for k := range csvText {
		if !g.not[k] {
			return k
		}
	}
	return csvText
}

func separator(name string) rune {
	if strings.HasSuffix(strings.ToLower(name), ".tsv") {
		return '\t'
	}
	return ','
}

func openCSV(ctx context.Context, f File, shelf *storage.Shelf) (Table, error) {
	index, err := indexed("csv", &f, shelf, func() ([]byte, error) { return indexCSV(ctx, &f) })
	if err != nil {
		return nil, err
	}
	return newCSV(f, index)
}

// bounded lets a row be so long and no longer: an unclosed quote would take all the file.
type bounded struct {
	io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("a row has more than %d MiB: is a quote not closed?", maxRow>>20)
	}
	n, err := b.Reader.Read(p)
	b.left -= int64(n)
	return n, err
}

func reader(from io.Reader, comma rune) *csv.Reader {
	r := csv.NewReader(from)
	r.Comma, r.ReuseRecord = comma, true
	return r
}

// indexCSV goes through all rows: where each begins, and what the columns are.
func indexCSV(ctx context.Context, f *File) ([]byte, error) {
	limit := &bounded{&stream{ctx: ctx, file: f}, maxRow}
	r := reader(limit, separator(f.Object.Name))
	head, err := r.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty: its first line names the columns")
	}
	if err != nil {
		return nil, csvFault(err)
	}
	names := slices.Clone(head)
	names[0] = strings.TrimPrefix(names[0], "\ufeff") // some programs begin files so
	if len(names) > maxColumn {
		return nil, fmt.Errorf("it has %d columns, more than %d", len(names), maxColumn)
	}
	for i, n := range names {
		if slices.Index(names, n) != i {
			return nil, fmt.Errorf("two of its columns are called %q; give them different names in the first line", n)
		}
	}
	guesses := make([]guess, len(names))
	var rows packer
	count, last := int64(0), int64(0)
	for {
		at := r.InputOffset()
		limit.left = maxRow
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, csvFault(err)
		}
		for i, v := range row {
			guesses[i].add(v)
		}
		line, _ := r.FieldPos(0)
		rows.int(at - last)
		rows.int(int64(line))
		last = at
		if count++; count > maxRows {
			return nil, fmt.Errorf("it has more than %d rows", maxRows)
		}
	}
	if count == 0 {
		return nil, errors.New("it has no rows but the names of its columns")
	}
	var p packer
	p.int(int64(len(names)))
	for i, n := range names {
		g := &guesses[i]
		p.text(n)
		p.int(int64(g.kind()))
		p.int(map[bool]int64{true: 1}[g.empty])
		p.int(g.bytes)
	}
	p.int(count)
	p.b = append(p.b, rows.b...)
	p.int(r.InputOffset() - last)
	return p.b, nil
}

// csvFault says where: the line and column are in the reader's own words.
func csvFault(err error) error {
	var stored *storage.Error
	if errors.As(err, &stored) {
		return err
	}
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		what := map[error]string{
			csv.ErrFieldCount: "it has another number of fields than the first line", csv.ErrQuote: "a quote has no end, or something follows it",
			csv.ErrBareQuote: "there is a quote in a field without quotes",
		}[parse.Err]
		if what == "" {
			what = parse.Err.Error()
		}
		return fmt.Errorf("line %d, character %d: %s", parse.Line, parse.Column, what)
	}
	return err
}

func newCSV(f File, index []byte) (*csvTable, error) {
	u := &unpacker{b: index}
	t := &csvTable{file: f, comma: separator(f.Object.Name)}
	var columns []parquet.Column
	var sums []int64
	for range min(u.count(), maxColumn) {
		col := parquet.Column{Name: u.text()}
		kind := int(u.int())
		col.Type, col.Width = csvType(kind)
		col.MayBeNull = u.int() > 0 && col.Width > 0
		t.kinds = append(t.kinds, kind)
		columns, sums = append(columns, col), append(sums, u.int())
	}
	rows, at := u.count(), int64(0)
	lines := make([]int64, 0, rows)
	for range rows {
		at += u.int()
		t.starts, lines = append(t.starts, at), append(lines, u.int())
		if at < 0 || at > f.Object.Size || len(t.starts) > 1 && at <= t.starts[len(t.starts)-2] {
			return nil, errIndex
		}
	}
	at += u.int()
	if u.bad || rows == 0 || at > f.Object.Size || at < t.starts[rows-1] {
		return nil, errIndex
	}
	t.starts = append(t.starts, at)
	t.first = groups(t.starts)
	for _, i := range t.first[:len(t.first)-1] {
		t.lines = append(t.lines, lines[i])
	}
	t.meta = about("csv", columns, t.first, digest(index), func(g, c int) int64 {
		return sums[c] * int64(t.first[g+1]-t.first[g]) / int64(rows)
	}, nil)
	return t, nil
}

func csvType(kind int) (typ string, width int) {
	switch kind {
	case csvBool:
		return "bool", 1
	case csvInt:
		return "int64", 8
	case csvFloat:
		return "float64", 8
	}
	return "string", 0
}

// Agree makes columns of a name alike in all of several files: whole numbers become
// numbers where another file has such, and a column without values what others have.
func Agree(tables []Table) {
	widest := map[string]int{}
	for _, one := range tables {
		if t, is := one.(*csvTable); is {
			for i, kind := range t.kinds {
				name := t.meta.Columns[i].Name
				known, there := widest[name]
				switch {
				case !there || known == csvEmpty, known == csvInt && kind == csvFloat:
					widest[name] = kind
				}
			}
		}
	}
	for _, one := range tables {
		if t, is := one.(*csvTable); is {
			for i, kind := range t.kinds {
				col := &t.meta.Columns[i]
				if to := widest[col.Name]; kind == csvEmpty || kind == csvInt && to == csvFloat {
					t.kinds[i] = to
					col.Type, col.Width = csvType(to)
					col.MayBeNull = col.Width > 0 && (col.MayBeNull || kind == csvEmpty)
				}
			}
		}
	}
}

func (t *csvTable) About() *parquet.File { return t.meta }
func (t *csvTable) Checked() bool        { return false }

func (t *csvTable) Fetch(ctx context.Context, group int, buf []byte) ([]byte, error) {
	begin := t.starts[t.first[group]]
	buf, err := room(buf, t.starts[t.first[group+1]]-begin)
	if err != nil {
		return nil, err
	}
	return buf, t.file.read(ctx, buf, begin)
}

// Decode puts a column of a group's rows to a target.
func (t *csvTable) Decode(group, column int, data []byte, to *parquet.Target) error {
	var f Fields
	if err := t.Split(group, []int{column}, data, &f); err != nil {
		return err
	}
	return t.DecodeFields(group, column, &f, to)
}

// Split finds the fields of some columns in a group's rows.
func (t *csvTable) Split(group int, columns []int, data []byte, f *Fields) (err error) {
	defer guard(&err)
	r := reader(bytes.NewReader(data), t.comma)
	r.FieldsPerRecord = len(t.meta.Columns)
	f.begin(columns)
	for n := range t.first[group+1] - t.first[group] {
		row, err := r.Read()
		if err != nil {
			return fmt.Errorf("the row after line %d: %w; was the file changed?", t.lines[group]+int64(n), csvFault(err))
		}
		for _, c := range f.columns {
			line, _ := r.FieldPos(c)
			f.add(row[c], line)
		}
	}
	return nil
}

// DecodeFields puts a column of a group's rows to a target.
func (t *csvTable) DecodeFields(group, column int, f *Fields, to *parquet.Target) (err error) {
	defer guard(&err)
	col := &t.meta.Columns[column]
	s := newSink(to, col.Name)
	at, step := slices.Index(f.columns, column), len(f.columns)
	for ; at < len(f.lines); at += step {
		if err := s.field(f.at(at), col); err != nil {
			return fmt.Errorf("line %d: %w", t.lines[group]+f.lines[at]-1, err)
		}
	}
	return s.full(t.first[group+1] - t.first[group])
}

// field adds a field.
func (s *sink) field(v string, col *parquet.Column) error {
	if col.Width == 0 {
		return s.text(unsafe.Slice(unsafe.StringData(v), len(v))) // which copies it
	}
	if v == "" {
		return s.null()
	}
	switch col.Type {
	case "bool":
		b, is := boolean(v)
		if !is {
			break
		}
		return s.fixed([]byte{map[bool]byte{true: 1}[b]}, 1)
	case "int64":
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return s.int(n)
		}
	case "float64":
		if n, err := number(v); err == nil {
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], math.Float64bits(n))
			return s.fixed(b[:], 8)
		}
	}
	return fmt.Errorf("column %q has %.40q where %s is expected", col.Name, v, col.Type)
}
