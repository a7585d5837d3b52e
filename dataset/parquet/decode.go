// Package parquet reads Parquet files into memory of the caller's: footers, and column
// chunks whose values go straight to where they are wanted, at any distance from each
// other. What a file says is compared with what it has before memory is taken or
// anything is believed; damage is an error that names the place, and never a panic.
//
// A Decoder has one owner. The package does no input or output and starts no goroutine.
package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
)

// Target is where the values of a chunk go. Of a column with a fixed Width, value i goes
// to Data[i*Step:]; the caller has room for all. Texts are added to Bytes, and
// Offsets[i+1] is where value i ends.
type Target struct {
	Data     []byte
	Step     int
	Per      int    // values that each row has: more than 1 of a list
	Null     []byte // Width bytes, or a text, that stand for a null
	Mask     []byte // becomes 1 where a value is null, nil: not wanted
	MaskStep int
	NoNulls  bool // a null is an error

	Ragged  bool // a list's rows have any number of values: they are added to Bytes as texts are; see NullText
	Bytes   []byte
	Offsets []int64
	Most    int // bytes that Bytes may get
}

// Error says where in a file its content is not what it should be.
type Error struct {
	Group  int
	Column string
	Page   int64 // where in the file the page begins; -1: none
	Err    error
}

func (e *Error) Error() string {
	where := fmt.Sprintf("row group %d, column %q", e.Group, e.Column)
	if e.Page >= 0 {
		where += fmt.Sprintf(", page at byte %d", e.Page)
	}
	return where + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Decoder reads chunks; it keeps what it allocates for the next one.
type Decoder struct {
	inflater
	page    []byte   // a page without its compression
	values  []byte   // converted values of a page
	dict    []byte   // the dictionary, converted; of texts its bytes
	ends    []int64  // of texts: where each begins in dict, and the end
	entries int      // of dict; -1: the chunk has none
	index   []uint32 // into dict
	levels  []uint8
	starts  []uint8 // repetition levels of a ragged page
	row     int     // of a ragged list: rows begun so far
	wide    []int64
	text    []byte
	alike   []byte // values of one length that were written as texts

	col   *Column
	to    *Target
	done  int // values so far
	first int // row of the row group that the first value is of
	whole [1]Piece
}

// Piece is some of a chunk's bytes and where in the file they lie: whole pages.
type Piece struct {
	Offset int64
	Data   []byte
}

// Part says which part of a chunk its pieces hold: so many Values, the first of row First. Of a ragged column nobody
// knows how many values they are before they are read: below 0.
type Part struct {
	First  int
	Values int64
	Pieces []Piece
}

// Chunk reads group's chunk k of a column from its bytes to t.
func (d *Decoder) Chunk(group int, col *Column, k *Chunk, data []byte, t *Target) error {
	d.whole[0] = Piece{k.Offset, data}
	err := d.Part(group, col, k, &Part{0, k.Values, d.whole[:]}, t)
	d.whole[0] = Piece{}
	return err
}

// Part reads a part of group's chunk k of a column to t.
func (d *Decoder) Part(group int, col *Column, k *Chunk, p *Part, t *Target) (err error) {
	page, most := int64(-1), p.Values
	if most < 0 {
		most = k.Values
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("internal fault of hora: %v; please report it with this: %s", p, debug.Stack())
		}
		if err != nil {
			err = &Error{group, col.Name, page, err}
		}
		d.col, d.to = nil, nil
	}()
	if col.Why != "" {
		return fmt.Errorf("%s, which hora does not read", col.Why)
	}
	d.col, d.to, d.done, d.entries, d.row, d.first = col, t, 0, -1, 0, p.First
	if t.Ragged {
		t.Bytes, t.Offsets[0] = t.Bytes[:0], 0
		defer func() {
			if err == nil && d.row != len(t.Offsets)-1 {
				err = fmt.Errorf("it has %d rows where there are %d", d.row, len(t.Offsets)-1)
			}
		}()
	} else if col.Width == 0 {
		t.Bytes, t.Offsets[0] = t.Bytes[:0], 0
		if int64(len(t.Offsets)) != most+1 {
			return errors.New("the caller has room for another number of values")
		}
	} else if most > 0 && int64(len(t.Data)) < (most-1)*int64(t.Step)+int64(col.Width) {
		return errors.New("the caller has no room for the values")
	}
	if !t.NoNulls && col.Width > 0 && col.definition > 0 && len(t.Null) != col.Width {
		return fmt.Errorf("what stands for a null has %d bytes and the values have %d", len(t.Null), col.Width)
	}
	for i := range p.Pieces {
		data := p.Pieces[i].Data
		last := i == len(p.Pieces)-1 && p.Values >= 0 // more is expected than a damaged column has
		for at := 0; int64(d.done) < most && (at < len(data) || last); {
			page = p.Pieces[i].Offset + int64(at)
			n, err := d.onePage(k, data[at:], most-int64(d.done))
			if err != nil {
				return err
			}
			at += n
		}
	}
	return nil
}

