package parquet

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"strconv"
	"strings"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// Out is a column that a Writer writes, in the words that Column reads: of a Type, with
// Count values in each row (0: one value and no list; -1: any number of them).
type Out struct {
	Name  string
	Type  string
	Count int
	Nulls bool // values may be null; of lists of any number only where they are texts
}

// Values are a column's of a row group, as Target has them: of a fixed width in Data; of
// texts and of lists of any number Data with Ends in bytes. Null is 1 where a value is null.
type Values struct {
	Data []byte
	Ends []int64
	Null []byte
}

// Writer writes a file with a checksum on each page and offset indexes. A row group has
// one page of each column.
type Writer struct {
	to      io.Writer
	at      int64
	columns []writeColumn
	codec   codec
	zstd    *zstd.Encoder
	rows    int64
	groups  []writeGroup
	page    []byte
	packed  []byte
	by      string
}

type writeColumn struct {
	Out
	node   node
	unsign bool
	width  int // bytes of a value as it is stored; 0: a text
	from   int // bytes of a value as it comes
	path   []string
}

type writeGroup struct {
	rows   int64
	chunks []writeChunk
}

type writeChunk struct {
	offset, packed, plain, values int64
	nulls                         int64
	first                         int64 // row of the file
	index, indexed                int64 // where the offset index lies, and its bytes
}

// NewWriter begins a file. compression is snappy, zstd or none.
func NewWriter(to io.Writer, by, compression string, columns []Out) (*Writer, error) {
	w := &Writer{to: to, by: by}
	switch compression {
	case "snappy":
		w.codec = snappy
	case "zstd":
		w.codec = zstandard
		var err error
		if w.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)); err != nil {
			return nil, err
		}
	case "none":
	default:
		return nil, fmt.Errorf("there is no compression %q here; use snappy, zstd or none", compression)
	}
	for _, o := range columns {
		c, err := newWriteColumn(o)
		if err != nil {
			return nil, err
		}
		w.columns = append(w.columns, *c)
	}
	return w, w.write([]byte(magic))
}

// newWriteColumn finds how a column is stored.
func newWriteColumn(o Out) (*writeColumn, error) {
	c := &writeColumn{
		Out: o, node: node{name: o.Name, typ: int32(pInt64), converted: -1}, width: 8, from: 8, path: []string{o.Name},
	}
	if o.Count != 0 {
		c.path = []string{o.Name, "list", "element"}
		c.node.name = "element"
	}
	n := &c.node
	unit := strings.TrimSuffix(o.Type[strings.IndexByte(o.Type, '[')+1:], "]")
	switch {
	case o.Type == "bool":
		n.typ, c.width, c.from = int32(pBool), 1, 1
	case o.Type == "float32":
		n.typ, c.width, c.from = int32(pFloat), 4, 4
	case o.Type == "float64":
		n.typ = int32(pDouble)
	case o.Type == "float16":
		n.typ, n.length, n.logical, c.width, c.from = int32(pFixed), 2, lFloat16, 2, 2
	case o.Type == "string":
		n.typ, n.logical, n.converted, c.width, c.from = int32(pBytes), lString, 0, 0, 0
	case o.Type == "binary":
		n.typ, c.width, c.from = int32(pBytes), 0, 0
	case o.Type == "datetime64[D]":
		n.typ, n.logical, n.converted, c.width = int32(pInt32), lDate, 6, 4
	case strings.HasPrefix(o.Type, "datetime64["):
		n.logical = lTimestamp
		n.unit = map[string]int16{"ms": 1, "us": 2, "ns": 3}[unit]
	case o.Type == "timedelta64[ms]":
		n.typ, n.logical, n.converted, n.unit, c.width = int32(pInt32), lTime, 7, 1, 4
	case strings.HasPrefix(o.Type, "timedelta64["):
		n.logical = lTime
		n.unit = map[string]int16{"us": 2, "ns": 3}[unit]
	case strings.HasPrefix(o.Type, "V"):
		k, err := strconv.Atoi(o.Type[1:])
		if err != nil || k < 1 {
			return nil, fmt.Errorf("column %q is of the type %q, which is not written", o.Name, o.Type)
		}
		n.typ, n.length, c.width, c.from = int32(pFixed), int32(k), k, k
	case strings.HasPrefix(o.Type, "int") || strings.HasPrefix(o.Type, "uint"):
		b, err := strconv.Atoi(strings.TrimLeft(o.Type, "uint"))
		if err != nil || b != 8 && b != 16 && b != 32 && b != 64 {
			return nil, fmt.Errorf("column %q is of the type %q, which is not written", o.Name, o.Type)
		}
		c.from, c.unsign = b/8, o.Type[0] == 'u'
		if b < 64 {
			n.typ, c.width = int32(pInt32), 4
		}
		if c.unsign || b < 32 {
			n.logical, n.bits, n.signed = lInt, int8(b), !c.unsign
			n.converted = int32(bits.TrailingZeros(uint(b))) - 3 + map[bool]int32{true: 11, false: 15}[c.unsign]
		}
	default:
		return nil, fmt.Errorf("column %q is of the type %q, which is not written", o.Name, o.Type)
	}
	if n.logical == lTimestamp && n.unit == 0 || n.logical == lTime && n.unit == 0 {
		return nil, fmt.Errorf("column %q is of the type %q, which is not written", o.Name, o.Type)
	}
	return c, nil
}

