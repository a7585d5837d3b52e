package parquet

import (
	"errors"
	"fmt"
	"strings"
)

// physical is how values are stored.
type physical int32

const (
	pBool physical = iota
	pInt32
	pInt64
	pInt96
	pFloat
	pDouble
	pBytes
	pFixed
)

var physicalNames = [...]string{"boolean", "int32", "int64", "int96", "float", "double", "byte array", "fixed-length byte array"}

func (p physical) String() string {
	if int(p) < len(physicalNames) && p >= 0 {
		return physicalNames[p]
	}
	return fmt.Sprintf("type %d", int(p))
}

// width is the bytes of a stored value; 0 where it has no fixed number.
func (p physical) width(length int) int {
	switch p {
	case pInt32, pFloat:
		return 4
	case pInt64, pDouble:
		return 8
	case pInt96:
		return 12
	case pFixed:
		return length
	}
	return 0
}

// Column is a leaf of the schema.
type Column struct {
	// Name has dots below structs; a list has its own name, and a list of structs those of their fields too.
	Name      string
	Type      string // of the values that come out: a NumPy type, or "string", "binary"
	Width     int    // bytes of one value that comes out; 0: they differ
	List      bool   // a row has a number of values
	Why       string // why the column cannot be read; "" when it can
	MayBeNull bool

	path       string
	physical   physical
	length     int // of pFixed
	definition int // level of a value that is there
	repetition int
	listed     int // definition level from which on a list has an element
	convert    convert
	scale      int // of decimals
}

// convert is what happens between the stored value and the one that comes out.
type convert uint8

const (
	asIs     convert = iota
	toByte           // int32 → 8 bits
	toShort          // int32 → 16 bits
	widen            // int32 → int64
	julian           // int96 → nanoseconds since 1970
	decimal          // → float64
	unpacked         // bits → bytes
)

// node is a SchemaElement.
type node struct {
	name       string
	typ        int32 // -1: a group
	length     int32
	repetition int32
	children   int32
	converted  int32 // -1: none
	scale      int32
	logical    int16 // 0: none
	unit       int16 // of logical times: 1 ms, 2 µs, 3 ns
	bits       int8
	signed     bool
}

func (c *compact) schema() []node {
	n, typ := c.list()
	if typ != tStruct || n > maxColumns*4 {
		c.fail()
		return nil
	}
	all := make([]node, 0, min(n, 1024))
	for range n {
		e := node{typ: -1, converted: -1}
		c.fields(func(id int16, typ byte) bool {
			switch {
			case id == 4 && typ == tBinary:
				e.name = string(c.binary())
			case id == 10 && typ == tStruct:
				c.logical(&e)
			case typ != tI32:
				return false
			case id == 1:
				e.typ = c.int32()
			case id == 2:
				e.length = c.int32()
			case id == 3:
				e.repetition = c.int32()
			case id == 5:
				e.children = c.int32()
			case id == 6:
				e.converted = c.int32()
			case id == 7:
				e.scale = c.int32()
			default:
				return false
			}
			return true
		})
		if c.bad {
			return nil
		}
		all = append(all, e)
	}
	return all
}

// Logical types by their field in the union.
const (
	lString    = 1
	lMap       = 2
	lList      = 3
	lEnum      = 4
	lDecimal   = 5
	lDate      = 6
	lTime      = 7
	lTimestamp = 8
	lInt       = 10
	lJSON      = 12
	lFloat16   = 15
)

func (c *compact) logical(e *node) {
	c.fields(func(id int16, typ byte) bool {
		e.logical = id
		if typ != tStruct || id != lDecimal && id != lTime && id != lTimestamp && id != lInt {
			return false
		}
		c.fields(func(field int16, typ byte) bool {
			switch {
			case id == lDecimal && field == 1 && typ == tI32:
				e.scale = c.int32()
			case id == lInt && field == 1 && typ == tByte:
				e.bits = int8(c.byte())
			case id == lInt && field == 2:
				e.signed = typ == tTrue
			case id != lInt && field == 2 && typ == tStruct:
				c.fields(func(unit int16, _ byte) bool {
					e.unit = unit
					return false
				})
			default:
				return false
			}
			return true
		})
		return true
	})
}

