package server

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"hora/server/client"
)

// browse makes a call as a browser does, with a form where one is given.
func (c *callSite) browse(
	method, path, origin string, form url.Values, cookies ...*http.Cookie,
) (*http.Response, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	for _, x := range cookies {
		r.AddCookie(x)
	}
	a, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return a, string(b)
}

// TestABrowserThatIsNotLetIn sees a page with where its token goes, and is let in by that; a program is told in JSON.
func TestABrowserThatIsNotLetIn(t *testing.T) {
	c := newCallSite(t, nil)
	for _, path := range []string{"/", "/jobs/1", "/nothing", "/?token=wrong"} {
		a, text := c.browse("GET", path, "", nil)
		if a.StatusCode != 401 || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") || !strings.Contains(text, `action="/sign-in"`) {
			t.Errorf("%s: %s %s", path, a.Status, text)
		}
	}
	if a, text := c.browse("GET", "/api/v1/jobs", "", nil); a.StatusCode != 401 || !strings.HasPrefix(text, "{") {
		t.Errorf("a program: %s %s", a.Status, text)
	}
	wrong, _ := c.browse("POST", "/sign-in", c.url, url.Values{"token": {"wrong"}})
	foreign, _ := c.browse("POST", "/sign-in", "http://evil.example", url.Values{"token": {"owner"}})
	if wrong.StatusCode != 401 || foreign.StatusCode != 403 || len(wrong.Cookies())+len(foreign.Cookies()) > 0 {
		t.Errorf("a wrong token: %s; one from elsewhere: %s", wrong.Status, foreign.Status)
	}
	for path, says := range map[string]string{
		"/jobs/45": `name="to" value="/jobs/45"`, "/": "a token lets you in", "/?token=wrong": "That is no token of this server", "/sign-in": `name="to" value="/"`,
	} {
		_, text := c.browse("GET", path, "", nil)
		styled := strings.Contains(text, "/static/style.css")
		if !strings.Contains(text, says) || strings.Contains(text, "HORA_TOKEN") || !styled {
			t.Errorf("%s lacks %q: %s", path, says, text)
		}
	}
	if _, text := c.browse("GET", "/", "", nil, &http.Cookie{Name: cookieName, Value: "old"}); !strings.Contains(text, "signed in no more") {
		t.Errorf("a session that has ended: %s", text)
	}
	if a, text := c.browse("GET", "/static/style.css", "", nil); a.StatusCode != 200 || !strings.Contains(text, "prefers-color-scheme") {
		t.Errorf("the style of that page: %s", a.Status)
	}
	if a, _ := c.browse("GET", "/favicon.ico", "", nil); a.StatusCode != 204 {
		t.Errorf("the icon: %s", a.Status)
	}
	if a, _ := c.browse("GET", "/static/live.js", "", nil); a.StatusCode != 401 {
		t.Errorf("the script: %s", a.Status)
	}
	for to, goes := range map[string]string{
		"/jobs/45": "/jobs/45", "/compare?job=1&job=2": "/compare?job=1&amp;job=2", "": "/", "//evil.example/": "/", "/\\evil.example": "/",
		"https://evil.example/": "/", "javascript:alert(1)": "/", "/sign-in": "/", "/\t/evil.example": "/", `/"><b>`: "/%22%3E%3Cb%3E",
		"/api/v1/jobs": "/", "jobs/45": "/",
	} {
		a, text := c.browse("POST", "/sign-in", c.url, url.Values{"token": {"owner"}, "to": {to}})
		if a.StatusCode != 200 || !strings.Contains(text, `content="0; url=`+goes+`"`) {
			t.Errorf("asked for %q: %s %s", to, a.Status, text)
		}
	}
	_, text := c.browse("POST", "/sign-in", c.url, url.Values{"token": {"wrong"}, "to": {"/jobs/45"}})
	if !strings.Contains(text, `value="/jobs/45"`) || !strings.Contains(text, "That is no token") {
		t.Errorf("after a wrong token: %s", text)
	}
	a, _ := c.browse("POST", "/sign-in", c.url, url.Values{"token": {" owner "}})
	if a.StatusCode != 200 || len(a.Cookies()) != 1 {
		t.Fatalf("the token: %s %v", a.Status, a.Cookies())
	}
	if a, text := c.browse("GET", "/", "", nil, a.Cookies()...); a.StatusCode != 200 || !strings.Contains(text, "sign out") {
		t.Errorf("with the session: %s", a.Status)
	}
	for path, to := range map[string]string{
		"/sign-in": "/", "/jobs": "/", "/machines": "/nodes", "/pools/lab": "/pools#lab", "/nodes/one": "/nodes#one",
	} {
		if a, _ := c.browse("GET", path, "", nil, a.Cookies()...); a.StatusCode != 303 || a.Header.Get("Location") != to {
			t.Errorf("%s: %s to %q", path, a.Status, a.Header.Get("Location"))
		}
	}
	_, text = c.browse("POST", "/sign-out", c.url, url.Values{}, a.Cookies()...)
	if !strings.Contains(text, "<h1>Signed out") || !strings.Contains(text, `action="/sign-in"`) {
		t.Errorf("signed out: %s", text)
	}
}

// TestPagesOfWhoMayNot: they have no button, and no way, to what would be refused.
func TestPagesOfWhoMayNot(t *testing.T) {
	c := newCallSite(t, nil)
	id := c.submit()
	for role, may := range map[string]struct{ orders, audit bool }{
		"viewer": {false, false}, "member": {true, false}, "admin": {true, true},
	} {
		p, err := c.client.NewPass(t.Context(), client.NewPass{Role: role})
		if err != nil {
			t.Fatal(err)
		}
		in, _ := c.browse("GET", "/?token="+p.Token, "", nil)
		_, page := c.browse("GET", fmt.Sprintf("/jobs/%d", id), "", nil, in.Cookies()...)
		orders := strings.Contains(page, fmt.Sprintf(`action="/jobs/%d/`, id))
		if orders != may.orders || !strings.Contains(page, "sign out") {
			t.Errorf("a %s has buttons: %v: %s", role, orders, page)
		}
		for _, path := range []string{"/", "/pools", "/jobs/99"} {
			if _, page := c.browse("GET", path, "", nil, in.Cookies()...); strings.Contains(page, `href="/audit"`) != may.audit {
				t.Errorf("a %s at %s: %s", role, path, page)
			}
		}
	}
}

// TestAFormFromElsewhere is refused for where it comes from, whoever is signed in, before anybody asks who that is.
func TestAFormFromElsewhere(t *testing.T) {
	c := newCallSite(t, nil)
	id := c.submit()
	in, _ := c.browse("GET", "/?token=owner", "", nil)
	for _, cookies := range [][]*http.Cookie{nil, in.Cookies(), {{Name: cookieName, Value: "old"}}} {
		for _, path := range []string{"/jobs/1/cancel", "/sign-out", "/api/v1/jobs/1/cancel"} {
			a, text := c.browse("POST", path, "http://evil.example", url.Values{}, cookies...)
			if a.StatusCode != http.StatusForbidden || !strings.Contains(text, "a page of http://evil.example has sent this") || !strings.Contains(text, "press its button") {
				t.Errorf("%s with %d cookies: %s %s", path, len(cookies), a.Status, text)
			}
		}
	}
	if j, err := c.client.Job(t.Context(), id); err != nil || j.State.Ended() {
		t.Errorf("%+v, %v", j, err)
	}
}
