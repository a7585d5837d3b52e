package server

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
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
	a, _ := c.browse("POST", "/sign-in", c.url, url.Values{"token": {" owner "}})
	if a.StatusCode != 200 || len(a.Cookies()) != 1 {
		t.Fatalf("the token: %s %v", a.Status, a.Cookies())
	}
	if a, text := c.browse("GET", "/", "", nil, a.Cookies()...); a.StatusCode != 200 || !strings.Contains(text, "sign out") {
		t.Errorf("with the session: %s", a.Status)
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
