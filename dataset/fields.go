package dataset

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"hora/dataset/parquet"
)

// field is an array of a batch.
type field struct {
	Field
	per   int // values of a row in each of its columns
	value int // bytes of one value
	cols  []fieldCol
	noNul bool
	null  []byte // what stands for a null
	text  bool   // rows have different lengths: texts, and lists that are ragged
	lists bool   // it is ragged
}

type fieldCol struct {
	name   string
	offset int // bytes into the row
}

// Field describes an array of a batch to whoever makes views of it.
type Field struct {
	Name  string `json:"name"`
	Type  string `json:"type"`  // as parquet.Column.Type
	Width int    `json:"width"` // bytes of a row; 0: a text
	Count int    `json:"count"` // values of a row; 0: one, and no second dimension
	Mask  bool   `json:"mask"`  // nulls are told apart

	At     int `json:"at"` // where in the slot it lies; of texts where they end
	MaskAt int `json:"mask_at"`
	Text   int `json:"text"` // of texts and ragged lists: their number in the header, else -1
	Item   int `json:"item"` // bytes of one value of a ragged list; -1: it is one of texts; else 0
}

// Fields are the arrays of a batch.
func (s *Set) Fields() []Field {
	var all []Field
	for i := range s.fields {
		all = append(all, s.fields[i].Field)
	}
	return all
}

// Left are the columns that Readable leaves out, with the reasons.
func (s *Set) Left() []string { return s.left }

// resolve finds the wanted columns in every file and checks that they agree.
func (s *Set) resolve() error {
	first := &s.files[0]
	wanted := s.cfg.Fields
	if len(wanted) == 0 {
		for i := range first.meta.Columns {
			name := first.meta.Columns[i].Name
			if why := first.meta.Columns[i].Why; s.cfg.Readable && why != "" {
				s.left = append(s.left, name+": "+why)
				continue
			}
			ragged := slices.Contains(s.cfg.Ragged, name)
			wanted = append(wanted, Want{Name: name, Columns: []string{name}, Ragged: ragged})
		}
		for _, name := range s.cfg.Ragged {
			if first.meta.Find(name) < 0 {
				return fmt.Errorf("open %s: ragged= names %q, and there is no such column; there are: %s",
					first.object.Name, name, s.names())
			}
		}
		for _, p := range s.parts {
			wanted = append(wanted, Want{Name: p.name, Columns: []string{p.name}})
		}
	}
	known := map[string]bool{}
	for _, w := range wanted {
		if known[w.Name] {
			return fmt.Errorf("open %s: two arrays are called %q; give them different names", first.object.Name, w.Name)
		}
		known[w.Name] = true
		f, err := s.field(w)
		if err != nil {
			return err
		}
		s.fields = append(s.fields, *f)
	}
	for name := range s.cfg.Nulls {
		if !known[name] && name != "*" {
			return fmt.Errorf("open data: nulls= names %q, which is not among the arrays that are read", name)
		}
	}
	for i := range s.files {
		if err := s.lookUp(&s.files[i]); err != nil {
			return err
		}
	}
	return nil
}

// column is column c of a file: below 0 a partition.
func (s *Set) column(f *file, c int) *parquet.Column {
	if c < 0 {
		return s.parts[-1-c].column()
	}
	return &f.meta.Columns[c]
}

