package dataset

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"hora/dataset/parquet"
)

// Condition is one comparison of a filter. A null fits none but "is null".
type Condition struct {
	Column string `json:"column"`
	Op     string `json:"op"`    // == != < <= > >= in "not in" "is null" "not null"
	Value  any    `json:"value"` // a json.Number, text, bool or {"bytes": hexadecimal}; of in and not in a list
}

// test is a condition for a column of a known type.
type test struct {
	field  int
	op     string
	get    func(l *loaded, row int) any // int64, uint64, float64 or string
	values []any                        // of the kind that get answers
	null   func(l *loaded, row int) bool
}

var operators = []string{"==", "!=", "<", "<=", ">", ">=", "in", "not in", "is null", "not null"}

// compile checks a condition against its column.
func (c Condition) compile(field int, f *field) (test, error) {
	t := test{field: field, op: c.Op}
	if c.Op == "=" {
		t.op = "=="
	}
	if !slices.Contains(operators, t.op) {
		return t, fmt.Errorf("filter=: there is no comparison %q; use one of %s", c.Op, strings.Join(operators, ", "))
	}
	t.null = func(l *loaded, row int) bool { return l.mask[field][row] != 0 }
	if f.lists || f.per != 1 || len(f.cols) != 1 {
		return t, fmt.Errorf("filter=: column %q is a list; compare columns with one value a row", c.Column)
	}
	if t.get = getter(field, f); t.get == nil {
		return t, fmt.Errorf("filter=: column %q is %s, which hora does not compare", c.Column, f.Type)
	}
	switch t.op {
	case "is null", "not null":
		return t, nil
	case "in", "not in":
		list, is := c.Value.([]any)
		if !is {
			return t, fmt.Errorf("filter=: %q %s %v; give a list of values", c.Column, t.op, c.Value)
		}
		for _, v := range list {
			value, err := f.comparable(c.Column, "==", v)
			if err != nil {
				return t, err
			}
			if value.op == "==" { // else no value of the column's type is equal to it
				t.values = append(t.values, value.value)
			}
		}
		return t, nil
	}
	v, err := f.comparable(c.Column, t.op, c.Value)
	t.op, t.values = v.op, []any{v.value}
	return t, err
}

func getter(i int, f *field) func(l *loaded, row int) any {
	word := func(l *loaded, row int) []byte { return l.data[i][row*f.Width:] }
	switch {
	case f.Type == "string" || f.Type == "binary":
		return func(l *loaded, row int) any { return string(l.data[i][l.ends[i][row]:l.ends[i][row+1]]) }
	case f.Type == "bool" || f.Type == "uint8":
		return func(l *loaded, row int) any { return int64(word(l, row)[0]) }
	case f.Type == "int8":
		return func(l *loaded, row int) any { return int64(int8(word(l, row)[0])) }
	case f.Type == "int16":
		return func(l *loaded, row int) any { return int64(int16(binary.LittleEndian.Uint16(word(l, row)))) }
	case f.Type == "uint16":
		return func(l *loaded, row int) any { return int64(binary.LittleEndian.Uint16(word(l, row))) }
	case f.Type == "int32":
		return func(l *loaded, row int) any { return int64(int32(binary.LittleEndian.Uint32(word(l, row)))) }
	case f.Type == "uint32":
		return func(l *loaded, row int) any { return int64(binary.LittleEndian.Uint32(word(l, row))) }
	case f.Type == "uint64":
		return func(l *loaded, row int) any { return binary.LittleEndian.Uint64(word(l, row)) }
	case f.Type == "float32":
		return func(l *loaded, row int) any {
			return float64(math.Float32frombits(binary.LittleEndian.Uint32(word(l, row))))
		}
	case f.Type == "float64":
		return func(l *loaded, row int) any { return math.Float64frombits(binary.LittleEndian.Uint64(word(l, row))) }
	case f.Type == "int64" || strings.HasPrefix(f.Type, "datetime64") || strings.HasPrefix(f.Type, "timedelta64"):
		return func(l *loaded, row int) any { return int64(binary.LittleEndian.Uint64(word(l, row))) }
	}
	return nil
}

// bound is a value to compare with, and the comparison that is meant by it: where a
// column has whole numbers, x < 2.5 is x <= 2.
type bound struct {
	op    string
	value any
}

func (f *field) comparable(column, op string, v any) (bound, error) {
	wrong := func() error {
		return fmt.Errorf("filter=: column %q is %s, and it is compared with %v; give a value of that kind", column, f.Type, v)
	}
	switch {
	case f.text:
		switch v := v.(type) {
		case string:
			return bound{op, v}, nil
		case map[string]any: // bytes, which need not be a text
			hexadecimal, _ := v["bytes"].(string)
			if raw, err := hex.DecodeString(hexadecimal); err == nil && len(v) == 1 {
				return bound{op, string(raw)}, nil
			}
		}
		return bound{}, wrong()
	case f.Type == "bool":
		if b, is := v.(bool); is {
			return bound{op, map[bool]int64{true: 1}[b]}, nil
		}
	case strings.HasPrefix(f.Type, "datetime64"):
		if text, is := v.(string); is {
			return moment(op, text, f.Type, wrong())
		}
	}
	number, is := v.(json.Number)
	if !is {
		return bound{}, wrong()
	}
	if strings.HasPrefix(f.Type, "float") {
		x, err := number.Float64()
		return bound{op, x}, err
	}
	exact, ok := new(big.Rat).SetString(number.String())
	if !ok {
		return bound{}, wrong()
	}
	return whole(op, exact, f.Type == "uint64"), nil
}