func (w *Writer) write(b []byte) error {
	n, err := w.to.Write(b)
	w.at += int64(n)
	return err
}

// Group writes a row group.
func (w *Writer) Group(rows int, values []Values) error {
	if rows == 0 {
		return nil
	}
	g := writeGroup{rows: int64(rows)}
	for i := range w.columns {
		k, err := w.chunk(&w.columns[i], rows, &values[i])
		if err != nil {
			return fmt.Errorf("column %q: %w", w.columns[i].Name, err)
		}
		k.first = 0 // of the row group, whose only page it is
		g.chunks = append(g.chunks, *k)
	}
	w.groups = append(w.groups, g)
	w.rows += int64(rows)
	return nil
}

// chunk writes a column of a row group as one page.
func (w *Writer) chunk(c *writeColumn, rows int, v *Values) (*writeChunk, error) {
	k := &writeChunk{offset: w.at}
	starts, there, n := w.levels(c, rows, v)
	w.page = w.page[:0]
	most := uint8(0)
	if c.Count != 0 {
		most = 1
		w.page = packLevels(w.page, starts, 1)
	}
	if c.Count < 0 || c.Nulls {
		if c.Nulls && c.Count != 0 {
			most = 2
		} else {
			most = 1
		}
		w.page = packLevels(w.page, there, uint(bits.Len8(most)))
	} else if c.Count > 0 { // a list's own level
		w.page = packLevels(w.page, there, 1)
	}
	k.values = int64(n)
	var err error
	if w.page, err = c.plain(w.page, rows, v, k); err != nil {
		return nil, err
	}
	if len(w.page) > maxPage {
		return nil, fmt.Errorf("a row group's page has %d MiB; write smaller row groups", len(w.page)>>20)
	}
	body := w.page
	switch w.codec {
	case snappy:
		w.packed = s2.EncodeSnappy(w.packed[:cap(w.packed)], w.page)
		body = w.packed
	case zstandard:
		w.packed = w.zstd.EncodeAll(w.page, w.packed[:0])
		body = w.packed
	}
	var t thrift
	t.begin()
	t.i32(1, pageData)
	t.i32(2, int32(len(w.page)))
	t.i32(3, int32(len(body)))
	t.i32(4, int32(crc32.ChecksumIEEE(body)))
	t.inner(5)
	t.i32(1, int32(n))
	t.i32(2, int32(ePlain))
	t.i32(3, int32(eRLE))
	t.i32(4, int32(eRLE))
	t.end()
	t.end()
	k.packed, k.plain = int64(len(t.b)+len(body)), int64(len(t.b)+len(w.page))
	if err := w.write(t.b); err != nil {
		return nil, err
	}
	return k, w.write(body)
}