func (s *Set) field(w Want) (*field, error) {
	if len(w.Columns) == 0 {
		return nil, fmt.Errorf("open data: %q has no columns", w.Name)
	}
	meta, name := s.files[0].meta, s.files[0].object.Name
	f := &field{}
	f.Name, f.Text = w.Name, -1
	for i, column := range w.Columns {
		c := meta.Find(column)
		if c < 0 {
			if c = -1 - s.partition(column); c == 0 {
				return nil, fmt.Errorf("open %s: there is no column %q; there are: %s", name, column, s.names())
			}
		}
		col := s.column(&s.files[0], c)
		if col.Why != "" {
			return nil, fmt.Errorf("open %s: column %q cannot be read: %s; name the columns that are wanted with columns=", name, column, col.Why)
		}
		per := 1
		if col.List {
			if per = s.perRow(c); per == 0 || w.Ragged || col.Width == 0 {
				per, f.lists = 0, true
			}
		}
		if i == 0 {
			f.Type, f.per, f.value, f.text = col.Type, per, col.Width, col.Width == 0 || f.lists
			if col.List {
				f.Count = per
			}
		} else if f.Type != col.Type || f.per != per {
			return nil, fmt.Errorf("open %s: %q is made of column %q (%s) and column %q (%s); columns of one matrix have one type", name, w.Name, w.Columns[0], f.Type, column, col.Type)
		}
		f.cols = append(f.cols, fieldCol{column, i * per * col.Width})
	}
	if len(f.cols) > 1 || w.Matrix && !f.text && f.Count == 0 {
		f.Count = f.per * len(f.cols)
	}
	if (f.text || f.per > 1) && len(f.cols) > 1 {
		return nil, fmt.Errorf("open %s: %q is made of texts or lists; only columns of numbers become a matrix", name, w.Name)
	}
	f.Width = f.value * f.per * len(f.cols)
	if f.lists {
		if f.Item = f.value; f.value == 0 {
			f.Item = -1
		}
	} else if w.Ragged {
		return nil, fmt.Errorf("open %s: ragged= names %q, which is no list", name, w.Name)
	}
	said, is := s.cfg.Nulls[w.Name]
	if !is && !f.lists {
		said = s.cfg.Nulls["*"] // what the rest becomes
	}
	return f, f.nulls(said)
}

// perRow is how many values each row of a list has in all files, 0 when that differs.
func (s *Set) perRow(column int) int {
	per := 0
	name := s.files[0].meta.Columns[column].Name
	for i := range s.files {
		meta := s.files[i].meta
		c := meta.Find(name)
		for g := range meta.Groups {
			if c < 0 || meta.Groups[g].Rows == 0 {
				continue
			}
			n := meta.Groups[g].Per(c)
			if n == 0 || per != 0 && n != per {
				return 0
			}
			per = n
		}
	}
	return per
}

// nulls decides what a null becomes: nothing was said, "nan", "mask", "error", or a value.
func (f *field) nulls(said any) error {
	f.null = make([]byte, f.value)
	isFloat := strings.HasPrefix(f.Type, "float")
	switch {
	case f.lists && f.value == 0:
		if f.noNul = said == "error"; said != nil && said != "error" {
			return fmt.Errorf(`open data: nulls={%q: %v}, which is a list of texts: its nulls are None; use "error", or say nothing of it`, f.Name, said)
		}
	case said == nil || said == "nan":
		switch {
		case isFloat:
			f.put(math.NaN())
		case strings.HasPrefix(f.Type, "datetime64") || strings.HasPrefix(f.Type, "timedelta64"):
			binary.LittleEndian.PutUint64(f.null, 1<<63) // NaT
		case said == "nan":
			return fmt.Errorf(`open data: nulls={%q: "nan"}, and %s has no such value; use "mask", "error" or a value`, f.Name, f.Type)
		default:
			f.noNul = true
		}
	case said == "error":
		f.noNul = true
	case said == "mask" && f.lists:
		return fmt.Errorf(`open data: nulls={%q: "mask"}, and its lists have different lengths; use "nan", "error" or a value`, f.Name)
	case said == "mask":
		f.Mask = true
	default:
		return f.constant(said)
	}
	return nil
}

