package timeline

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"hora/event"
)

// cursor writes the records of one operation. Times never go back within a tensor, or
// its records would not nest.
type cursor struct {
	p    *page
	t    *tensor
	base int64
	at   int64 // of the newest record, in nanoseconds from the file's start
}

// move goes on to a time of the operation.
func (c *cursor) move(at int64) {
	if at != 0 {
		c.at = max(c.at, at+c.base)
	}
}

func (c *cursor) begin(phase string, at int64) {
	c.move(at)
	c.p.open(phase, c.at)
	c.p.text = append(c.p.text, c.t.tail...)
}

func (c *cursor) end(at int64) {
	c.move(at)
	c.p.open("E", c.at)
	c.p.text = append(c.p.text, c.t.tail...)
}

// span writes something that took at least a microsecond.
func (c *cursor) span(activity string, from, to int64) {
	if from == 0 || to-from < 1000 {
		return
	}
	c.begin(activity, from)
	c.end(to)
}

// ready writes that a rank was ready.
func (c *cursor) ready(m mark) {
	c.at = max(c.at, m.at)
	c.p.text = append(c.p.text, ",\n"+`{"ph":"X","name":"`...)
	c.p.text = strconv.AppendInt(c.p.text, int64(m.rank), 10)
	c.p.text = append(c.p.text, `","ts":`...)
	c.p.text = strconv.AppendInt(c.p.text, c.at/1000, 10)
	c.p.text = append(c.p.text, c.t.tail[:len(c.t.tail)-1]...)
	c.p.text = append(c.p.text, `,"dur":0}`...)
}

// names are what a kind of operation is called in the file. They begin a record up to
// its name.
type names struct{ negotiate, name, work string }

// phase is the part of a record that begins something.
func phase(name string) string { return `B","name":"` + name }

// Activities within an operation.
const (
	queue      = `B","name":"QUEUE`
	waitForAll = `B","name":"WAIT_FOR_DATA`
	copyIn     = `B","name":"MEMCPY_IN_FUSION_BUFFER`
	copyOut    = `B","name":"MEMCPY_OUT_FUSION_BUFFER`
)

// kinds are the operations as Horovod writes them; others are written in capitals.
var kinds = []string{
	"ALLREDUCE", "REDUCE", "BROADCAST", "ALLGATHER", "REDUCESCATTER", "ALLTOALL", "GATHER", "SCATTER", "BARRIER", "ADASUM", "OPERATION",
}

// views are what each kind of operation is called.
var views = func() map[string]names {
	all := map[string]names{}
	for _, kind := range kinds {
		all[strings.ToLower(kind)] = names{phase("NEGOTIATE_" + kind), phase(kind), phase("HORA_" + kind)}
	}
	return all
}()

// view is what the operation is called.
func view(r *record) names {
	kind := r.Kind
	if r.Op == "adasum" && kind == "allreduce" {
		kind = "adasum"
	}
	if v, ok := views[kind]; ok {
		return v
	}
	return views["operation"]
}

// label is what the file calls a tensor: its name, and the group unless that is the
// world.
func label(group, name string) string {
	if group == "" || group == "world" || strings.HasPrefix(group, "world ") {
		return name
	}
	return name + " [" + strings.TrimSuffix(group, " (named)") + "]"
}

// shapeText is "[2, 3]".
func shapeText(r *record) string {
	b := []byte{'['}
	for i, d := range r.Shape[:min(r.Dims, event.MaxDims)] {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(b, int64(d), 10)
	}
	if r.Dims > event.MaxDims {
		b = append(b, ", …"...)
	}
	return string(append(b, ']'))
}

// appendQuoted appends s as a JSON string. Bytes that are no UTF-8 become U+FFFD.
func appendQuoted(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
			i++
		case c < 0x20 || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			i++
		case c < utf8.RuneSelf:
			b = append(b, c)
			i++
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += n
		}
	}
	return append(b, '"')
}
