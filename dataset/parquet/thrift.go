package parquet

import (
	"encoding/binary"
	"errors"
	"math"
)

// Footers and page headers are structs in thrift's compact protocol. This reader knows
// as much of it as they need, allocates nothing and cannot be led past its bytes: a
// length or a count is compared with what is left before anybody believes it.

var errThrift = errors.New("the description cannot be read")

const (
	tTrue   = 1
	tFalse  = 2
	tByte   = 3
	tI16    = 4
	tI32    = 5
	tI64    = 6
	tDouble = 7
	tBinary = 8
	tList   = 9
	tSet    = 10
	tMap    = 11
	tStruct = 12
)

const maxDepth = 32

// compact reads. After a fault every read answers zero and bad stays true.
type compact struct {
	b     []byte
	i     int
	bad   bool
	depth int
}

func (c *compact) fail() uint64 {
	c.bad, c.i = true, len(c.b)
	return 0
}

func (c *compact) byte() byte {
	if c.i >= len(c.b) {
		return byte(c.fail())
	}
	c.i++
	return c.b[c.i-1]
}

func (c *compact) uvarint() uint64 {
	v, n := binary.Uvarint(c.b[c.i:])
	if n <= 0 {
		return c.fail()
	}
	c.i += n
	return v
}

func (c *compact) int64() int64 {
	v := c.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (c *compact) int32() int32 {
	v := c.int64()
	if v != int64(int32(v)) {
		c.fail()
		return 0
	}
	return int32(v)
}

// binary is a view of the bytes.
func (c *compact) binary() []byte {
	n := c.uvarint()
	if n > uint64(len(c.b)-c.i) {
		c.fail()
		return nil
	}
	c.i += int(n)
	return c.b[c.i-int(n) : c.i]
}

// list answers how many elements follow and of which type; an element takes a byte or more.
func (c *compact) list() (n int, typ byte) {
	head := c.byte()
	size := uint64(head >> 4)
	if size == 15 {
		size = c.uvarint()
	}
	if size > uint64(len(c.b)-c.i) {
		c.fail()
		return 0, 0
	}
	return int(size), head & 15
}

// fields calls f for each field of a struct; f reads it, or answers false to have it
// skipped.
func (c *compact) fields(f func(id int16, typ byte) bool) {
	c.depth++
	defer func() { c.depth-- }()
	if c.depth > maxDepth {
		c.fail()
	}
	id := int16(0)
	for !c.bad {
		head := c.byte()
		if head == 0 {
			return
		}
		if delta := head >> 4; delta != 0 {
			id += int16(delta)
		} else {
			v := c.int64()
			if v < 0 || v > math.MaxInt16 {
				c.fail()
				return
			}
			id = int16(v)
		}
		if typ := head & 15; !f(id, typ) {
			c.skip(typ)
		}
	}
}

func (c *compact) skip(typ byte) {
	switch typ {
	case tTrue, tFalse: // the value is in the type
	case tByte:
		c.byte()
	case tI16, tI32, tI64:
		c.uvarint()
	case tDouble:
		for range 8 {
			c.byte()
		}
	case tBinary:
		c.binary()
	case tList, tSet:
		c.skipList()
	case tMap:
		n := c.uvarint()
		if n == 0 || c.bad {
			return
		}
		kinds := c.byte()
		for ; n > 0 && !c.bad; n-- {
			c.skipElement(kinds >> 4)
			c.skipElement(kinds & 15)
		}
	case tStruct:
		c.fields(func(int16, byte) bool { return false })
	default:
		c.fail()
	}
}

func (c *compact) skipList() {
	c.depth++
	defer func() { c.depth-- }()
	if c.depth > maxDepth {
		c.fail()
		return
	}
	n, typ := c.list()
	for ; n > 0 && !c.bad; n-- {
		c.skipElement(typ)
	}
}

// skipElement skips an element of a list or map: there a bool takes a byte.
func (c *compact) skipElement(typ byte) {
	if typ == tTrue || typ == tFalse {
		c.byte()
		return
	}
	c.skip(typ)
}