// constant takes a value for nulls.
func (f *field) constant(said any) error {
	if text, ok := said.(string); ok && f.text && !f.lists {
		f.null = []byte(text)
		return nil
	}
	if b, ok := said.(bool); ok && f.Type == "bool" {
		f.null[0] = map[bool]byte{true: 1}[b]
		return nil
	}
	number, ok := said.(json.Number)
	if !ok || f.text && !f.lists || f.Type == "bool" {
		return fmt.Errorf("open data: nulls={%q: %v}, which is no %s", f.Name, said, f.Type)
	}
	if strings.HasPrefix(f.Type, "float") {
		v, err := number.Float64()
		f.put(v)
		return err
	}
	bits := 8 * f.value
	var v uint64
	var err error
	if strings.HasPrefix(f.Type, "uint") {
		v, err = strconv.ParseUint(number.String(), 10, bits)
	} else {
		var i int64
		i, err = strconv.ParseInt(number.String(), 10, min(bits, 64))
		v = uint64(i)
	}
	if err != nil || bits > 64 {
		return fmt.Errorf("open data: nulls={%q: %v}, which is no %s", f.Name, said, f.Type)
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	copy(f.null, b[:])
	return nil
}

func (f *field) put(v float64) {
	switch f.value {
	case 2:
		binary.LittleEndian.PutUint16(f.null, half(v))
	case 4:
		binary.LittleEndian.PutUint32(f.null, math.Float32bits(float32(v)))
	case 8:
		binary.LittleEndian.PutUint64(f.null, math.Float64bits(v))
	}
}

// half is a value as float16, rounded towards zero: it is for what stands for a null.
func half(v float64) uint16 {
	b := math.Float32bits(float32(v))
	sign, exponent, fraction := uint16(b>>16&0x8000), int(b>>23&0xFF)-112, uint16(b>>13&0x3FF)
	switch {
	case v != v:
		return 0x7E00
	case exponent >= 31:
		return sign | 0x7C00
	case exponent <= 0:
		return sign
	}
	return sign | uint16(exponent)<<10 | fraction
}

// names are all columns, for messages.
func (s *Set) names() string {
	names := []string{s.files[0].meta.Names()}
	for _, p := range s.parts {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// lookUp finds the fields' columns in a file and checks that they are what they are in
// the first.
func (s *Set) lookUp(f *file) error {
	first := &s.files[0]
	f.index = nil
	for i := range s.fields {
		var index []int
		for _, col := range s.fields[i].cols {
			if p := s.partition(col.name); p >= 0 {
				index = append(index, -1-p)
				continue
			}
			c := f.meta.Find(col.name)
			if c < 0 {
				return fmt.Errorf("open %s: there is no column %q, which %s has; leave the file or the column out", f.object.Name, col.name, first.object.Name)
			}
			a, b := &first.meta.Columns[first.meta.Find(col.name)], &f.meta.Columns[c]
			if a.Type != b.Type || a.List != b.List || b.Why != "" {
				return fmt.Errorf("open %s: column %q is %s, and %s in %s; leave the file or the column out", f.object.Name, col.name, kind(b), kind(a), first.object.Name)
			}
			index = append(index, c)
		}
		f.index = append(f.index, index)
	}
	return nil
}

func kind(c *parquet.Column) string {
	switch {
	case c.Why != "":
		return "unreadable (" + c.Why + ")"
	case c.List:
		return "a list of " + c.Type
	}
	return c.Type
}

// rowBytes is what a row takes in memory; of texts on average.
func (s *Set) rowBytes() int64 {
	var n int64
	for i := range s.fields {
		f := &s.fields[i]
		n += int64(f.Width)
		if f.Mask {
			n++
		}
		if f.text {
			n += 8 + s.textBytes(i)
		}
	}
	return n
}

func (s *Set) textBytes(i int) int64 {
	var all int64
	rows := int64(1)
	for k := range s.files {
		f := &s.files[k]
		c := f.index[i][0]
		for g := range f.meta.Groups {
			rows += f.meta.Groups[g].Rows
			if c >= 0 {
				all += f.meta.Groups[g].Chunks[c].Plain
			} else if text := f.parts[-1-c]; text != nil {
				all += f.meta.Groups[g].Rows * int64(len(*text))
			}
		}
	}
	return all / rows
}

// texts is how many fields are texts.
func (s *Set) texts() int {
	n := 0
	for i := range s.fields {
		if s.fields[i].text {
			n++
		}
	}
	return n
}
