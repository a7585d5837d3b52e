package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"hora/job"
	"hora/server/client"
)

// TestPages reads every page as a browser without a script does, presses its buttons, and tries to press them from
// elsewhere.
func TestPages(t *testing.T) {
	s := newSite(t, 1)
	running := s.submit(shell(1, "echo '<b>bold</b>'; while [ ! -f outputs/go ]; do sleep 0.05; done"))
	s.until(running.ID, in(job.Running))
	waiting := s.submit(shell(1, "true"))
	s.until(waiting.ID, func(j client.Job) bool { return j.Reason != nil && j.Reason.Code == "slots" })
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar}
	get := func(path string, want int) string {
		t.Helper()
		r, err := browser.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		if r.StatusCode != want {
			t.Fatalf("%s: %s, want %d: %s", path, r.Status, want, b)
		}
		policy := r.Header.Get("Content-Security-Policy")
		strict := strings.HasPrefix(policy, "default-src 'none'") && !strings.Contains(policy, "unsafe")
		if !strict || strings.Contains(policy, "*") {
			t.Errorf("%s comes with the policy %q", path, policy)
		}
		return string(b)
	}
	s.pagesOfNobody(get)
	get("/?token="+s.client.Token, 200)
	queue := get("/", 200)
	for _, text := range []string{"first in pool default: needs 1 slot, none is free", "Running <small>1</small>", `href="/jobs/1"`} {
		if !strings.Contains(queue, text) {
			t.Errorf("the queue's page has no %q:\n%s", text, queue)
		}
	}
	page := get("/jobs/1", 200)
	for _, text := range []string{"&lt;b&gt;bold", "it was submitted", `action="/jobs/1/cancel"`} {
		if !strings.Contains(page, text) {
			t.Errorf("the job's page has no %q:\n%s", text, page)
		}
	}
	if regexp.MustCompile(`(?i)<script[^>]*>[^<]|\son[a-z]+=|style="`).MatchString(queue + page) {
		t.Error("a page has a script or a style of its own, which its policy forbids")
	}
	get("/nodes", 200)
	for path, text := range map[string]string{
		"/pools": "1 run, 1 wait", "/projects": "<td>default</td><td>1</td><td>1</td>", "/compare?job=1&job=2": "<td>[&#34;sh&#34;", "/jobs/1": "1 slot in pool default", "/jobs/1/code/": "Job 1 ",
	} {
		if says := get(path, 200); !strings.Contains(says, text) {
			t.Errorf("%s has no %q:\n%s", path, text, says)
		}
	}
	for query, text := range map[string]string{"?job=1": "1 job was ticked: go back and tick 2 to 50", "": "no job was ticked"} {
		if says := get("/compare"+query, 422); !strings.Contains(says, text) {
			t.Error(says)
		}
	}
	get("/compare?job=1&job=99", 404)
	get("/compare?job=1&job=x", 422)
	get("/static/style.css", 200)
	if says := get("/jobs/99", 404); !strings.Contains(says, "there is no job 99") {
		t.Error(says)
	}
	s.pagesThatAreNot(get)
	press := func(path, origin string) int { t.Helper(); return s.press(browser, path, origin) }
	for _, origin := range []string{"", "http://example.org", "null"} {
		if got := press(fmt.Sprintf("/jobs/%d/cancel", running.ID), origin); got != 403 {
			t.Errorf("a form from %q is answered %d", origin, got)
		}
	}
	for path, want := range map[string]int{"/jobs/abc/cancel": 404, "/jobs/0/pause": 404, "/jobs/1/dance": 404, "/nodes": 404} {
		if got := press(path, s.url); got != want {
			t.Errorf("our own form to %s is answered %d", path, got)
		}
	}
	if got := press(fmt.Sprintf("/jobs/%d/cancel", running.ID), s.url); got != 200 {
		t.Errorf("our own form is answered %d", got)
	}
	s.until(running.ID, in(job.Cancelled))
	s.until(waiting.ID, in(job.Finished))
}

// pagesOfNobody show who is not let in where a token goes.
func (s *site) pagesOfNobody(get func(path string, want int) string) {
	s.t.Helper()
	for _, path := range []string{"/", "/?token=wrong", "/jobs/1", "/audit"} {
		if says := get(path, 401); !strings.Contains(says, "<h1>Sign in") || !strings.Contains(says, `action="/sign-in"`) {
			s.t.Errorf("%s shows who is not let in %s", path, says)
		}
	}
}

// pagesThatAreNot are refused with a sentence.
func (s *site) pagesThatAreNot(get func(path string, want int) string) {
	s.t.Helper()
	for path, want := range map[string]int{
		"/jobs/abc": 404, "/jobs/0": 404, "/jobs/99999999999999999999": 404, "/jobs/abc/code/x": 404, "/nothing": 404,
		"/?below=abc": 422, "/audit?below=-1": 422, "/compare?job=1&job=0": 422,
	} {
		if says := get(path, want); !strings.Contains(says, "That did not work") {
			s.t.Errorf("%s shows %s", path, says)
		}
	}
}

// press sends a form as a browser does.
func (s *site) press(browser *http.Client, path, origin string) int {
	t := s.t
	t.Helper()
	req, err := http.NewRequest("POST", s.url+path, strings.NewReader(url.Values{}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if origin != "" {
		req.Header.Set("Origin", origin)
	}
	r, err := browser.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	return r.StatusCode
}