// levels answers where rows of lists begin (0), how much of each value is there, and how
// many entries that makes.
func (w *Writer) levels(c *writeColumn, rows int, v *Values) (starts, there []uint8, n int) {
	switch {
	case c.Count == 0:
		n = rows
		there = make([]uint8, n)
		for i := range there {
			there[i] = 1
			if c.Nulls && v.Null[i] != 0 {
				there[i] = 0
			}
		}
	case c.Count > 0:
		n = rows * c.Count
		starts, there = make([]uint8, n), make([]uint8, n)
		for i := range there {
			if i%c.Count > 0 {
				starts[i] = 1
			}
			there[i] = 1
			if c.Nulls {
				there[i] = 2
				if v.Null[i] != 0 {
					there[i] = 1
				}
			}
		}
	default:
		for r := range rows {
			if c.width == 0 {
				starts, there = listLevels(starts, there, v.Data[v.Ends[r]:v.Ends[r+1]])
				continue
			}
			k := int(v.Ends[r+1]-v.Ends[r]) / c.from
			starts, there = append(starts, 0), append(there, 1)
			if k == 0 {
				there[len(there)-1] = 0
			}
			for range k - 1 {
				starts, there = append(starts, 1), append(there, 1)
			}
		}
		n = len(starts)
	}
	return starts, there, n
}

// listLevels adds the levels of a row's list of texts.
func listLevels(starts, there []uint8, texts []byte) ([]uint8, []uint8) {
	if len(texts) == 0 {
		return append(starts, 0), append(there, 0)
	}
	for first := uint8(0); len(texts) >= 4; first = 1 {
		n := binary.LittleEndian.Uint32(texts)
		if texts = texts[4:]; n == NullText {
			starts, there = append(starts, first), append(there, 1)
			continue
		}
		starts, there, texts = append(starts, first), append(there, 2), texts[n:]
	}
	return starts, there
}

// listTexts adds the texts of lists that are there: they lie as they are written.
func (k *writeChunk) listTexts(to, texts []byte) []byte {
	for len(texts) >= 4 {
		n := binary.LittleEndian.Uint32(texts)
		if n == NullText {
			k.nulls++
			texts = texts[4:]
			continue
		}
		to, texts = append(to, texts[:4+n]...), texts[4+n:]
	}
	return to
}

// packLevels adds levels with their length before them: one run where all are equal, else packed bits.
func packLevels(to []byte, levels []uint8, width uint) []byte {
	at := len(to)
	to = append(to, 0, 0, 0, 0)
	same := true
	for _, l := range levels {
		same = same && l == levels[0]
	}
	if same {
		to = binary.AppendUvarint(to, uint64(len(levels))<<1)
		to = append(to, levels[0])
	} else {
		groups := (len(levels) + 7) / 8
		to = binary.AppendUvarint(to, uint64(groups)<<1|1)
		begin := len(to)
		to = append(to, make([]byte, groups*int(width))...)
		for i, l := range levels {
			bit := uint(i) * width
			v := uint16(l) << (bit & 7)
			to[begin+int(bit>>3)] |= byte(v)
			if v > 0xFF {
				to[begin+int(bit>>3)+1] |= byte(v >> 8)
			}
		}
	}
	binary.LittleEndian.PutUint32(to[at:], uint32(len(to)-at-4))
	return to
}

// plain adds the values that are there.
func (c *writeColumn) plain(to []byte, rows int, v *Values, k *writeChunk) ([]byte, error) {
	if c.Count < 0 && c.width == 0 {
		return k.listTexts(to, v.Data[v.Ends[0]:v.Ends[rows]]), nil
	}
	n := rows * max(1, c.Count)
	if c.Count < 0 {
		n = int(v.Ends[rows]-v.Ends[0]) / c.from
	}
	null := func(i int) bool {
		if c.Nulls && v.Null[i] != 0 {
			k.nulls++
			return true
		}
		return false
	}
	if c.width == 0 {
		for i := range n {
			if !null(i) {
				text := v.Data[v.Ends[i]:v.Ends[i+1]]
				to = binary.LittleEndian.AppendUint32(to, uint32(len(text)))
				to = append(to, text...)
			}
		}
		return to, nil
	}
	data := v.Data
	if c.Count < 0 {
		data = data[v.Ends[0]:]
	}
	if c.node.typ == int32(pBool) {
		bit := 0
		for i := range n {
			if null(i) {
				continue
			}
			if bit&7 == 0 {
				to = append(to, 0)
			}
			to[len(to)-1] |= (data[i] & 1) << (bit & 7)
			bit++
		}
		return to, nil
	}
	for i := range n {
		if null(i) {
			continue
		}
		b := data[i*c.from : (i+1)*c.from]
		if c.from == c.width {
			to = append(to, b...)
			continue
		}
		var x int64 // widened, or narrowed to what it was before it was read
		switch c.from {
		case 1:
			if x = int64(int8(b[0])); c.unsign {
				x = int64(b[0])
			}
		case 2:
			u := binary.LittleEndian.Uint16(b)
			if x = int64(int16(u)); c.unsign {
				x = int64(u)
			}
		case 8:
			if x = int64(binary.LittleEndian.Uint64(b)); x != int64(int32(x)) {
				return nil, fmt.Errorf("the value %d of a %s does not fit where it is stored", x, c.Type)
			}
		}
		to = binary.LittleEndian.AppendUint32(to, uint32(x))
	}
	return to, nil
}

