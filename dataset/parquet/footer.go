package parquet

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// File is what a file's footer says.
type File struct {
	Rows    int64
	Columns []Column
	Groups  []Group
	Digest  [32]byte // of the footer's bytes
	By      string   // who wrote it
}

// Group is a row group. Chunks are in the order of File.Columns.
type Group struct {
	Rows   int64
	Chunks []Chunk
}

// Chunk is where a row group's part of a column lies.
type Chunk struct {
	codec      codec
	Offset     int64
	Compressed int64
	Plain      int64 // bytes before compression
	Values     int64 // with nulls; of a list its elements
	index      int64 // where its offset index lies
	indexed    int32 // bytes of that; 0: there is none
	stats      stats
}

// Per is how many values each row has when all have equally many, else 0.
func (g *Group) Per(column int) int {
	if n := g.Chunks[column].Values; g.Rows > 0 && n%g.Rows == 0 {
		return int(n / g.Rows)
	}
	return 0
}

const (
	magic      = "PAR1"
	encrypted  = "PARE"
	tail       = 8
	maxFooter  = 256 << 20
	firstGuess = 64 << 10
	maxGroups  = 1 << 20
	maxColumns = 1 << 16
)

// Read reads a file's footer with one or two calls of read, which fills p from an offset.
func Read(size int64, read func(p []byte, offset int64) error) (*File, error) {
	if size < int64(len(magic))+tail {
		return nil, fmt.Errorf("it has %d bytes and is no Parquet file", size)
	}
	end := make([]byte, min(size, firstGuess))
	if err := read(end, size-int64(len(end))); err != nil {
		return nil, err
	}
	switch string(end[len(end)-4:]) {
	case magic:
	case encrypted:
		return nil, errors.New("it is encrypted, which hora does not read")
	default:
		return nil, errors.New("it does not end as a Parquet file does: it is something else, or not all of it is there")
	}
	n := int64(binary.LittleEndian.Uint32(end[len(end)-tail:]))
	if n > maxFooter || n+tail+int64(len(magic)) > size {
		return nil, fmt.Errorf("its footer is said to have %d bytes and the file has %d", n, size)
	}
	if n+tail > int64(len(end)) {
		end = make([]byte, n+tail)
		if err := read(end, size-n-tail); err != nil {
			return nil, err
		}
	}
	return Parse(end[int64(len(end))-n-tail:len(end)-tail], size)
}

// Parse reads the footer of a file of so many bytes.
func Parse(footer []byte, size int64) (*File, error) {
	f := &File{Digest: sha256.Sum256(footer)}
	c := &compact{b: footer}
	var nodes []node
	var groups []rawGroup
	secret := false
	c.fields(func(id int16, typ byte) bool {
		switch {
		case id == 2 && typ == tList:
			nodes = c.schema()
		case id == 3 && typ == tI64:
			f.Rows = c.int64()
		case id == 4 && typ == tList:
			groups = c.groups()
		case id == 6 && typ == tBinary:
			f.By = string(c.binary())
		case id == 8:
			secret = true
			return false
		default:
			return false
		}
		return true
	})
	if secret {
		return nil, errors.New("it is encrypted, which hora does not read")
	}
	if c.bad || len(nodes) == 0 {
		return nil, fmt.Errorf("its footer is damaged: %w", errThrift)
	}
	var err error
	if f.Columns, err = leaves(nodes); err != nil {
		return nil, fmt.Errorf("its footer is damaged: %w", err)
	}
	if f.Groups, err = check(groups, f.Columns, size); err != nil {
		return nil, fmt.Errorf("its footer is damaged: %w", err)
	}
	var rows int64
	for i := range f.Groups {
		rows += f.Groups[i].Rows
	}
	if rows != f.Rows {
		return nil, fmt.Errorf("its footer is damaged: it speaks of %d rows and its row groups have %d", f.Rows, rows)
	}
	return f, nil
}

// rawChunk is a chunk as the footer has it.
type rawChunk struct {
	Chunk
	path       string
	physical   int32
	dictionary int64
	data       int64
	elsewhere  bool
	encrypted  bool
}

type rawGroup struct {
	rows   int64
	chunks []rawChunk
}

func (c *compact) groups() []rawGroup {
	n, typ := c.list()
	if typ != tStruct && n > 0 || n > maxGroups {
		c.fail()
		return nil
	}
	all := make([]rawGroup, 0, min(n, 1024))
	for range n {
		var g rawGroup
		c.fields(func(id int16, typ byte) bool {
			switch {
			case id == 1 && typ == tList:
				g.chunks = c.chunks()
			case id == 3 && typ == tI64:
				g.rows = c.int64()
			default:
				return false
			}
			return true
		})
		if c.bad {
			return nil
		}
		all = append(all, g)
	}
	return all
}

