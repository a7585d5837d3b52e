package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// schemaWords are those of the HTTP library and of what checks schemas, which no client is to read.
var schemaWords = regexp.MustCompile(
	`(?i)\bexpected |invalid (integer|boolean|float|date|url|value)|pattern|propert|[^-]\bschema\b|request body|limit=|\^\[|RFC |` +
		`validation failed|content type|parameter|required|array|boolean|query\.|path\.|body\.|Go `)

// wrongValues are values that no field takes, or only one of a fitting kind.
var wrongValues = []string{
	`null`, `true`, `-5`, `1.5`, `1e30`, `99999999999999999`, `""`, `"boss"`, `"Ab /!"`, `"` + strings.Repeat("x", 5000) + `"`,
	`[]`, `[null]`, `[1]`, `[{}]`, `["runing"]`, `{}`, `{"nonsense": 1}`, `{"a": 1}`,
}

// described is a schema of the server's description, as far as a body is made from it.
type described struct {
	Ref        string                `json:"$ref"`
	Properties map[string]*described `json:"properties"`
	Items      *described            `json:"items"`
}

type describedCall struct {
	OperationID string
	Parameters  []struct{ Name, In string }
	RequestBody struct {
		Content map[string]struct{ Schema *described }
	}
}

// description is what the server says of its calls.
func (c *callSite) description() (calls map[string]map[string]describedCall, schemas map[string]*described) {
	c.t.Helper()
	var d struct {
		Paths      map[string]map[string]describedCall
		Components struct{ Schemas map[string]*described }
	}
	_, text := c.send(c.t.Context(), "owner", "GET", "/openapi.json", "", "")
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		c.t.Fatal(err)
	}
	return d.Paths, d.Components.Schemas
}

// bodies are what is sent in place of something that a schema describes: each wrong value, there and in each of its
// parts.
func bodies(s *described, all map[string]*described, put func(string) string, depth int) (out []string) {
	if s == nil || depth > 4 {
		return nil
	}
	if s.Ref != "" {
		s = all[s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]]
	}
	for _, v := range wrongValues {
		out = append(out, put(v))
	}
	for name, part := range s.Properties {
		in := func(v string) string { return put(fmt.Sprintf(`{%q: %s}`, name, v)) }
		out = append(out, bodies(part, all, in, depth+1)...)
		out = append(out, in(`1, "`+name+`x": 2`)) // mistyped
	}
	if s.Items != nil {
		out = append(out, bodies(s.Items, all, func(v string) string { return put("[" + v + "]") }, depth+1)...)
	}
	return out
}

// TestNoWordsOfSchemasReachAClient: whatever is wrong with whichever field or parameter of each call of the server's
// own description, what is answered is a sentence of ours with what to do.
func TestNoWordsOfSchemasReachAClient(t *testing.T) {
	c := newCallSite(t, nil)
	_, id := c.callers()
	calls, schemas := c.description()
	refused, told := 0, map[string]bool{}
	try := func(method, path, body string) {
		t.Helper()
		status, text := c.send(t.Context(), "owner", strings.ToUpper(method), path, body, "application/json")
		if status < 400 {
			return
		}
		refused++
		var f struct {
			Detail string
			Errors []struct{ Message string }
		}
		if err := json.Unmarshal([]byte(text), &f); err != nil || status >= 500 {
			t.Errorf("%s %s %.80s: %d %s, %v", method, path, body, status, text, err)
			return
		}
		said := f.Detail
		for _, e := range f.Errors {
			said += " | " + e.Message
		}
		if words := schemaWords.FindString(said); words != "" && !told[words] || !strings.Contains(said, ":") {
			told[words] = true
			t.Errorf("%s %s %.80s: %q is said: %s", method, path, body, words, said)
		}
	}
	for path, methods := range calls {
		for method, op := range methods {
			is := apiCalls[op.OperationID]
			if op.OperationID == "down" || op.OperationID == "test-webhook" || op.OperationID == "follow" {
				continue
			}
			at := strings.ReplaceAll(is.path, "{job}", fmt.Sprint(id))
			for _, p := range op.Parameters {
				for _, wrong := range []string{"abc", "-7", "0", "1x", "99999999999999999999", "5000000", "A /!", strings.Repeat("x", 2000)} {
					switch p.In {
					case "query":
						try(method, at+"?"+url.Values{p.Name: {wrong}}.Encode(), is.body)
					case "path":
						to := strings.ReplaceAll(strings.TrimPrefix(path, "/api/v1"), "{"+p.Name+"}", url.PathEscape(wrong))
						try(method, strings.NewReplacer("{id}", "1", "{name}", "lab", "{user}", "ana", "{project}", "p", "{secret}", "S").Replace(to), is.body)
					}
				}
			}
			if s := op.RequestBody.Content["application/json"].Schema; s != nil {
				for _, body := range bodies(s, schemas, func(v string) string { return v }, 0) {
					try(method, at, body)
				}
				try(method, at, "")
				try(method, at, "{")
				try(method, at, `"`+strings.Repeat("x", 17<<20)+`"`)
			}
		}
	}
	if refused < 1000 {
		t.Errorf("%d calls were refused", refused)
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", c.url+"/api/v1/tokens", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer owner"}, "Content-Type": {"application/xml"}}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
	if a.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("XML is answered %s", a.Status)
	}
}

