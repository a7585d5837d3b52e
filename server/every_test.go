package server

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hora/server/client"
)

// write is a call that changes something, and another body for the same call.
type write struct{ name, method, path, body, other string }

// writes are all calls that take a key, each of which comes well after those before it.
func writes(hook, hash string, job, pass int64) []write {
	at := fmt.Sprintf("/jobs/%d", job)
	return []write{
		{"submit", "POST", "/jobs", `{"spec": {"command": ["true"]}, "held": true}`, `{"spec": {"command": ["false"]}, "held": true}`},
		{"join-token", "POST", "/pools/lab/token", `{"seconds": 60}`, `{"seconds": 61}`},
		{"new-token", "POST", "/tokens", `{"label": "one"}`, `{"label": "two"}`},
		{"revoke-token", "DELETE", fmt.Sprintf("/tokens/%d", pass), "", ""},
		{"add-webhook", "POST", "/webhooks", `{"url": "` + hook + `"}`, `{"url": "` + hook + `/y"}`},
		{"test-webhook", "POST", "/webhooks/1/test", "", ""},
		{"remove-webhook", "DELETE", "/webhooks/1", "", ""},
		{"set-role", "PUT", "/users/ann/roles", `{"project": "p", "role": "viewer"}`, `{"project": "p", "role": "admin"}`},
		{"drop-role", "DELETE", "/users/ann/roles/p", "", ""},
		{"remove-user", "DELETE", "/users/ann", "", ""},
		{"quota", "PUT", "/projects/p/quota", `{"slots": 2}`, `{"slots": 3}`},
		{"set-retention", "PUT", "/retention", `{"logs": 3600}`, `{"logs": 7200}`},
		{"set-project-retention", "PUT", "/projects/p/retention", `{"logs": 3600}`, `{"logs": 7200}`},
		{"set-secret", "PUT", "/projects/p/secrets/S", `{"value": "aGk="}`, `{"value": "aG8="}`},
		{"remove-secret", "DELETE", "/projects/p/secrets/S", "", ""},
		{"tag", "PATCH", at + "/tags", `{"set": {"a": "b"}}`, `{"set": {"a": "c"}}`},
		{"report", "POST", at + "/metrics", `{"points": [{"name": "x", "value": 1}]}`, `{"points": [{"name": "x", "value": 2}]}`},
		{"attach", "POST", at + "/artifacts", `{"path": "a", "hash": "` + hash + `"}`, `{"path": "b", "hash": "` + hash + `"}`},
		{"priority", "POST", at + "/priority", `{"priority": 60}`, `{"priority": 61}`},
		{"pause", "POST", at + "/pause", "", ""},
		{"resume", "POST", at + "/resume", "", ""},
		{"cancel", "POST", at + "/cancel", "", ""},
		{"revoke-node", "DELETE", "/nodes/one/token", "", ""},
		{"add-pool", "PUT", "/pools/lab", `{"name": "lab", "provider": "static"}`, `{"name": "lab", "provider": "static", "idle": 5}`},
		{"remove-pool", "DELETE", "/pools/lab", "", ""},
		{"down", "POST", "/down", `{}`, `{"now": true}`},
	}
}

// keyedCall makes a call with a key.
func (c *callSite) keyedCall(key, method, path, body string) (status int, replayed bool, text string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer owner"}, keyHeader: {key}}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return a.StatusCode, a.Header.Get("Idempotent-Replayed") != "", string(b)
}

// TestEveryDescribedWriteIsMadeOnce: each call that takes a key by the server's own description answers the same when
// it is sent again, to the next server too, and does nothing then; another body with the key is refused.
func TestEveryDescribedWriteIsMadeOnce(t *testing.T) {
	pings := 0
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { pings++ }))
	defer hook.Close()
	c := newCallSite(t, nil)
	ctx := t.Context()
	if _, err := c.client.AddPool(ctx, client.Pool{Name: "lab", Provider: "static"}); err != nil {
		t.Fatal(err)
	}
	j, err := c.client.JoinToken(ctx, "lab", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.comes("lab", "one", j.Token); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("x"))
	hash := hex.EncodeToString(sum[:])
	if err := c.client.Put(ctx, hash, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	pass, err := c.client.NewPass(ctx, client.NewPass{})
	if err != nil {
		t.Fatal(err)
	}
	all := writes(hook.URL, hash, c.submit(), pass.ID)
	calls, _ := c.description()
	listed := map[string]bool{}
	for _, w := range all {
		listed[w.name] = true
	}
	for _, methods := range calls {
		for method, op := range methods {
			for _, p := range op.Parameters {
				if p.Name == keyHeader && !listed[op.OperationID] {
					t.Errorf("%s takes a key, and is not tried here", op.OperationID)
				}
			}
			if method != "get" && !listed[op.OperationID] && op.OperationID != "put-blob" && op.OperationID != "missing-blobs" {
				t.Errorf("%s changes something, and takes no key", op.OperationID)
			}
		}
	}
	first := map[string]string{}
	for _, w := range all {
		status, replayed, text := c.keyedCall(w.name, w.method, w.path, w.body)
		if status >= 400 || replayed {
			t.Errorf("%s: %d %s, replayed %v", w.name, status, text, replayed)
		}
		first[w.name] = fmt.Sprint(status, text)
	}
	<-c.down
	was, next := records(t, c), c
	for _, restarted := range []bool{false, true} {
		if restarted {
			c.close()
			next = newCallSiteIn(t, c.dir, nil)
		}
		for _, w := range all {
			status, replayed, text := next.keyedCall(w.name, w.method, w.path, w.body)
			submits := w.name == "submit" // which answers how its job is now
			if status >= 400 || replayed == submits || !submits && fmt.Sprint(status, text) != first[w.name] {
				t.Errorf("%s again, restarted %v: %d %s, replayed %v, and not %s", w.name, restarted, status, text, replayed, first[w.name])
			}
			if w.other == "" {
				continue
			}
			status, _, text = next.keyedCall(w.name, w.method, w.path, w.other)
			if status != 422 || !strings.Contains(text, "or send the same again") {
				t.Errorf("%s with another body: %d %s", w.name, status, text)
			}
		}
	}
	if is := records(t, next); is != was {
		t.Errorf("there were %s, and are %s", was, is)
	}
	if pings != 1 || len(c.down)+len(next.down) != 0 {
		t.Errorf("%d pings came, and the server was ended %d times more", pings, len(c.down)+len(next.down))
	}
}

// records says how many jobs, tokens and webhooks there are, and what else was written down of calls but submissions.
func records(t *testing.T, c *callSite) string {
	t.Helper()
	ctx := t.Context()
	jobs, err := c.client.Jobs(ctx, nil, "", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	passes, err := c.client.Passes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	points, err := c.client.Metrics(ctx, 1, "x", 0)
	if err != nil {
		t.Fatal(err)
	}
	deeds, err := c.st.Deeds(ctx, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, d := range deeds {
		if d.What != "submit" {
			n++
		}
	}
	return fmt.Sprintf("%d jobs, %d tokens, %+v and %d records", len(jobs.Jobs), len(passes), points, n)
}