// Close writes the indexes and the footer.
func (w *Writer) Close() error {
	for i := range w.groups {
		for j := range w.groups[i].chunks {
			k := &w.groups[i].chunks[j]
			var t thrift
			t.begin()
			t.list(1, tStruct, 1)
			t.begin()
			t.i64(1, k.offset)
			t.i32(2, int32(k.packed))
			t.i64(3, k.first)
			t.end()
			t.end()
			k.index, k.indexed = w.at, int64(len(t.b))
			if err := w.write(t.b); err != nil {
				return err
			}
		}
	}
	var t thrift
	t.begin()
	t.i32(1, 1)
	w.schema(&t)
	t.i64(3, w.rows)
	t.list(4, tStruct, len(w.groups))
	for i := range w.groups {
		w.group(&t, &w.groups[i])
	}
	t.text(6, w.by)
	t.end()
	tail := binary.LittleEndian.AppendUint32(t.b, uint32(len(t.b)))
	return w.write(append(tail, magic...))
}

func (w *Writer) schema(t *thrift) {
	n := 1
	for i := range w.columns {
		n += len(w.columns[i].path)
	}
	t.list(2, tStruct, n)
	t.begin()
	t.text(4, "schema")
	t.i32(5, int32(len(w.columns)))
	t.end()
	for i := range w.columns {
		c := &w.columns[i]
		if c.Count != 0 {
			t.begin()
			t.i32(3, 0)
			t.text(4, c.Name)
			t.i32(5, 1)
			t.i32(6, 3)
			t.inner(10)
			t.inner(3)
			t.end()
			t.end()
			t.end()
			t.begin()
			t.i32(3, 2)
			t.text(4, "list")
			t.i32(5, 1)
			t.end()
		}
		c.leaf(t)
	}
}

func (c *writeColumn) leaf(t *thrift) {
	n := &c.node
	t.begin()
	t.i32(1, n.typ)
	if n.length > 0 {
		t.i32(2, n.length)
	}
	t.i32(3, map[bool]int32{true: 1}[c.Nulls])
	t.text(4, n.name)
	if n.converted >= 0 {
		t.i32(6, n.converted)
	}
	if n.logical > 0 {
		t.inner(10)
		t.inner(n.logical)
		switch n.logical {
		case lTime, lTimestamp:
			t.flag(1, false) // no time zone
			t.inner(2)
			t.inner(n.unit)
			t.end()
			t.end()
		case lInt:
			t.octet(1, byte(n.bits))
			t.flag(2, n.signed)
		}
		t.end()
		t.end()
	}
	t.end()
}

func (w *Writer) group(t *thrift, g *writeGroup) {
	t.begin()
	t.list(1, tStruct, len(g.chunks))
	total := int64(0)
	for j := range g.chunks {
		k, c := &g.chunks[j], &w.columns[j]
		total += k.plain
		t.begin()
		t.i64(2, k.offset)
		t.inner(3)
		t.i32(1, c.node.typ)
		t.list(2, tI32, 2)
		t.varint(int64(ePlain))
		t.varint(int64(eRLE))
		t.list(3, tBinary, len(c.path))
		for _, p := range c.path {
			t.bytes(p)
		}
		t.i32(4, int32(w.codec))
		t.i64(5, k.values)
		t.i64(6, k.plain)
		t.i64(7, k.packed)
		t.i64(9, k.offset)
		if c.Count == 0 {
			t.inner(12)
			t.i64(3, k.nulls)
			t.end()
		}
		t.end()
		t.i64(4, k.index)
		t.i32(5, int32(k.indexed))
		t.end()
	}
	t.i64(2, total)
	t.i64(3, g.rows)
	t.end()
}
