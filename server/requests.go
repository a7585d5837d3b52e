package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"hora/server/web"
)

// The HTTP library takes what schemas forbid, in three places: null for any field that may be left out, whole numbers
// written as 71.0 only where nothing but a check reads them, and the first of a parameter that is given twice. What
// follows closes them, so that the description that the server gives of itself holds.

func init() {
	huma.DefaultArrayNullable = false // an empty list is a list in what we answer, and null is none in what we take
}

// formats are how bodies are read and written.
func formats() map[string]huma.Format {
	f := huma.DefaultJSONFormat
	f.Unmarshal = readJSON
	return map[string]huma.Format{"application/json": f, "json": f}
}

// null stands for null in what is checked: the library takes nil for a field that was left out.
type null struct{}

func (null) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// readJSON reads a body: into nothing but maps, lists and values, which are then checked, or into what a call wants.
func readJSON(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		if strings.HasPrefix(syntax.Error(), "unexpected end") {
			return fmt.Errorf("it is no JSON: it ends at byte %d, before it is whole: send all of it", syntax.Offset)
		}
		return fmt.Errorf("it is no JSON: %w, at byte %d", syntax, syntax.Offset)
	}
	if checked, ok := v.(*any); ok {
		if err == nil {
			*checked = nulls(*checked)
		}
		return large(err)
	}
	if err == nil {
		return nil
	}
	if again, changed := whole(data); changed {
		if err = json.Unmarshal(again, v); err == nil {
			return nil
		}
	}
	return large(err)
}

func nulls(v any) any {
	switch x := v.(type) {
	case nil:
		return null{}
	case map[string]any:
		for k := range x {
			x[k] = nulls(x[k])
		}
	case []any:
		for i := range x {
			x[i] = nulls(x[i])
		}
	}
	return v
}

// large says in plain words what is left to be wrong once a body's types were checked: a number beyond what is kept of
// one.
func large(err error) error {
	wrong := (*json.UnmarshalTypeError)(nil)
	if !errors.As(err, &wrong) {
		return err
	}
	value, number := strings.CutPrefix(wrong.Value, "number ")
	if !number {
		return err
	}
	text := fmt.Sprintf("%.40s is too large: give a number that is nearer to 0", value)
	if wrong.Field != "" {
		text = wrong.Field + ": " + text
	}
	return errors.New(text)
}

// whole writes numbers such as 71.0 and 7e1 without a fraction; false where there is none.
func whole(data []byte) (out []byte, changed bool) {
	in := json.NewDecoder(bytes.NewReader(data))
	in.UseNumber()
	var v any
	if in.Decode(&v) != nil {
		return nil, false
	}
	var walk func(v any) any
	walk = func(v any) any {
		switch x := v.(type) {
		case json.Number:
			if f, err := x.Float64(); err == nil && strings.ContainsAny(x.String(), ".eE") && f == math.Trunc(f) &&
				math.Abs(f) < 1<<63 {
				changed = true
				return json.Number(strconv.FormatInt(int64(f), 10))
			}
		case map[string]any:
			for k := range x {
				x[k] = walk(x[k])
			}
		case []any:
			for i := range x {
				x[i] = walk(x[i])
			}
		}
		return v
	}
	out, err := json.Marshal(walk(v))
	return out, changed && err == nil
}

// strict refuses parameters that are empty or given twice, and answers as all calls do what leads nowhere: before next,
// which may know the call's key, looks at it.
func (a *api) strict(mux *http.ServeMux, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/api/") {
			if _, pattern := mux.Handler(r); pattern == "" {
				web.Refused(w, http.StatusNotFound, fmt.Sprintf("there is no page %.200s, or no button there: the queue leads to all that there are", r.URL.Path))
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		for name, values := range r.URL.Query() {
			if values[0] == "" {
				problemAnswer(w, http.StatusUnprocessableEntity, fmt.Sprintf("%.80s is empty: leave it out, or give it a value", name))
				return
			}
			if len(values) > 1 {
				problemAnswer(w, http.StatusUnprocessableEntity, fmt.Sprintf("%.80s is given %d times: give it once; where it takes several values they stand in one, with commas", name, len(values)))
				return
			}
		}
		if only := a.methods(r.URL.Path); only != nil && !slices.Contains(only, r.Method) {
			w.Header().Set("Allow", strings.Join(only, ", "))
			(&nowhere{ResponseWriter: w, r: r}).WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if _, pattern := mux.Handler(r); pattern == "" {
			mux.ServeHTTP(&nowhere{ResponseWriter: w, r: r}, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// methods are those of a path that is written out among the calls, so that blobs/missing is not taken for the hash
// "missing"; nil where it is none.
func (a *api) methods(path string) (all []string) {
	p := a.OpenAPI().Paths[path]
	if p == nil {
		return nil
	}
	for _, m := range []struct {
		name string
		op   *huma.Operation
	}{{"GET", p.Get}, {"HEAD", p.Get}, {"POST", p.Post}, {"PUT", p.Put}, {"PATCH", p.Patch}, {"DELETE", p.Delete}} {
		if m.op != nil {
			all = append(all, m.name)
		}
	}
	return all
}

// nowhere is the answer to a call that there is not.
type nowhere struct {
	http.ResponseWriter
	r    *http.Request
	said bool
}

func (n *nowhere) WriteHeader(status int) {
	n.said = true
	switch status {
	case http.StatusMethodNotAllowed:
		problemAnswer(n.ResponseWriter, status, fmt.Sprintf("%s is not for %.200s, which takes %s: /api/v1/openapi.json has all calls", n.r.Method, n.r.URL.Path, n.Header().Get("Allow")))
	case http.StatusNotFound:
		problemAnswer(n.ResponseWriter, status, fmt.Sprintf("there is no call %.200s: /api/v1/openapi.json has all that there are", n.r.URL.Path))
	default: // a path that is written another way
		n.said = false
		n.ResponseWriter.WriteHeader(status)
	}
}

func (n *nowhere) Write(b []byte) (int, error) {
	if n.said {
		return len(b), nil // it was said in our words
	}
	return n.ResponseWriter.Write(b)
}

// Hash is that of content, as calls take it.
type Hash string

// Schema says how a hash is written.
func (Hash) Schema(huma.Registry) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString, Pattern: "^[0-9a-f]{64}$", PatternDescription: "a hash: give the 64 digits of 0-9 and a-f that stand for the content"}
	s.PrecomputeMessages()
	return s
}