// leaves walks the schema's tree, which is stored depth first.
func leaves(nodes []node) ([]Column, error) {
	var columns []Column
	at := 0
	var walk func(path, name []string, definition, repetition, listed, depth, silent int) error
	walk = func(path, name []string, definition, repetition, listed, depth, silent int) error {
		if at >= len(nodes) || depth > maxDepth {
			return errors.New("the schema's tree is cut")
		}
		e := nodes[at]
		at++
		if depth > 0 {
			if e.repetition < 0 || e.repetition > 2 {
				return fmt.Errorf("column %q has repetition %d", e.name, e.repetition)
			}
			path = append(path[:len(path):len(path)], e.name)
			if silent == 0 {
				name = append(name[:len(name):len(name)], e.name)
			}
			if e.repetition > 0 {
				definition++
			}
			if e.repetition == 2 {
				repetition++
				listed = definition
			}
		}
		if e.typ < 0 || e.children > 0 {
			if e.children < 0 || int(e.children) > len(nodes)-at {
				return errors.New("the schema's tree is cut")
			}
			inner := max(0, silent-1)
			if at < len(nodes) && e.repetition != 2 {
				inner = max(inner, e.silent(&nodes[at]))
			}
			for range e.children {
				if err := walk(path, name, definition, repetition, listed, depth+1, inner); err != nil {
					return err
				}
			}
			return nil
		}
		col := Column{
			Name: strings.Join(name, "."), path: strings.Join(path, "."), physical: physical(e.typ),
			length: int(e.length), definition: definition, repetition: repetition, listed: listed, List: repetition > 0,
			MayBeNull: definition > repetition,
		}
		col.resolve(&e)
		columns = append(columns, col)
		return nil
	}
	if err := walk(nil, nil, 0, 0, 0, 0, 0); err != nil {
		return nil, err
	}
	if at != len(nodes) {
		return nil, errors.New("the schema's tree has more than its root")
	}
	return columns, nil
}

// silent is how many levels below a list or a map have names that say nothing: those that
// only make it one. What is below them are values, or fields of structs, which have names.
func (e *node) silent(child *node) int {
	switch {
	case child.repetition != 2:
		return 0
	case e.logical == lMap || e.converted == 1 || e.converted == 2:
		return 1
	case e.logical != lList && e.converted != 3:
		return 0
	case child.typ < 0 && child.children == 1:
		return 2
	}
	return 1
}

// resolve finds what values come out as.
func (col *Column) resolve(e *node) {
	col.scale = int(e.scale)
	switch {
	case col.repetition > 1:
		col.Why = "it is a list of lists"
	case col.physical < 0 || col.physical > pFixed:
		col.Why = "it is of an unknown type"
	case col.physical == pFixed && (e.length <= 0 || e.length > 1<<20):
		col.Why = fmt.Sprintf("its values have %d bytes", e.length)
	case e.logical == lDecimal || e.converted == 5:
		if col.physical == pFloat || col.physical == pDouble || col.physical == pBool || col.physical == pInt96 ||
			col.scale < 0 || col.scale > 76 || col.physical == pFixed && col.length > 32 {
			col.Why = "it is a decimal of an unknown kind"
			return
		}
		col.set("float64", 8, decimal)
	default:
		col.plain(e)
	}
}

func (col *Column) set(typ string, width int, c convert) {
	col.Type, col.Width, col.convert = typ, width, c
}

var timeUnits = map[int16]string{1: "ms", 2: "us", 3: "ns"}

func (col *Column) plain(e *node) {
	switch col.physical {
	case pBool:
		col.set("bool", 1, unpacked)
	case pFloat:
		col.set("float32", 4, asIs)
	case pDouble:
		col.set("float64", 8, asIs)
	case pInt96:
		col.set("datetime64[ns]", 8, julian)
	case pBytes:
		col.set("binary", 0, asIs)
		if e.logical == lString || e.logical == lEnum || e.logical == lJSON || e.converted == 0 || e.converted == 4 ||
			e.converted == 19 {
			col.Type = "string"
		}
	case pFixed:
		col.set(fmt.Sprintf("V%d", col.length), col.length, asIs)
		if e.logical == lFloat16 && col.length == 2 {
			col.Type = "float16"
		}
	case pInt32:
		col.int32(e)
	case pInt64:
		col.set("int64", 8, asIs)
		switch {
		case e.logical == lTimestamp && e.unit != 0:
			col.Type = "datetime64[" + timeUnits[e.unit] + "]"
		case e.converted == 9:
			col.Type = "datetime64[ms]"
		case e.converted == 10:
			col.Type = "datetime64[us]"
		case e.logical == lTime && e.unit != 0:
			col.Type = "timedelta64[" + timeUnits[e.unit] + "]"
		case e.converted == 8:
			col.Type = "timedelta64[us]"
		case e.logical == lInt && !e.signed || e.logical == 0 && e.converted == 14:
			col.Type = "uint64"
		}
	}
}

func (col *Column) int32(e *node) {
	bits, signed := 32, true
	switch {
	case e.logical == lDate || e.converted == 6:
		col.set("datetime64[D]", 8, widen)
		return
	case e.logical == lTime || e.converted == 7:
		col.set("timedelta64[ms]", 8, widen)
		return
	case e.logical == lInt:
		bits, signed = int(e.bits), e.signed
	case e.converted >= 11 && e.converted <= 13:
		bits, signed = 8<<(e.converted-11), false
	case e.converted >= 15 && e.converted <= 17:
		bits = 8 << (e.converted - 15)
	}
	sign := map[bool]string{true: "int", false: "uint"}[signed]
	switch bits {
	case 8:
		col.set(sign+"8", 1, toByte)
	case 16:
		col.set(sign+"16", 2, toShort)
	default:
		col.set(sign+"32", 4, asIs)
	}
}
