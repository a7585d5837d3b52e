package tensor

import "fmt"

// Op is how the ranks' elements become one. The numbers are part of the C ABI and
// of the wire format: append, never renumber.
type Op uint8

// The operators. For bool, Sum means or and Product means and. Average of integers
// truncates toward zero. Min and Max propagate NaN. Adasum combines pairwise by dot
// products and norms and is defined on floats only.
const (
	Sum Op = iota
	Average
	Product
	Min
	Max
	And
	Or
	Xor
	Adasum
	opEnd
)

var opNames = [opEnd]string{"sum", "average", "product", "min", "max", "and", "or", "xor", "adasum"}

// String is the operator's name in lower case.
func (o Op) String() string {
	if o >= opEnd {
		return fmt.Sprintf("op(%d)", uint8(o))
	}
	return opNames[o]
}

// Ops lists every operator in numeric order.
func Ops() []Op {
	all := make([]Op, opEnd)
	for i := range all {
		all[i] = Op(i)
	}
	return all
}

// ParseOp finds the operator with that name.
func ParseOp(name string) (Op, error) {
	for i, n := range opNames {
		if n == name {
			return Op(i), nil
		}
	}
	return 0, fmt.Errorf("parse operator: no reduction is called %q", name)
}

// Check says whether o can reduce elements of type d, and if not, why.
func Check(o Op, d DType) error {
	switch {
	case !d.Valid():
		return fmt.Errorf("reduce: %s is not an element type", d)
	case o >= opEnd:
		return fmt.Errorf("reduce: %s is not an operator", o)
	case d.IsComplex() && (o == Min || o == Max):
		return fmt.Errorf("reduce: %s of %s: complex numbers have no order; reduce their parts instead", o, d)
	case (o == And || o == Or || o == Xor) && !d.IsInteger() && d != Bool:
		return fmt.Errorf("reduce: %s of %s: bitwise operators work on integers and bool; use sum, product, min or max", o, d)
	case o == Average && d == Bool:
		return fmt.Errorf("reduce: average of bool: convert to a number first")
	case o == Adasum && d != Float16 && d != BFloat16 && d != Float32 && d != Float64:
		return fmt.Errorf("reduce: adasum of %s: it is defined on float16, bfloat16, float32 and float64", d)
	}
	return nil
}
