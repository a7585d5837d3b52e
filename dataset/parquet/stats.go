package parquet

import (
	"encoding/binary"
	"math"
	"strings"
)

// stats is what a footer says about a chunk's values: views of the footer.
type stats struct {
	low, high []byte
	nulls     int64
	counted   bool // nulls is known
}

func (c *compact) stats(s *stats) {
	c.fields(func(id int16, typ byte) bool {
		switch {
		case id == 3 && typ == tI64:
			s.nulls, s.counted = c.int64(), true
		case id == 5 && typ == tBinary:
			s.high = c.binary()
		case id == 6 && typ == tBinary:
			s.low = c.binary()
		default:
			return false
		}
		return true
	})
}

// Bounds are values that none of a chunk's lies outside of; of the kind that the
// column's Type says. Texts may be shorter than what they bound.
type Bounds struct {
	Known      bool
	Low, High  any // int64, uint64, float64 or string
	NoNulls    bool
	AllNull    bool
	NullsKnown bool
}

// Bounds answers what the footer says about a chunk of a column.
func (col *Column) Bounds(k *Chunk) Bounds {
	s := &k.stats
	b := Bounds{NullsKnown: s.counted, NoNulls: s.counted && s.nulls == 0, AllNull: s.counted && s.nulls == k.Values}
	if !col.MayBeNull {
		b.NullsKnown, b.NoNulls = true, true
	}
	if col.List || s.low == nil || s.high == nil {
		return b
	}
	b.Low, b.Known = col.bound(s.low)
	if b.Known {
		b.High, b.Known = col.bound(s.high)
	}
	return b
}

func (col *Column) bound(b []byte) (any, bool) {
	switch {
	case col.Type == "string":
		return string(b), true
	case (col.convert == asIs || col.convert == widen || col.convert == toByte || col.convert == toShort) &&
		col.physical == pInt32 && len(b) == 4:
		if strings.HasPrefix(col.Type, "uint") {
			return uint64(binary.LittleEndian.Uint32(b)), true
		}
		return int64(int32(binary.LittleEndian.Uint32(b))), true
	case col.convert == asIs && col.physical == pInt64 && len(b) == 8:
		if strings.HasPrefix(col.Type, "uint") {
			return binary.LittleEndian.Uint64(b), true
		}
		return int64(binary.LittleEndian.Uint64(b)), true
	case col.physical == pFloat && len(b) == 4:
		v := float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
		return v, v == v
	case col.physical == pDouble && len(b) == 8:
		v := math.Float64frombits(binary.LittleEndian.Uint64(b))
		return v, v == v
	}
	return nil, false
}

// Forget lets go of what only Bounds needs: the footer's bytes.
func (f *File) Forget() {
	for i := range f.Groups {
		for k := range f.Groups[i].Chunks {
			f.Groups[i].Chunks[k].stats = stats{}
		}
	}
}
