package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"hora/job"
	"hora/server/client"
)

// Who calls, in the order of the table's columns: of project vision its viewer, member and administrator, and the own
// token of a job there; a member of another project; an administrator of all; and who has no token.
var callers = []string{"viewer", "member", "admin", "job", "other", "all", "nobody"}

// apiCall is one of the calls, with something to send that is right, and who is let in.
type apiCall struct {
	path, body string
	who        string
}

const (
	anyone    = "viewer member admin job other all"
	people    = "viewer member admin other all"
	readers   = "viewer member admin job all"
	writers   = "member admin job all"
	members   = "member admin all"
	admins    = "admin all"
	everybody = "all" // of their administrators
)

const noHash = "0000000000000000000000000000000000000000000000000000000000000000"

// apiCalls are all calls by name. {job} is a job of project vision.
var apiCalls = map[string]apiCall{
	"about":                 {path: "/about", who: anyone},
	"add-pool":              {"/pools/lab", `{"name": "lab", "provider": "static"}`, everybody},
	"add-webhook":           {"/webhooks", `{"url": "http://127.0.0.1:1/x"}`, everybody},
	"artifacts":             {path: "/jobs/{job}/artifacts", who: readers},
	"attach":                {"/jobs/{job}/artifacts", `{"path": "a", "hash": "` + noHash + `"}`, writers},
	"audit":                 {path: "/audit", who: everybody},
	"blob":                  {path: "/blobs/" + noHash, who: anyone},
	"cancel":                {path: "/jobs/{job}/cancel", who: members},
	"check-audit":           {path: "/audit/check", who: everybody},
	"down":                  {"/down", `{}`, everybody},
	"drop-role":             {path: "/users/someone/roles/vision", who: admins},
	"follow":                {path: "/jobs/{job}/follow", who: readers},
	"happenings":            {path: "/jobs/{job}/happenings", who: readers},
	"job":                   {path: "/jobs/{job}", who: readers},
	"jobs":                  {path: "/jobs", who: anyone},
	"join-token":            {"/pools/lab/token", `{"seconds": 60}`, everybody},
	"logs":                  {path: "/jobs/{job}/logs", who: readers},
	"me":                    {path: "/me", who: anyone},
	"metrics":               {path: "/jobs/{job}/metrics", who: readers},
	"missing-blobs":         {"/blobs/missing", `{"hashes": []}`, "member admin job other all"},
	"new-token":             {"/tokens", `{}`, people},
	"node-tokens":           {path: "/nodes/tokens", who: everybody},
	"nodes":                 {path: "/nodes", who: anyone},
	"pause":                 {path: "/jobs/{job}/pause", who: members},
	"pools":                 {path: "/pools", who: anyone},
	"priority":              {"/jobs/{job}/priority", `{"priority": 60}`, members},
	"projects":              {path: "/projects", who: anyone},
	"put-blob":              {"/blobs/" + noHash, "x", "member admin job other all"},
	"quota":                 {"/projects/vision/quota", `{"slots": 1}`, everybody},
	"remove-pool":           {path: "/pools/nowhere", who: everybody},
	"remove-secret":         {path: "/projects/vision/secrets/KEY", who: members},
	"remove-user":           {path: "/users/someone", who: everybody},
	"remove-webhook":        {path: "/webhooks/99", who: everybody},
	"report":                {"/jobs/{job}/metrics", `{"points": [{"name": "x", "value": 1}]}`, writers},
	"resume":                {path: "/jobs/{job}/resume", who: members},
	"retentions":            {path: "/retention", who: anyone},
	"revoke-node":           {path: "/nodes/one/token", who: everybody},
	"revoke-token":          {path: "/tokens/99999", who: people},
	"secrets":               {path: "/projects/vision/secrets", who: members},
	"set-project-retention": {"/projects/vision/retention", `{}`, admins},
	"set-retention":         {"/retention", `{}`, everybody},
	"set-role":              {"/users/someone/roles", `{"project": "vision", "role": "viewer"}`, admins},
	"set-secret":            {"/projects/vision/secrets/KEY", `{"value": "aGk="}`, members},
	"submit":                {"/jobs", `{"spec": {"command": ["true"]}, "project": "vision", "held": true}`, members},
	"tag":                   {"/jobs/{job}/tags", `{"set": {"a": "b"}}`, writers},
	"test-webhook":          {path: "/webhooks/99/test", who: everybody},
	"tokens":                {path: "/tokens", who: people},
	"users":                 {path: "/users", who: admins},
	"webhooks":              {path: "/webhooks", who: everybody},
}