func (c *compact) chunks() []rawChunk {
	n, typ := c.list()
	if typ != tStruct && n > 0 || n > maxColumns {
		c.fail()
		return nil
	}
	all := make([]rawChunk, 0, min(n, 1024))
	for range n {
		var k rawChunk
		c.fields(func(id int16, typ byte) bool {
			switch {
			case id == 1 && typ == tBinary:
				k.elsewhere = len(c.binary()) > 0
			case id == 3 && typ == tStruct:
				c.chunk(&k)
			case id == 4 && typ == tI64:
				k.index = c.int64()
			case id == 5 && typ == tI32:
				k.indexed = c.int32()
			case id == 8:
				k.encrypted = true
				return false
			default:
				return false
			}
			return true
		})
		if c.bad {
			return nil
		}
		all = append(all, k)
	}
	return all
}

func (c *compact) chunk(k *rawChunk) {
	c.fields(func(id int16, typ byte) bool {
		switch {
		case id == 1 && typ == tI32:
			k.physical = c.int32()
		case id == 3 && typ == tList:
			k.path = c.path()
		case id == 4 && typ == tI32:
			k.codec = codec(c.int32())
		case id == 5 && typ == tI64:
			k.Values = c.int64()
		case id == 6 && typ == tI64:
			k.Plain = c.int64()
		case id == 7 && typ == tI64:
			k.Compressed = c.int64()
		case id == 9 && typ == tI64:
			k.data = c.int64()
		case id == 11 && typ == tI64:
			k.dictionary = c.int64()
		case id == 12 && typ == tStruct:
			c.stats(&k.stats)
		default:
			return false
		}
		return true
	})
}

func (c *compact) path() string {
	n, typ := c.list()
	if typ != tBinary && n > 0 || n > maxDepth {
		c.fail()
		return ""
	}
	var parts [][]byte
	for range n {
		parts = append(parts, c.binary())
	}
	return string(bytes.Join(parts, []byte(".")))
}

// check compares row groups with the schema and the file's size.
func check(groups []rawGroup, columns []Column, size int64) ([]Group, error) {
	out := make([]Group, len(groups))
	for i := range groups {
		g := &groups[i]
		if len(g.chunks) != len(columns) {
			return nil, fmt.Errorf("row group %d has %d columns and the schema %d", i, len(g.chunks), len(columns))
		}
		if g.rows < 0 || g.rows >= 1<<31 {
			return nil, fmt.Errorf("row group %d has %d rows", i, g.rows)
		}
		out[i] = Group{Rows: g.rows, Chunks: make([]Chunk, len(columns))}
		for j := range g.chunks {
			k, col := &g.chunks[j], &columns[j]
			k.Offset = k.data
			if k.dictionary > 0 && k.dictionary < k.data {
				k.Offset = k.dictionary
			}
			switch {
			case k.encrypted:
				return nil, fmt.Errorf("column %q is encrypted, which hora does not read", col.Name)
			case k.elsewhere:
				return nil, fmt.Errorf("column %q lies in another file, which hora does not read", col.Name)
			case k.path != col.path || k.physical != int32(col.physical):
				return nil, fmt.Errorf("row group %d has column %q where the schema has %q", i, k.path, col.path)
			case k.Offset < 0 || k.Compressed < 0 || k.Offset > size || k.Compressed > size-k.Offset:
				return nil, fmt.Errorf("row group %d, column %q: %d bytes at %d, and the file has %d", i, col.Name, k.Compressed, k.Offset, size)
			case k.Values < 0 || k.Plain < 0 || col.repetition == 0 && k.Values != g.rows:
				return nil, fmt.Errorf("row group %d, column %q: %d values for %d rows", i, col.Name, k.Values, g.rows)
			}
			if k.index <= 0 || k.indexed <= 0 || k.index > size || int64(k.indexed) > size-k.index {
				k.index, k.indexed = 0, 0 // rows are found without it
			}
			out[i].Chunks[j] = k.Chunk
		}
	}
	return out, nil
}

// Find answers the number of a column by its name, or -1. A list goes by the name that
// it has in the table.
func (f *File) Find(name string) int {
	for i := range f.Columns {
		if f.Columns[i].Name == name || f.Columns[i].path == name {
			return i
		}
	}
	return -1
}

// Names are the columns' names, for messages.
func (f *File) Names() string {
	var names []string
	for i := range f.Columns {
		names = append(names, f.Columns[i].Name)
	}
	return strings.Join(names, ", ")
}