// onePage reads the page that data begins with and answers its length; so many values are left of the column.
func (d *Decoder) onePage(k *Chunk, data []byte, left int64) (int, error) {
	h, n, err := readHeader(data)
	if err != nil {
		return 0, err
	}
	body := data[n : n+int(h.compressed)]
	if err := h.sum(body); err != nil {
		return 0, err
	}
	if (h.typ == pageData || h.typ == pageDataV2) && int64(h.values) > left {
		return 0, fmt.Errorf("it has %d values and %d are left of the column", h.values, left)
	}
	switch h.typ {
	case pageDictionary:
		err = d.dictionary(k, &h, body)
	case pageData:
		err = d.data(k, &h, body)
	case pageDataV2:
		err = d.dataV2(k, &h, body)
	case pageIndex:
	default:
		err = fmt.Errorf("it is of the unknown kind %d", h.typ)
	}
	return n + int(h.compressed), err
}

// room is b with n bytes.
func room(b *[]byte, n int) []byte {
	if cap(*b) < n {
		*b = make([]byte, n+n/4)
	}
	return (*b)[:n]
}

// plain is a page without its compression.
func (d *Decoder) plain(k *Chunk, n int32, body []byte) ([]byte, error) {
	if k.codec == uncompressed {
		if int(n) != len(body) {
			return nil, fmt.Errorf("it has %d bytes and is said to have %d", len(body), n)
		}
		return body, nil
	}
	to := room(&d.page, int(n))
	return to, d.inflate(k.codec, to, body)
}

// data reads a page of version 1: levels and values are compressed together.
func (d *Decoder) data(k *Chunk, h *header, body []byte) error {
	if d.straight(k, h, nil, body, int(h.plain)) {
		return nil
	}
	b, err := d.plain(k, h.plain, body)
	if err != nil {
		return err
	}
	var parts [2][]byte
	for i, level := range [2]int{d.col.repetition, d.col.definition} {
		if level == 0 {
			continue
		}
		if h.levels != eRLE {
			return fmt.Errorf("its levels are written as %s, which hora does not read", h.levels)
		}
		if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
			return errRuns
		}
		n := binary.LittleEndian.Uint32(b)
		parts[i], b = b[4:4+n], b[4+n:]
	}
	return d.put(h, parts[0], parts[1], b)
}

// dataV2 reads a page of version 2: only its values are compressed.
func (d *Decoder) dataV2(k *Chunk, h *header, body []byte) error {
	if h.repetition < 0 || h.definition < 0 ||
		int64(h.repetition)+int64(h.definition) > int64(min(len(body), int(h.plain))) {
		return errors.New("its levels are longer than it is")
	}
	levels := int(h.repetition + h.definition)
	repetition, definition, rest := body[:h.repetition], body[h.repetition:levels], body[levels:]
	if h.packed && len(rest) > 0 {
		if d.straight(k, h, definition, rest, int(h.plain)-levels) {
			return nil
		}
		var err error
		if rest, err = d.plain(k, h.plain-int32(levels), rest); err != nil {
			return err
		}
	}
	return d.put(h, repetition, definition, rest)
}

