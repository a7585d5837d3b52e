package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// keyed makes a call with a key.
func (s *site) keyed(key, method, path, body string) (status int, replayed bool, text string) {
	s.t.Helper()
	r, text := s.call(method, "/api/v1"+path, body, "Idempotency-Key", key)
	return r.StatusCode, r.Header.Get("Idempotent-Replayed") != "", text
}

// TestEveryWriteTakesAKey: sent again it answers the same, by a server that was killed in between too, and another body
// with the key is refused.
func TestEveryWriteTakesAKey(t *testing.T) {
	s := newSite(t, 1)
	held := shell(1, "true")
	held.Held = true
	s.submit(held)
	calls := []struct{ method, path, body, other string }{
		{"POST", "/jobs", `{"spec": {"command": ["true"]}, "held": true}`, `{"spec": {"command": ["false"]}, "held": true}`},
		{"PUT", "/pools/lab", `{"name": "lab", "provider": "static"}`, ""},
		{"POST", "/pools/lab/token", `{"seconds": 60}`, `{"seconds": 61}`},
		{"POST", "/tokens", `{"label": "one"}`, `{"label": "two"}`},
		{"POST", "/webhooks", `{"url": "http://127.0.0.1:9/x"}`, `{"url": "http://127.0.0.1:9/y"}`},
		{"PUT", "/users/ann/roles", `{"project": "p", "role": "viewer"}`, `{"project": "p", "role": "admin"}`},
		{"PUT", "/projects/p/quota", `{"slots": 2}`, `{"slots": 3}`},
		{"PUT", "/projects/p/secrets/S", `{"value": "aGk="}`, `{"value": "aG8="}`},
		{"PATCH", "/jobs/1/tags", `{"set": {"a": "b"}}`, `{"set": {"a": "c"}}`},
		{"POST", "/jobs/1/priority", `{"priority": 60}`, `{"priority": 61}`},
		{"POST", "/jobs/1/resume", "", ""},
		{"DELETE", "/projects/p/secrets/S", "", ""},
		{"DELETE", "/pools/lab", "", ""},
		{"POST", "/jobs/1/cancel", "", ""},
	}
	first := map[string]string{}
	for _, c := range calls {
		status, replayed, text := s.keyed(c.method+c.path, c.method, c.path, c.body)
		if status >= 400 || replayed {
			t.Errorf("%s %s: %d %s, replayed %v", c.method, c.path, status, text, replayed)
		}
		first[c.method+c.path] = text
	}
	s.answeredInNoFile(first["POST/tokens"], first["POST/pools/lab/token"])
	s.kill()
	s.up()
	for _, c := range calls {
		status, replayed, text := s.keyed(c.method+c.path, c.method, c.path, c.body)
		submits := c.path == "/jobs"
		if status >= 400 || replayed == submits || text != first[c.method+c.path] && !submits {
			t.Errorf("%s %s again: %d %s, replayed %v, and not %s", c.method, c.path, status, text, replayed, first[c.method+c.path])
		}
		if c.other == "" {
			continue
		}
		var f struct{ Detail string }
		status, _, text = s.keyed(c.method+c.path, c.method, c.path, c.other)
		if err := json.Unmarshal([]byte(text), &f); err != nil || status != 422 || !strings.Contains(f.Detail, "or send the same again") {
			t.Errorf("%s %s with another body: %d %s", c.method, c.path, status, text)
		}
	}
	if all, err := s.client.Jobs(t.Context(), nil, "", "", 10); err != nil || len(all.Jobs) != 2 {
		t.Errorf("there are %d jobs, %v", len(all.Jobs), err)
	}
	tokens, err := s.client.Passes(t.Context())
	made := 0
	for _, x := range tokens {
		if x.Label == "one" {
			made++
		}
	}
	if err != nil || made != 1 {
		t.Errorf("there are the tokens %+v, %v", tokens, err)
	}
}

// answeredInNoFile: the tokens of these answers, which are kept to be answered again, stand in no file as they are.
func (s *site) answeredInNoFile(answers ...string) {
	s.t.Helper()
	for _, text := range answers {
		var a struct{ Token string }
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			s.t.Fatal(err)
		}
		s.inNoFile(a.Token)
	}
}
