// Package tensor names what a collective works on: an element type, a reduction
// operator and a typed view over memory that somebody else owns.
//
// It owns no memory, starts no goroutines and knows nothing of links or ranks. A
// View never keeps the memory behind it alive: whoever makes one keeps the owner
// (a Go slice, a mapped segment, a framework's tensor) alive until the operation
// that was given the View has completed.
package tensor

import (
	"fmt"
	"unsafe"
)

// DType is the type of one element. The numbers are part of the C ABI and of the
// wire format: append, never renumber.
type DType uint8

// The element types.
const (
	Invalid DType = iota
	Bool
	Uint8
	Int8
	Uint16
	Int16
	Uint32
	Int32
	Uint64
	Int64
	Float16
	BFloat16
	Float32
	Float64
	Complex64
	Complex128
	Float8E4M3 // e4m3fn: no infinities, NaN is 0x7f or 0xff
	Float8E5M2
	dtypeEnd
)

var dtypes = [dtypeEnd]struct {
	name string
	size int
}{
	Invalid:    {"invalid", 0},
	Bool:       {"bool", 1},
	Uint8:      {"uint8", 1},
	Int8:       {"int8", 1},
	Uint16:     {"uint16", 2},
	Int16:      {"int16", 2},
	Uint32:     {"uint32", 4},
	Int32:      {"int32", 4},
	Uint64:     {"uint64", 8},
	Int64:      {"int64", 8},
	Float16:    {"float16", 2},
	BFloat16:   {"bfloat16", 2},
	Float32:    {"float32", 4},
	Float64:    {"float64", 8},
	Complex64:  {"complex64", 8},
	Complex128: {"complex128", 16},
	Float8E4M3: {"float8_e4m3fn", 1},
	Float8E5M2: {"float8_e5m2", 1},
}

// Valid reports whether d is one of the element types above, Invalid excluded.
func (d DType) Valid() bool { return d > Invalid && d < dtypeEnd }

// Size is the number of bytes of one element, 0 for an invalid type.
func (d DType) Size() int {
	if d >= dtypeEnd {
		return 0
	}
	return dtypes[d].size
}

// String is the name that frameworks use: "float32", "bfloat16".
func (d DType) String() string {
	if d >= dtypeEnd {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}

// IsInteger reports a signed or unsigned integer; bool is not one.
func (d DType) IsInteger() bool { return d >= Uint8 && d <= Int64 }

// IsComplex reports complex64 and complex128.
func (d DType) IsComplex() bool { return d == Complex64 || d == Complex128 }

// DTypes lists every valid element type in numeric order.
func DTypes() []DType {
	all := make([]DType, 0, dtypeEnd-1)
	for d := Invalid + 1; d < dtypeEnd; d++ {
		all = append(all, d)
	}
	return all
}

// ParseDType finds the type with that name.
func ParseDType(name string) (DType, error) {
	for d := Invalid + 1; d < dtypeEnd; d++ {
		if dtypes[d].name == name {
			return d, nil
		}
	}
	return Invalid, fmt.Errorf("parse dtype: no element type is called %q", name)
}

// View is Count elements of one type at Ptr. The zero View is an empty tensor of
// no type. Ptr may be nil when Count is 0.
type View struct {
	Ptr   unsafe.Pointer
	Count int
	Type  DType
}

// Element is the set of Go types that have an element type of their own. Go has no
// 16-bit or 8-bit floats: those are reached through a View over their bits.
type Element interface {
	bool | uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64 |
		float32 | float64 | complex64 | complex128
}

// TypeOf is the element type of a Go type.
func TypeOf[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case bool:
		return Bool
	case uint8:
		return Uint8
	case int8:
		return Int8
	case uint16:
		return Uint16
	case int16:
		return Int16
	case uint32:
		return Uint32
	case int32:
		return Int32
	case uint64:
		return Uint64
	case int64:
		return Int64
	case float32:
		return Float32
	case float64:
		return Float64
	case complex64:
		return Complex64
	default:
		return Complex128
	}
}

// Of views a Go slice.
func Of[T Element](s []T) View {
	return View{Ptr: unsafe.Pointer(unsafe.SliceData(s)), Count: len(s), Type: TypeOf[T]()}
}

// Len is the number of bytes.
func (v View) Len() int { return v.Count * v.Type.Size() }

// Bytes is the memory itself.
func (v View) Bytes() []byte {
	if v.Count == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(v.Ptr), v.Len())
}

// Slice is elements [from, to) of v.
func (v View) Slice(from, to int) View {
	if from < 0 || to < from || to > v.Count {
		panic(fmt.Sprintf("tensor: slice [%d:%d) of a view of %d elements", from, to, v.Count))
	}
	if from == to { // never a pointer past the end: the collector could take it for another object's
		return View{Ptr: v.Ptr, Type: v.Type}
	}
	return View{Ptr: unsafe.Add(v.Ptr, from*v.Type.Size()), Count: to - from, Type: v.Type}
}
