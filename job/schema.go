package job

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// Schema returns the JSON Schema of a job's file, made from the table.
func Schema() []byte {
	type object = map[string]any
	var properties []any // pairs, so that the order is that of Spec
	for _, f := range keyed {
		p := object{"description": f.Help}
		if f.Default != "" {
			p["description"] = f.Help + " (default " + f.Default + ")"
		}
		shape(&f, p)
		properties = append(properties, f.Key, p)
	}
	body, err := json.MarshalIndent(object{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "a job of hora run --file",
		"type": "object", "additionalProperties": false, "properties": ordered(properties),
	}, "", "  ")
	if err != nil {
		panic(err) // a tree of strings
	}
	return append(body, '\n')
}

// shape adds what values a field may have.
func shape(f *Field, p map[string]any) {
	type object = map[string]any
	scalar := []string{"string", "number", "boolean"}
	aTime := object{"type": []string{"number", "string"}}
	switch v := (&Spec{}).value(f.Key); v.Type() {
	case reflect.TypeFor[time.Duration](), reflect.TypeFor[*time.Duration]():
		p["type"] = aTime["type"]
	case reflect.TypeFor[Cooldown]():
		p["type"], p["items"], p["minItems"], p["maxItems"] = "array", aTime, 2, 2
	case reflect.TypeFor[[]string]():
		p["type"], p["items"] = []string{"array", "string"}, object{"type": scalar}
	case reflect.TypeFor[map[string]string]():
		p["type"], p["additionalProperties"] = "object", object{"type": append(scalar, "null")}
	case reflect.TypeFor[bool](), reflect.TypeFor[*bool]():
		p["type"] = "boolean"
	case reflect.TypeFor[int](), reflect.TypeFor[*int]():
		p["type"], p["minimum"] = "integer", least(f)
	case reflect.TypeFor[*float64]():
		p["type"], p["minimum"] = "number", least(f)
	default:
		p["type"] = "string"
		if strings.Contains(f.Arg, "|") && v.Type() != reflect.TypeFor[string]() {
			p["enum"] = strings.Split(f.Arg, "|")
		}
	}
}

// least returns the smallest number that a field takes.
func least(f *Field) int {
	if f.set(&Spec{}, "0") == nil {
		return 0
	}
	return 1
}

// ordered is an object of JSON with its keys in order.
type ordered []any

func (o ordered) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	for i := 0; i < len(o); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		for j, end := range []string{":", ""} {
			text, err := json.Marshal(o[i+j])
			if err != nil {
				return nil, err
			}
			b.Write(text)
			b.WriteString(end)
		}
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}
