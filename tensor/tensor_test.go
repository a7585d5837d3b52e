package tensor

import (
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// The numbers are part of the C ABI and of the wire format.
func TestNumbersNeverChange(t *testing.T) {
	for i, d := range []DType{
		Bool, Uint8, Int8, Uint16, Int16, Uint32, Int32, Uint64, Int64, Float16, BFloat16,
		Float32, Float64, Complex64, Complex128, Float8E4M3, Float8E5M2,
	} {
		if int(d) != i+1 {
			t.Errorf("%s is number %d, it was %d", d, d, i+1)
		}
	}
	for i, o := range []Op{Sum, Average, Product, Min, Max, And, Or, Xor, Adasum} {
		if int(o) != i {
			t.Errorf("%s is number %d, it was %d", o, o, i)
		}
	}
}

func TestNamesAndSizes(t *testing.T) {
	sizes := map[string]int{
		"bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8, "float16": 2, "bfloat16": 2,
		"float32": 4, "float64": 8, "complex64": 8, "complex128": 16, "float8_e4m3fn": 1, "float8_e5m2": 1,
	}
	if len(DTypes()) != len(sizes) {
		t.Fatalf("%d types are listed, not %d", len(DTypes()), len(sizes))
	}
	for _, d := range DTypes() {
		if sizes[d.String()] != d.Size() {
			t.Errorf("%s has %d bytes, not %d", d, d.Size(), sizes[d.String()])
		}
		if back, err := ParseDType(d.String()); err != nil || back != d {
			t.Errorf("%s is parsed as %s, %v", d, back, err)
		}
		if !d.Valid() {
			t.Errorf("%s is not valid", d)
		}
		integer := strings.HasPrefix(d.String(), "int") || strings.HasPrefix(d.String(), "uint")
		if d.IsInteger() != integer || d.IsComplex() != strings.HasPrefix(d.String(), "complex") {
			t.Errorf("%s: integer %v, complex %v", d, d.IsInteger(), d.IsComplex())
		}
	}
	for _, o := range Ops() {
		if back, err := ParseOp(o.String()); err != nil || back != o {
			t.Errorf("%s is parsed as %s, %v", o, back, err)
		}
	}
	for _, name := range []string{"", "Float32", "invalid", "float"} {
		if d, err := ParseDType(name); err == nil || d != Invalid {
			t.Errorf("%q is parsed as %s", name, d)
		}
		if _, err := ParseOp(name); err == nil {
			t.Errorf("%q is parsed as an operator", name)
		}
	}
	for _, d := range []DType{Invalid, dtypeEnd, 255} {
		if d.Valid() || d.Size() != 0 || d.String() == "" {
			t.Errorf("%d: valid %v, %d bytes, name %q", d, d.Valid(), d.Size(), d)
		}
	}
	if s := Op(200).String(); s != "op(200)" {
		t.Errorf("operator 200 is called %q", s)
	}
}

// Every pair is either possible or refused with a sentence that names both.
func TestCheck(t *testing.T) {
	floats := []DType{Float16, BFloat16, Float32, Float64}
	for _, d := range DTypes() {
		for _, o := range Ops() {
			want := true
			switch o {
			case Average:
				want = d != Bool
			case Min, Max:
				want = !d.IsComplex()
			case And, Or, Xor:
				want = d.IsInteger() || d == Bool
			case Adasum:
				want = slices.Contains(floats, d)
			}
			err := Check(o, d)
			if (err == nil) != want {
				t.Errorf("%s of %s: %v", o, d, err)
			}
			if err != nil && (!strings.Contains(err.Error(), o.String()) ||
				!strings.Contains(err.Error(), d.String())) {
				t.Errorf("%s of %s: the error does not name both: %v", o, d, err)
			}
		}
	}
	for _, err := range []error{Check(Sum, Invalid), Check(Sum, dtypeEnd), Check(opEnd, Float32)} {
		if err == nil {
			t.Error("an invalid type or operator is taken")
		}
	}
}

func checkOf[T Element](t *testing.T, want DType) {
	t.Helper()
	s := make([]T, 5)
	v := Of(s)
	if v.Type != want || TypeOf[T]() != want || v.Count != 5 || v.Len() != 5*want.Size() ||
		want.Size() != int(unsafe.Sizeof(s[0])) {
		t.Errorf("a slice of %T is viewed as %+v of %s", s[0], v, v.Type)
	}
	if b := v.Bytes(); len(b) != v.Len() || unsafe.Pointer(&b[0]) != v.Ptr {
		t.Errorf("bytes of %s: %d at %p", want, len(b), &b[0])
	}
	part := v.Slice(1, 4)
	if part.Ptr != unsafe.Pointer(&s[1]) || part.Count != 3 || part.Type != want {
		t.Errorf("a part of %s is %+v", want, part)
	}
}

func TestViews(t *testing.T) {
	checkOf[bool](t, Bool)
	checkOf[uint8](t, Uint8)
	checkOf[int8](t, Int8)
	checkOf[uint16](t, Uint16)
	checkOf[int16](t, Int16)
	checkOf[uint32](t, Uint32)
	checkOf[int32](t, Int32)
	checkOf[uint64](t, Uint64)
	checkOf[int64](t, Int64)
	checkOf[float32](t, Float32)
	checkOf[float64](t, Float64)
	checkOf[complex64](t, Complex64)
	checkOf[complex128](t, Complex128)
	if v := (View{}); v.Len() != 0 || v.Bytes() != nil {
		t.Errorf("the zero view has %d bytes", v.Len())
	}
	if v := Of[float32](nil); v.Len() != 0 || v.Bytes() != nil || v.Slice(0, 0).Count != 0 {
		t.Errorf("the view of no slice is %+v", v)
	}
	v := Of(make([]int16, 3))
	if end := v.Slice(3, 3); end.Count != 0 || end.Type != Int16 || uintptr(end.Ptr) >= uintptr(v.Ptr)+6 {
		t.Errorf("no elements at the end are %+v of %+v", end, v)
	}
	for _, r := range [][2]int{{-1, 2}, {2, 1}, {0, 4}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("elements [%d:%d) of 3 were given out", r[0], r[1])
				}
			}()
			v.Slice(r[0], r[1])
		}()
	}
}