// whole makes a comparison of whole numbers with any number one with a whole number that
// the column's type has.
func whole(op string, x *big.Rat, unsigned bool) bound {
	low, high := big.NewInt(math.MinInt64), big.NewInt(math.MaxInt64)
	if unsigned {
		low, high = new(big.Int), new(big.Int).SetUint64(math.MaxUint64)
	}
	as := func(n *big.Int) any {
		if unsigned {
			return n.Uint64()
		}
		return n.Int64()
	}
	floor := new(big.Int).Div(x.Num(), x.Denom()) // rounds down: the denominator is above 0
	fraction := !x.IsInt()
	switch {
	case fraction || floor.Cmp(low) < 0 || floor.Cmp(high) > 0:
	default:
		return bound{op, as(floor)}
	}
	below := floor.Cmp(low) < 0  // every value is more
	above := floor.Cmp(high) > 0 // every value is less
	never, always := bound{"none", as(low)}, bound{">=", as(low)}
	switch {
	case op == "==":
		return never
	case op == "!=":
		return always
	case below:
		return map[bool]bound{true: always, false: never}[op[0] == '>']
	case above:
		return map[bool]bound{true: always, false: never}[op[0] == '<']
	case op[0] == '<':
		return bound{"<=", as(floor)}
	}
	return bound{">", as(floor)}
}

// moment reads a date or a time.
func moment(op, text, typ string, wrong error) (bound, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04", "2006-01-02"} {
		at, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		ns := new(big.Int).Add(
			new(big.Int).Mul(big.NewInt(at.Unix()), big.NewInt(1e9)), big.NewInt(int64(at.Nanosecond())),
		)
		unit := map[string]int64{"datetime64[D]": 86400e9, "datetime64[ms]": 1e6, "datetime64[us]": 1e3, "datetime64[ns]": 1}[typ]
		return whole(op, new(big.Rat).SetFrac(ns, big.NewInt(unit)), false), nil
	}
	return bound{}, wrong
}

// row tells whether the condition holds for a row.
func (t *test) row(l *loaded, row int) bool {
	null := t.null(l, row)
	switch {
	case t.op == "is null":
		return null
	case t.op == "not null":
		return !null
	case null:
		return false
	}
	return t.value(t.get(l, row))
}

func (t *test) value(v any) bool {
	switch t.op {
	case "in":
		return slices.ContainsFunc(t.values, func(w any) bool { return relation("==", v, w) })
	case "not in":
		return !slices.ContainsFunc(t.values, func(w any) bool { return relation("==", v, w) })
	}
	return relation(t.op, v, t.values[0])
}

func relation(op string, a, b any) bool {
	switch a := a.(type) {
	case int64:
		return ordered(op, a, b.(int64))
	case uint64:
		return ordered(op, a, b.(uint64))
	case float64:
		return ordered(op, a, b.(float64))
	}
	return ordered(op, a.(string), b.(string))
}

func ordered[T int64 | uint64 | float64 | string](op string, a, b T) bool {
	switch op {
	case "==":
		return a == b
	case "!=":
		return a != b
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	case ">=":
		return a >= b
	}
	return false
}

// folder is the verdict on all rows of a file whose folder's name is the value.
func (t *test) folder(value *string, typ string) verdict {
	fits := false
	switch {
	case t.op == "is null":
		fits = value == nil
	case t.op == "not null":
		fits = value != nil
	case value == nil:
	case typ == "string":
		fits = t.value(*value)
	default:
		n, err := strconv.ParseInt(*value, 10, 64) // it is why the type is int64
		fits = err == nil && t.value(n)
	}
	if fits {
		return all
	}
	return none
}

// bounds is the verdict on a row group whose values lie between two.
func (t *test) bounds(b parquet.Bounds) verdict {
	switch {
	case t.op == "is null" || t.op == "not null":
		switch {
		case b.NullsKnown && (t.op == "is null" && b.NoNulls || t.op == "not null" && b.AllNull):
			return none
		case b.NullsKnown && (b.NoNulls || b.AllNull):
			return all
		}
		return some
	case b.AllNull:
		return none
	case !b.Known:
		return some
	}
	low, high, kind := alike(b, t.values)
	if !kind {
		return some
	}
	if !t.may(low, high) {
		return none
	}
	return some
}

// alike are bounds of the kind that the values are.
func alike(b parquet.Bounds, values []any) (low, high any, ok bool) {
	low, high = b.Low, b.High
	for _, v := range values {
		if _, small := v.(int64); small {
			if l, wide := low.(uint64); wide { // unsigned columns below 64 bits are compared as int64
				low, high = int64(l), int64(high.(uint64))
			}
		}
		if fmt.Sprintf("%T", v) != fmt.Sprintf("%T", low) {
			return nil, nil, false
		}
	}
	return low, high, true
}

// may tells whether a value between two may fit.
func (t *test) may(low, high any) bool {
	if _, text := low.(string); text && (t.op == "!=" || t.op == "not in") {
		return true // a text's bounds may be cut
	}
	within := func(v any) bool { return relation("<=", low, v) && relation(">=", high, v) }
	switch t.op {
	case "none":
		return false
	case "==", "in":
		return slices.ContainsFunc(t.values, within)
	case "!=", "not in":
		_, float := low.(float64) // which may be NaN, outside of all bounds
		return float || relation("<", low, high) || t.value(low)
	case "<", "<=":
		return relation(t.op, low, t.values[0])
	}
	return relation(t.op, high, t.values[0])
}
