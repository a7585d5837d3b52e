package event

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// Whatever can be told has a name: types of this package with a String method of a pointer are events.
func TestEveryEventHasAName(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for name, e := range names {
		kind := reflect.TypeOf(e).Elem().Name()
		if named[kind] {
			t.Errorf("%s has two names", kind)
		}
		named[kind] = true
		if NameOf(e) != name || strings.ToLower(name) != name {
			t.Errorf("%s is called %q and %q", kind, name, NameOf(e))
		}
	}
	found := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Name.Name != "String" || fn.Recv == nil {
				continue
			}
			if star, ok := fn.Recv.List[0].Type.(*ast.StarExpr); ok {
				found++
				if kind := star.X.(*ast.Ident).Name; !named[kind] {
					t.Errorf("%s: %s has no name in names.go", f.Name(), kind)
				}
			}
		}
	}
	if found != len(names) {
		t.Errorf("%d events in the source, %d names", found, len(names))
	}
}

// fill gives every field a value of its own, so that two fields that are swapped show.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(int64(*n), 0).UTC()))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Interface: // an error
		v.Set(reflect.ValueOf(errors.New("a sentence")))
	case reflect.String:
		v.SetString("text " + strings.Repeat("x", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(*n) / 4)
	case reflect.Uint64:
		v.SetUint(uint64(*n))
	default:
		v.SetInt(int64(*n))
	}
}

// Nothing of an event is lost on its way through JSON, and its log line is made from the fields alone.
func TestEventsAsJSON(t *testing.T) {
	for name, kind := range names {
		for _, full := range []bool{false, true} {
			e := reflect.New(reflect.TypeOf(kind).Elem())
			if n := 0; full {
				fill(e.Elem(), &n)
			} else if name == "told" || name == "mismatch" {
				continue // one without a report or an error is never told
			}
			b, err := Marshal(e.Interface().(Event))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			var fields map[string]any
			if err := json.Unmarshal(b, &fields); err != nil || fields["event"] != name {
				t.Errorf("%s: %v: %s", name, err, b)
			}
			for field := range fields {
				if strings.ToLower(field) != field {
					t.Errorf("%s: field %q", name, field)
				}
			}
			back, err := Unmarshal(b)
			if err != nil || !reflect.DeepEqual(back, e.Interface()) {
				t.Errorf("%s: %v\nwrote %s\ngot  %+v\nwant %+v", name, err, b, back, e.Interface())
			} else if got, want := back.String(), e.Interface().(Event).String(); got != want {
				t.Errorf("%s says %q, and before %q", name, got, want)
			}
		}
	}
}

type stranger struct{}

func (stranger) String() string { return "" }

func TestEventsThatAreNone(t *testing.T) {
	if b, err := Marshal(stranger{}); err == nil {
		t.Errorf("somebody else's type was written: %s", b)
	}
	for _, text := range []string{``, `[]`, `{}`, `{"event":"nonsense"}`, `{"event":"left","rank":"three"}`} {
		if e, err := Unmarshal([]byte(text)); err == nil {
			t.Errorf("%s was read as %v", text, e)
		}
	}
	e, err := Unmarshal([]byte(`{"event":"left","rank":3,"of a later version":[1]}`))
	if err != nil || e.String() != "rank 3 left" {
		t.Errorf("%v, %v", e, err)
	}
}

func TestEventsOfAJobSay(t *testing.T) {
	for want, e := range map[string]*Delay{
		"waiting for hosts; 3s so far, at most 10m0s": {Text: "waiting for hosts", Over: 2600 * time.Millisecond, Limit: 10 * time.Minute},
		"looking up the name; 2s so far":              {Text: "looking up the name", Over: 2 * time.Second},
		"waiting for rank 1 to end":                   {Text: "waiting for rank 1 to end"},
		"waiting for rank 0 to join; 3 of 4 ranks have; 31s so far, at most 30m0s (--start-timeout)": {Text: "waiting for rank 0 to join; 3 of 4 ranks have", Over: 31 * time.Second, Limit: 30 * time.Minute, Flag: "--start-timeout"},
	} {
		if got := e.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	for want, e := range map[string]Event{
		`{"event":"started","rank":1,"host":"a","pid":7}`:                                                     &Started{Rank: 1, Host: "a", Pid: 7},
		`{"event":"restarted","rank":1,"host":"a","cause":"exit code 1","restarts_left":2,"in_ns":100000000}`: &Restarted{Rank: 1, Host: "a", Cause: "exit code 1", Left: 2, In: 100 * time.Millisecond},
		`{"event":"banned","host":"a","slot":-1,"cause":"it went away","for_ns":0}`:                           &Banned{Host: "a", Slot: -1, Cause: "it went away"},
		`{"event":"progress","rank":1,"host":"a","elapsed_ns":5,"operations":6,"bytes":7,"inside_ns":8}`:      &Progress{Rank: 1, Host: "a", Work: Work{Elapsed: 5, Operations: 6, Bytes: 7, Inside: 8}},
	} {
		if got, err := Marshal(e); err != nil || string(got) != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
}

// docs/launching.md tells every event of a job, with its fields.
func TestThePageTellsTheEventsOfAJob(t *testing.T) {
	page, err := os.ReadFile("../docs/launching.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]map[string]bool{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		fields := map[string]bool{}
		for field := range strings.FieldsSeq(cells[3]) {
			fields[strings.Trim(field, "`")] = true
		}
		rows[strings.Trim(cells[1], " `")] = fields
	}
	ofRanks := []string{"operation", "stall", "mismatch", "peer-lost", "joined", "left", "recovered", "agreed", "ready"} // what a worker hears itself
	for name, kind := range names {
		row, told := rows[name]
		if slices.Contains(ofRanks, name) {
			continue
		}
		if !told {
			t.Errorf("docs/launching.md has no event %q", name)
			continue
		}
		e, n := reflect.New(reflect.TypeOf(kind).Elem()), 0
		fill(e.Elem(), &n)
		b, err := Marshal(e.Interface().(Event))
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(b, &fields); err != nil {
			t.Fatal(err)
		}
		delete(fields, "event")
		for field := range fields {
			if !row[field] {
				t.Errorf("docs/launching.md: event %q lacks field %q", name, field)
			}
		}
		for field := range row {
			if _, has := fields[field]; !has {
				t.Errorf("docs/launching.md: event %q has no field %q", name, field)
			}
		}
	}
}