// TestWhoMayMakeEachCall: each call of the server's own description, by each kind of caller, is let in or refused as
// the table says; one that the table has not is told.
func TestWhoMayMakeEachCall(t *testing.T) {
	c := newCallSite(t, nil)
	tokens, id := c.callers()
	var api struct {
		Paths map[string]map[string]struct {
			OperationID string
			RequestBody struct {
				Content map[string]any
			}
		}
	}
	_, text := c.send(t.Context(), "owner", "GET", "/openapi.json", "", "")
	if err := json.Unmarshal([]byte(text), &api); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for path, methods := range api.Paths {
		for method, op := range methods {
			is, known := apiCalls[op.OperationID]
			if found[op.OperationID] = true; !known {
				t.Errorf("%s %s (%s) is not in the table of who may", method, path, op.OperationID)
				continue
			}
			kind := "application/json"
			if _, binary := op.RequestBody.Content["application/octet-stream"]; binary {
				kind = "application/octet-stream"
			}
			for _, who := range callers {
				at := strings.ReplaceAll(is.path, "{job}", fmt.Sprint(id))
				status, text := c.send(t.Context(), tokens[who], strings.ToUpper(method), at, is.body, kind)
				want := strings.Contains(" "+is.who+" ", " "+who+" ")
				right := false
				switch status {
				case http.StatusUnauthorized:
					right = who == "nobody" && !want
				case http.StatusForbidden:
					right = who != "nobody" && !want
				default:
					right = want && status < 500 && status != http.StatusMethodNotAllowed
				}
				if !right {
					t.Errorf("%s by %s: %d %s; is it to be let in: %v", op.OperationID, who, status, text, want)
				}
			}
		}
	}
	for name := range apiCalls {
		if !found[name] {
			t.Errorf("there is no call %s, and the table has it", name)
		}
	}
}

// callers makes a job of project vision, and a token for each of those who call.
func (c *callSite) callers() (tokens map[string]string, id int64) {
	c.t.Helper()
	ctx := c.t.Context()
	d := client.Document{Spec: job.Spec{Command: []string{"true"}}, Project: "vision", Held: true}
	j, err := c.client.Submit(ctx, d, client.Key())
	if err != nil {
		c.t.Fatal(err)
	}
	tokens = map[string]string{}
	for user, role := range map[string][2]string{
		"viewer": {"vision", "viewer"}, "member": {"vision", "member"}, "admin": {"vision", "admin"},
		"other": {"speech", "member"}, "all": {"*", "admin"},
	} {
		if _, err := c.client.SetRole(ctx, user, role[0], role[1]); err != nil {
			c.t.Fatal(err)
		}
		p, err := c.client.NewPass(ctx, client.NewPass{User: user})
		if err != nil {
			c.t.Fatal(err)
		}
		tokens[user] = p.Token
	}
	p, err := client.New(c.url, tokens["member"]).NewPass(ctx, client.NewPass{Job: j.ID})
	if err != nil {
		c.t.Fatal(err)
	}
	tokens["job"] = p.Token
	return tokens, j.ID
}

// send makes a call, and answers its status and the beginning of what came; of a stream, that it began.
func (c *callSite) send(ctx context.Context, token, method, path, body, kind string) (int, string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	var sent io.Reader
	if body != "" {
		sent = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url+"/api/v1"+path, sent)
	if err != nil {
		c.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", kind)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer a.Body.Close()
	if strings.HasPrefix(a.Header.Get("Content-Type"), "text/event-stream") {
		return a.StatusCode, ""
	}
	b, err := io.ReadAll(a.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return a.StatusCode, string(b)
}
