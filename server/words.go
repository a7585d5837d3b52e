package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"hora/job"
)

// The HTTP library checks what is sent against the description, and says what is wrong in words of its own, which are
// those of schemas. Here, and nowhere else, they become sentences: what is wrong, and what to give instead.

// place is where in a call something is wrong.
type place struct {
	name   string       // as who calls knows it
	schema *huma.Schema // what is to stand there; nil where that is not known
}

// schemasKey is where an operation has the schemas that its own refer to.
const schemasKey = "schemas"

// placeOf finds what the library calls body.points[0].name, or query.limit.
func placeOf(op *huma.Operation, location string) place {
	in, rest, _ := strings.Cut(location, ".")
	p := place{name: rest}
	if op == nil {
		return p
	}
	refs, _ := op.Metadata[schemasKey].(huma.Registry)
	known := func(s *huma.Schema) *huma.Schema {
		if s != nil && s.Ref != "" && refs != nil {
			return refs.SchemaFromRef(s.Ref)
		}
		return s
	}
	steps := strings.FieldsFunc(rest, func(r rune) bool { return strings.ContainsRune(".[]", r) })
	var s *huma.Schema
	if in == "body" {
		if op.RequestBody != nil && op.RequestBody.Content["application/json"] != nil {
			s = known(op.RequestBody.Content["application/json"].Schema)
		}
	} else if len(steps) > 0 {
		is := func(x *huma.Param) bool { return x.In == in && x.Name == steps[0] }
		if i := slices.IndexFunc(op.Parameters, is); i >= 0 {
			s = known(op.Parameters[i].Schema)
		}
		steps = steps[1:]
	}
	for _, step := range steps {
		switch {
		case s == nil:
			return p
		case s.Items != nil:
			s = known(s.Items)
		case s.Properties[step] != nil:
			s = known(s.Properties[step])
		default:
			s, _ = s.AdditionalProperties.(*huma.Schema)
			s = known(s)
		}
	}
	p.schema = s
	return p
}

// fields are the names of what an object may hold.
func (p place) fields() []string {
	if p.schema == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(p.schema.Properties))
}

// bounds is what a number may be.
func (p place) bounds() string {
	s := p.schema
	switch {
	case s == nil || s.Minimum == nil && s.Maximum == nil:
		return ""
	case s.Maximum == nil:
		return " from " + amount(*s.Minimum) + " on"
	case s.Minimum == nil:
		return " up to " + amount(*s.Maximum)
	}
	return " from " + amount(*s.Minimum) + " to " + amount(*s.Maximum)
}

func amount(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// shown is a value in a sentence.
func shown(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("%.60q", v)
	case map[string]any, []any, []string:
		return "what stands there"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "what stands there"
	}
	return fmt.Sprintf("%.60s", b)
}

// oneOf says that a value is none of those that it may be.
func oneOf(p place, v any, rest string) string {
	all := strings.Split(strings.Trim(rest, `"`), ", ")
	text := fmt.Sprintf("%s is none of %s", shown(v), strings.Join(all, ", "))
	word, _ := v.(string)
	if near := job.Nearest(word, all); near != "" {
		return text + ": did you mean " + near + "?"
	}
	return text + ": give one of them"
}

func long(_ place, v any, rest string) string {
	text, _ := v.(string)
	return fmt.Sprintf("this has %d letters, and there may be %s: give a shorter one", len([]rune(text)), rest)
}

func short(_ place, v any, rest string) string {
	if v == "" {
		return "this is empty: give it a value"
	}
	return fmt.Sprintf("%s is too short: give %s letters or more", shown(v), rest)
}

func number(p place, v any, _ string) string {
	return shown(v) + " is no number: give one" + p.bounds()
}

func integer(p place, v any, _ string) string {
	return shown(v) + " is no whole number: give one" + p.bounds()
}

func yesOrNo(_ place, v any, _ string) string {
	return shown(v) + " is neither true nor false: give one of them"
}

func low(p place, v any, _ string) string {
	return shown(v) + " is too small: give a number" + p.bounds()
}

func high(p place, v any, _ string) string {
	return shown(v) + " is too large: give a number" + p.bounds()
}

func moment(_ place, v any, _ string) string {
	return shown(v) + " is no moment: write it as 2026-01-31T14:00:00Z"
}

