package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"hora/server/client"
)

// call sends a request as it stands, with more headers, and returns what came.
func (s *site) call(method, path, body string, header ...string) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.client.Token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 { // a name and its value
		req.Header.Set(header[i], header[i+1])
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return r, string(b)
}

// TestTheDescriptionHolds: what schemathesis (tools/schemathesis.sh) has found is refused as the server's own
// description says, or taken as it says, and each refusal is a sentence.
func TestTheDescriptionHolds(t *testing.T) {
	s := newSite(t, 1)
	held := shell(1, "true")
	held.Held = true
	s.submit(held)
	hash := strings.Repeat("0", 64)
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/api/v1/jobs?cursor=0x1", "", 422, `cursor: "0x1" is not a cursor: give next of the answer before`},
		{"GET", "/api/v1/jobs?cursor=", "", 422, "cursor is empty: leave it out"},
		{"GET", "/api/v1/jobs/1/logs?cursor=+1.2", "", 422, "is not a cursor: give next"},
		{"GET", "/api/v1/jobs/1/logs?since=", "", 422, "since is empty"},
		{"GET", "/api/v1/jobs/1/metrics?first=1&first=2", "", 422, "first is given 2 times: give it once"},
		{"POST", "/api/v1/blobs/missing", `{"hashes": ["abc"]}`, 422, `hashes[0]: "abc" is not a hash: give the 64 digits`},
		{"POST", "/api/v1/blobs/missing", `{"hashes": null}`, 422, "hashes is null: leave it out, or give it a value"},
		{"POST", "/api/v1/blobs/missing", `{"hashes": ["` + hash + `"]}`, 200, hash},
		{"PUT", "/api/v1/blobs/missing", "x", 405, "PUT is not for /api/v1/blobs/missing, which takes POST"},
		{"OPTIONS", "/api/v1/blobs/missing", "", 405, "which takes POST"},
		{"DELETE", "/api/v1/about", "", 405, "which takes GET, HEAD"},
		{"GET", "/api/v1/nothing", "", 404, "there is no call /api/v1/nothing"},
		{"POST", "/api/v1/jobs/1/priority", `{"priority": 71.0}`, 200, `"priority":71`},
		{"POST", "/api/v1/jobs/1/priority", `{"priority": 6.1e1}`, 200, `"priority":61`},
		{"POST", "/api/v1/jobs/1/priority", `{"priority": 71.5}`, 422, "priority: 71.5 is no whole number: give one from 0 to 100"},
		{"POST", "/api/v1/jobs", `{"spec": {"command": ["true"], "np": 1.0}, "held": true, "memory": 1e30}`, 422, "is too large: give a number that is nearer to 0"},
		{"POST", "/api/v1/jobs", `{"spec": {"command": ["true"], "np": 1.0}, "held": true, "retries": 2.0}`, 201, `"retries":2`},
		{"POST", "/api/v1/jobs", `{"spec": {"command": ["true"]}, "held": null}`, 422, "held is null"},
		{"POST", "/api/v1/jobs", `{"spec": {"command": ["true"]}, "environment": {"pip": [null]}}`, 422, "environment.pip[0] is null"},
		{"POST", "/api/v1/jobs", `{"spec": `, 400, "it is no JSON"},
		{"POST", "/api/v1/jobs", `{"spec": {"command": ["true"]}, "code": "` + hash + `"}`, 409, "send its files first"},
		{"PATCH", "/api/v1/jobs/1/tags", `{"set": null}`, 422, "set is null"},
		{"PATCH", "/api/v1/jobs/1/tags", `{"remove": null}`, 422, "remove is null"},
		{"PATCH", "/api/v1/jobs/1/tags", `{"set": {"a": null}}`, 422, "set.a is null"},
		{"PUT", "/api/v1/projects/p/quota", `{"slots": null}`, 422, "slots is null"},
		{"PUT", "/api/v1/pools/..%2f..%2fx", `{"name": "x", "provider": "static"}`, 422, "a pool's name"},
	} {
		r, text := s.call(c.method, c.path, c.body)
		var f client.Fault
		if r.StatusCode >= 400 {
			if err := json.Unmarshal([]byte(text), &f); err != nil || f.Status != r.StatusCode ||
				!strings.HasPrefix(r.Header.Get("Content-Type"), "application/problem+json") {
				t.Errorf("%s %s %s: the refusal is no problem+json: %q, %v", c.method, c.path, c.body, text, err)
			}
			text = f.Detail
		}
		if r.StatusCode != c.status || !strings.Contains(text, c.says) || strings.Contains(text, "Go ") {
			t.Errorf("%s %s %s: %d %q, want %d %q", c.method, c.path, c.body, r.StatusCode, text, c.status, c.says)
		}
		if r.StatusCode == 405 && r.Header.Get("Allow") == "" {
			t.Errorf("%s %s: 405 without Allow", c.method, c.path)
		}
	}
	if missing, err := s.client.Missing(context.Background(), nil); err != nil || len(missing) != 0 {
		t.Errorf("of no contents %v are missing: %v", missing, err)
	}
}