// put reads a page's values to their places.
func (d *Decoder) put(h *header, repetition, definition, b []byte) error {
	n := int(h.values)
	if n == 0 {
		return nil
	}
	if cap(d.levels) < n {
		d.levels = make([]uint8, n+n/4)
	}
	lv := d.levels[:n]
	if d.to.Ragged {
		return d.ragged(h, repetition, definition, b)
	}
	if d.col.repetition > 0 {
		if _, err := levels(lv, repetition, d.col.repetition); err != nil {
			return err
		}
		if err := d.regular(lv); err != nil {
			return err
		}
	}
	present := n
	if d.col.definition > 0 {
		var err error
		if full(definition, n, d.col.definition) {
			lv = nil
		} else if present, err = levels(lv, definition, d.col.definition); err != nil {
			return err
		}
		if present < n {
			if err := d.allowed(lv); err != nil {
				return err
			}
		}
	}
	if present == n {
		lv = nil
	}
	if d.col.Width == 0 {
		return d.texts(h.encoding, b, n, present, lv)
	}
	if lv == nil && (h.encoding == eDictionary || h.encoding == ePlainDictionary) {
		if err := d.indices(b, n); err != nil {
			return err
		}
		d.gather(d.to.Data[d.done*d.to.Step:], d.to.Step, d.index[:n])
		d.done += n
		return nil
	}
	values, err := d.fixed(h.encoding, b, present)
	if err != nil {
		return err
	}
	if lv == nil {
		spread(d.to.Data[d.done*d.to.Step:], d.to.Step, values, d.col.Width)
	} else {
		d.sparse(values, lv)
	}
	d.done += n
	return nil
}

// regular checks that every row of a list has as many values as the target has room for.
func (d *Decoder) regular(lv []uint8) error {
	per := d.to.Per
	for i, l := range lv {
		if first := (d.done+i)%per == 0; first != (l == 0) {
			return fmt.Errorf("row %d has another number of values than %d; lists of different lengths are read where ragged= names them",
				d.first+(d.done+i)/per, per)
		}
	}
	return nil
}

// allowed refuses what the target does of values that are not there.
func (d *Decoder) allowed(lv []uint8) error {
	if d.col.repetition == 0 && !d.to.NoNulls {
		return nil
	}
	for i, l := range lv {
		if int(l) == d.col.definition {
			continue
		}
		row := d.first + (d.done+i)/max(1, d.to.Per)
		if d.col.repetition > 0 && int(l) < d.col.listed {
			return fmt.Errorf("row %d has no values where others have %d; lists of different lengths are read where ragged= names them", row, d.to.Per)
		}
		if d.to.NoNulls {
			return fmt.Errorf(`row %d of the row group is null; say what a null becomes: nulls={%q: "mask"}, "nan" or a value`, row, d.col.Name)
		}
	}
	return nil
}

// indices reads n numbers of dictionary entries into d.index.
func (d *Decoder) indices(b []byte, n int) error {
	if d.entries < 0 {
		return errors.New("it refers to a dictionary and the column has none")
	}
	if cap(d.index) < n {
		d.index = make([]uint32, n+n/4)
	}
	if n == 0 {
		return nil
	}
	if len(b) == 0 || b[0] > 32 {
		return errRuns
	}
	index := d.index[:n]
	if err := numbers(index, b[1:], uint(b[0])); err != nil {
		return err
	}
	most := uint32(0)
	for _, i := range index {
		most = max(most, i)
	}
	if int(most) >= d.entries {
		return fmt.Errorf("it refers to entry %d of a dictionary of %d", most, d.entries)
	}
	return nil
}

// dictionary reads the chunk's dictionary.
func (d *Decoder) dictionary(k *Chunk, h *header, body []byte) error {
	if d.entries >= 0 || d.done > 0 {
		return errors.New("the column has a second dictionary")
	}
	b, err := d.plain(k, h.plain, body)
	if err != nil {
		return err
	}
	n := int(h.values)
	if h.encoding != ePlain && h.encoding != ePlainDictionary {
		return fmt.Errorf("its dictionary is written as %s", h.encoding)
	}
	if d.col.Width == 0 {
		return d.textDictionary(b, n)
	}
	values, err := d.fixed(ePlain, b, n)
	if err != nil {
		return err
	}
	d.dict = append(d.dict[:0], values...)
	d.entries = n
	return nil
}