func few(_ place, v any, rest string) string {
	return "there are too few: give " + rest + " or more"
}

func many(_ place, v any, rest string) string {
	return "there are too many: give " + rest + " at most, and the others with another call"
}

// sentences are what the library says, by how that begins; the first that fits counts.
var sentences = []struct {
	begins string
	says   func(p place, v any, rest string) string
}{
	{"expected value to be one of ", oneOf},
	{"expected string to be RFC 3339 date-time", moment},
	{"invalid date/time", moment},
	{"expected string to be base64 encoded", func(place, any, string) string {
		return "this is no base64: send what the program base64 makes of it"
	}},
	{"expected string to be ", func(_ place, v any, rest string) string { return shown(v) + " is not " + rest }},
	{"expected string", func(_ place, v any, _ string) string { return shown(v) + " is no text: put it in quotes" }},
	{"expected length <= ", long},
	{"expected length >= ", short},
	{"expected array length <= ", many},
	{"expected array length >= ", few},
	{"expected array items to be unique", func(place, any, string) string {
		return "one stands there twice: give each once"
	}},
	{"expected array", func(_ place, v any, _ string) string {
		return shown(v) + ` is no list: write one, as ["a", "b"]`
	}},
	{"expected object", func(_ place, v any, _ string) string {
		return shown(v) + ` has no fields: write them as {"name": "value"}`
	}},
	{"expected number >", low},
	{"expected number <", high},
	{"expected number", number},
	{"invalid float", number},
	{"expected integer", integer},
	{"invalid integer", integer},
	{"expected boolean", yesOrNo},
	{"invalid boolean", yesOrNo},
	{"unknown content type: ", func(_ place, _ any, rest string) string {
		return fmt.Sprintf("%.80q is not how calls are written: send JSON, with Content-Type: application/json", rest)
	}},
}

// sentence is what is wrong with a value, from what the library says of it; that itself where it is ours.
func (p place) sentence(message string, v any) string {
	for _, s := range sentences {
		if rest, is := strings.CutPrefix(message, s.begins); is {
			message = s.says(p, v, rest)
			break
		}
	}
	if p.name == "" {
		return message
	}
	return p.name + ": " + message
}

// missing is the name of a field that must be there, where that is what the library says.
func missing(p place, message string) string {
	name, is := strings.CutPrefix(message, "expected required property ")
	if !is {
		if strings.HasPrefix(message, "required ") && strings.HasSuffix(message, " parameter is missing") {
			return p.name
		}
		return ""
	}
	name = strings.TrimSuffix(name, " to be present")
	if p.name != "" {
		name = p.name + "." + name
	}
	return name
}

// unknown says that there is no such field, and what may be meant: where is what has no such field.
func unknown(where place, name string) (text, near string) {
	own := name[strings.LastIndexByte(name, '.')+1:]
	all := where.fields()
	text = "there is no field " + name
	if near = job.Nearest(strings.ReplaceAll(own, "-", "_"), all); near != "" {
		return text + ": did you mean " + near + "?", near
	}
	const fewest = 12
	if n := len(all); n > 0 && n <= fewest {
		return text + ": leave it out; there are " + strings.Join(all, ", "), ""
	}
	return text + ": leave it out; /api/v1/openapi.json has those that there are", ""
}

// wholly is what the library says of a call as a whole, in our words.
func wholly(text string) string {
	if rest, is := strings.CutPrefix(text, "request body is too large limit="); is {
		most, _ := strconv.ParseInt(strings.TrimSuffix(rest, " bytes"), 10, 64)
		return tooLarge(most)
	}
	switch text {
	case "request body is required":
		return "nothing was sent, and this call takes JSON: /api/v1/openapi.json has its fields"
	case "request body read timeout":
		return fmt.Sprintf("nothing more of what is sent came for %v: send it again", bodyPatience)
	case "cannot read request body":
		return "what is sent could not be read: send it again"
	}
	return text
}

// tooLarge refuses what is longer than a call takes.
func tooLarge(most int64) string {
	return fmt.Sprintf("more than %d MiB were sent, and this call takes no more: send less at once; what is large goes along with a job, as a file of its folder", most>>20)
}
