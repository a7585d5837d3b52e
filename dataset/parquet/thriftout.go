package parquet

import "encoding/binary"

// thrift writes structs in the compact protocol.
type thrift struct {
	b    []byte
	last []int16 // number of the last field, of each struct that is open
}

func (t *thrift) begin() { t.last = append(t.last, 0) }

func (t *thrift) end() {
	t.b = append(t.b, 0)
	t.last = t.last[:len(t.last)-1]
}

func (t *thrift) field(id int16, typ byte) {
	last := &t.last[len(t.last)-1]
	if delta := id - *last; delta > 0 && delta < 16 {
		t.b = append(t.b, byte(delta)<<4|typ)
	} else {
		t.b = append(t.b, typ)
		t.varint(int64(id))
	}
	*last = id
}

func (t *thrift) varint(v int64) { t.b = binary.AppendVarint(t.b, v) }

func (t *thrift) bytes(s string) {
	t.b = binary.AppendUvarint(t.b, uint64(len(s)))
	t.b = append(t.b, s...)
}

func (t *thrift) i32(id int16, v int32) {
	t.field(id, tI32)
	t.varint(int64(v))
}

func (t *thrift) i64(id int16, v int64) {
	t.field(id, tI64)
	t.varint(v)
}

func (t *thrift) text(id int16, s string) {
	t.field(id, tBinary)
	t.bytes(s)
}

func (t *thrift) octet(id int16, v byte) {
	t.field(id, tByte)
	t.b = append(t.b, v)
}

func (t *thrift) flag(id int16, v bool) {
	t.field(id, map[bool]byte{true: tTrue, false: tFalse}[v])
}

// inner begins a struct in a struct.
func (t *thrift) inner(id int16) {
	t.field(id, tStruct)
	t.begin()
}

// list begins a list; its elements follow.
func (t *thrift) list(id int16, typ byte, n int) {
	t.field(id, tList)
	if n < 15 {
		t.b = append(t.b, byte(n)<<4|typ)
		return
	}
	t.b = append(t.b, 0xF0|typ)
	t.b = binary.AppendUvarint(t.b, uint64(n))
}