// TestWhatIsLeftOfACallIsNoOther: of what is sent beyond what a call takes nothing is taken for the next call.
func TestWhatIsLeftOfACallIsNoOther(t *testing.T) {
	c := newCallSite(t, nil)
	for range 3 {
		status, text := c.send(t.Context(), "owner", "POST", "/blobs/missing", `"`+strings.Repeat("x", 17<<20)+`"`, "application/json")
		if status != http.StatusRequestEntityTooLarge {
			t.Fatal(status, text)
		}
		if status, text = c.send(t.Context(), "owner", "GET", "/jobs", "", ""); status != http.StatusOK {
			t.Errorf("the call after one that was too large is answered %d %s", status, text)
		}
	}
}

// TestSentencesOfWrongValues: what is wrong with the values that people send is said with what is nearest, or allowed.
func TestSentencesOfWrongValues(t *testing.T) {
	c := newCallSite(t, nil)
	id := c.submit()
	for _, x := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/jobs/abc", "", 422, `"abc" is no number of a job: hora jobs --all has those that there are`},
		{"DELETE", "/webhooks/0", "", 422, `"0" is no number of a webhook: hora webhook list has those that there are`},
		{"DELETE", "/tokens/1x", "", 422, `"1x" is no number of a token: hora token list has those that there are`},
		{"GET", "/jobs?state=runing", "", 422, `state[0]: "runing" is none of queued, preparing, running, paused, finished, failed, cancelled: did you mean running?`},
		{"GET", "/jobs?limit=5000", "", 422, "limit: 5000 is too large: give a number from 1 to 1000"},
		{"GET", "/jobs?limit=x", "", 422, `limit: "x" is no whole number: give one from 1 to 1000`},
		{"GET", "/jobs?cursor=-1", "", 422, `cursor: "-1" is not a cursor: give next of the answer before, or leave it out`},
		{"GET", fmt.Sprintf("/jobs/%d/logs?since=noon", id), "", 422, `since: "noon" is no moment: write it as 2026-01-31T14:00:00Z`},
		{"PUT", "/pools/Lab", `{"name": "lab", "provider": "statc"}`, 422, `name: "Lab" is not a pool's name: write it with a-z, 0-9 and -, as in lab-2; provider: "statc" is none of static, local, command: did you mean static?`},
		{"PUT", "/users/ana/roles", `{"project": "p", "role": "boss"}`, 422, `role: "boss" is none of viewer, member, admin: give one of them`},
		{"PUT", "/projects/p/secrets/1x", `{"value": "aGk="}`, 422, `secret: "1x" is not a secret's name: write it with letters, digits and _ . -, a letter or _ first, as in HF_TOKEN`},
		{"POST", fmt.Sprintf("/jobs/%d/priority", id), `{"priority": 500}`, 422, "priority: 500 is too large: give a number from 0 to 100"},
		{"POST", fmt.Sprintf("/jobs/%d/priority", id), `{"prio": 5}`, 422, "there is no field prio: did you mean priority?"},
		{"POST", fmt.Sprintf("/jobs/%d/priority", id), `{}`, 422, "priority is missing: give it"},
		{"POST", "/jobs", `{"spec": {"command": ["true"]}, "pripority": 3}`, 422, "there is no field pripority: did you mean priority?"},
		{"POST", "/tokens", `{"rolle": "admin"}`, 422, "there is no field rolle: did you mean role?"},
		{"POST", "/tokens", `"` + strings.Repeat("x", 2<<20) + `"`, 413, "more than 1 MiB were sent, and this call takes no more: send less at once; what is large goes along with a job, as a file of its folder"},
	} {
		status, text := c.send(t.Context(), "owner", x.method, x.path, x.body, "application/json")
		var f struct{ Detail string }
		if err := json.Unmarshal([]byte(text), &f); err != nil || status != x.status || f.Detail != x.says {
			t.Errorf("%s %s %.60s: %d\n  %s, want\n  %s", x.method, x.path, x.body, status, f.Detail, x.says)
		}
	}
}
