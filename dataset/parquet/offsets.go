package parquet

import (
	"errors"
	"fmt"
)

// Place is where a page of a chunk lies, its header included, and its first row.
type Place struct {
	Offset, Bytes int64
	Row           int64
}

// Indexed answers where the chunk's offset index lies, and its bytes; 0: it has none.
func (k *Chunk) Indexed() (at, bytes int64) { return k.index, int64(k.indexed) }

// Indexed reports whether each of the group's chunks has an offset index: whether its rows can be read in parts.
func (g *Group) Indexed() bool {
	for i := range g.Chunks {
		if g.Chunks[i].indexed == 0 {
			return false
		}
	}
	return len(g.Chunks) > 0
}

// Places reads a chunk's offset index: all its pages of data in their order. What lies before the first of them is the
// chunk's dictionary.
func (g *Group) Places(chunk int, index []byte) ([]Place, error) {
	k := &g.Chunks[chunk]
	var all []Place
	c := &compact{b: index}
	c.fields(func(id int16, typ byte) bool {
		if id != 1 || typ != tList {
			return false
		}
		all = c.places()
		return true
	})
	if c.bad {
		return nil, errors.New("its offset index is damaged")
	}
	row, at := int64(0), k.Offset
	for i, p := range all {
		switch {
		case i == 0 && p.Row != 0 || p.Row < row || p.Row >= max(1, g.Rows):
			return nil, fmt.Errorf("its offset index is damaged: page %d begins with row %d of %d", i, p.Row, g.Rows)
		case p.Offset < at || p.Bytes < 0 || p.Bytes > k.Offset+k.Compressed-p.Offset:
			return nil, fmt.Errorf("its offset index is damaged: page %d has %d bytes at %d", i, p.Bytes, p.Offset)
		}
		row, at = p.Row, p.Offset+p.Bytes
	}
	if len(all) == 0 && g.Rows > 0 {
		return nil, errors.New("its offset index is damaged: it has no pages")
	}
	return all, nil
}

func (c *compact) places() []Place {
	n, typ := c.list()
	if typ != tStruct && n > 0 {
		c.fail()
		return nil
	}
	all := make([]Place, 0, n) // an element takes a byte or more
	for range n {
		var p Place
		c.fields(func(id int16, typ byte) bool {
			switch {
			case id == 1 && typ == tI64:
				p.Offset = c.int64()
			case id == 2 && typ == tI32:
				p.Bytes = int64(c.int32())
			case id == 3 && typ == tI64:
				p.Row = c.int64()
			default:
				return false
			}
			return true
		})
		if c.bad {
			return nil
		}
		all = append(all, p)
	}
	return all
}
