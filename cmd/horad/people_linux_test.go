package main

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
)

// pass makes a token and a client that has it.
func (s *site) pass(by *client.Client, n client.NewPass) (*client.Client, client.Pass) {
	s.t.Helper()
	p, err := by.NewPass(context.Background(), n)
	if err != nil {
		s.t.Fatal(err)
	}
	return client.New(s.url, p.Token), p
}

func (s *site) role(user, project, role string) {
	s.t.Helper()
	if _, err := s.client.SetRole(context.Background(), user, project, role); err != nil {
		s.t.Fatal(err)
	}
}

// refused wants a status and words.
func refused(t *testing.T, what string, err error, status int, says string) {
	t.Helper()
	var f *client.Fault
	if !errors.As(err, &f) || f.Status != status || !strings.Contains(f.Detail, says) {
		t.Errorf("%s: %v, and not %d with %q", what, err, status, says)
	}
}

func of(project string) client.Document {
	d := shell(1, "true")
	d.Project, d.Held = project, true
	return d
}

// TestRoles: what each role lets somebody do, and what is refused, in one sentence.
func TestRoles(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, 1)
	s.role("vera", "vision", "viewer")
	s.role("max", "vision", "member")
	s.role("ada", "vision", "admin")
	s.role("all", "*", "viewer")
	vera, _ := s.pass(s.client, client.NewPass{User: "vera"})
	max, _ := s.pass(s.client, client.NewPass{User: "max"})
	ada, _ := s.pass(s.client, client.NewPass{User: "ada"})
	all, _ := s.pass(s.client, client.NewPass{User: "all"})
	max.User = "somebody else" // a claim
	j, err := max.Submit(ctx, of("vision"), "key")
	if err != nil || j.User != "max" {
		t.Fatalf("%+v, %v", j, err)
	}
	other := s.submit(of("speech"))
	_, err = max.Submit(ctx, of("speech"), "")
	refused(t, "submit elsewhere", err, 403, "this asks for the role member in project speech, and max has no role there: an administrator gives it with hora user add")
	_, err = max.Submit(ctx, of(""), "")
	refused(t, "submit to the default project", err, 403, "is of project default, where max is no member: write --project vision")
	_, err = vera.Submit(ctx, of("vision"), "")
	refused(t, "submit as a viewer", err, 403, "vera is member in no project")
	for _, c := range []*client.Client{vera, max, ada, all} {
		if _, err := c.Job(ctx, j.ID); err != nil {
			t.Errorf("job: %v", err)
		}
	}
	_, err = vera.Do(ctx, j.ID, "cancel")
	refused(t, "cancel as a viewer", err, 403, "the role member in project vision, and vera has the role viewer there")
	_, err = max.Job(ctx, other.ID)
	refused(t, "another project's job", err, 403, "the role viewer in project speech")
	for _, call := range []func() error{
		func() error { _, err := max.Happenings(ctx, other.ID); return err },
		func() error { _, err := max.Metrics(ctx, other.ID, "", 0); return err },
		func() error { _, err := max.Artifacts(ctx, other.ID); return err },
		func() error { _, err := max.Do(ctx, other.ID, "resume"); return err },
		func() error { _, err := max.Priority(ctx, other.ID, 99); return err },
		func() error { _, err := max.Jobs(ctx, nil, "speech", "", 10); return err },
	} {
		refused(t, "another project's", call(), 403, "in project speech")
	}
	_, err = max.Submit(ctx, of("vision"), "theirs")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Submit(ctx, of("speech"), "of speech"); err != nil {
		t.Fatal(err)
	}
	_, err = max.Submit(ctx, of("vision"), "of speech")
	refused(t, "a key of another project's job", err, 422, "take a new one")
	p, err := max.Jobs(ctx, nil, "", "", 10)
	if err != nil || len(p.Jobs) != 2 {
		t.Errorf("%+v, %v", p.Jobs, err)
	}
	if p, err = all.Jobs(ctx, nil, "", "", 10); err != nil || len(p.Jobs) != 4 {
		t.Errorf("%+v, %v", p.Jobs, err)
	}
	if _, err := max.Do(ctx, j.ID, "cancel"); err != nil {
		t.Error(err)
	}
	s.rolesAreGiven(ada, max)
	s.onlyAdministrators(max, all)
}

// rolesAreGiven by a project's administrator in that project.
func (s *site) rolesAreGiven(ada, max *client.Client) {
	s.t.Helper()
	ctx := context.Background()
	if u, err := ada.SetRole(ctx, "new", "vision", "viewer"); err != nil || len(u.Roles) != 1 {
		s.t.Errorf("%+v, %v", u, err)
	}
	_, err := ada.SetRole(ctx, "new", "speech", "viewer")
	refused(s.t, "a role elsewhere", err, 403, "admin in project speech")
	_, err = ada.SetRole(ctx, "ada", "*", "admin")
	refused(s.t, "a role everywhere", err, 403, "admin in all projects")
	_, err = max.SetRole(ctx, "max", "vision", "admin")
	refused(s.t, "a role by a member", err, 403, "max is admin in no project")
	_, err = ada.SetRole(ctx, "nobody", "vision", "")
	refused(s.t, "no role", err, 404, "nobody has no role in vision")
	if users, err := ada.Users(ctx); err != nil || len(users) != 4 {
		s.t.Errorf("%+v, %v", users, err)
	}
	if _, err := ada.SetRole(ctx, "max", "vision", ""); err != nil {
		s.t.Error(err)
	}
	_, err = max.Submit(ctx, of("vision"), "")
	refused(s.t, "a role that was taken away", err, 403, "max is member in no project")
	s.role("max", "vision", "member")
}

// onlyAdministrators of all projects change what is everybody's.
func (s *site) onlyAdministrators(max, all *client.Client) {
	s.t.Helper()
	ctx := context.Background()
	for name, call := range map[string]func(c *client.Client) error{
		"quota":     func(c *client.Client) error { _, err := c.SetQuota(ctx, "vision", client.Quota{Slots: 1}); return err },
		"retention": func(c *client.Client) error { _, err := c.SetRetention(ctx, "", client.Retention{}); return err },
		"webhook":   func(c *client.Client) error { _, err := c.Webhooks(ctx); return err },
		"down":      func(c *client.Client) error { _, err := c.Down(ctx, false); return err },
		"pool":      func(c *client.Client) error { return c.RemovePool(ctx, "x") },
		"audit":     func(c *client.Client) error { _, err := c.Deeds(ctx, "", 1); return err },
		"user":      func(c *client.Client) error { return c.RemoveUser(ctx, "vera") },
		"token":     func(c *client.Client) error { _, err := c.NewPass(ctx, client.NewPass{User: "ada"}); return err },
	} {
		refused(s.t, name, call(max), 403, "in all projects")
		refused(s.t, name, call(all), 403, "in all projects")
	}
}

// TestTokens: one may do what its user may or less, ends when it is revoked, expires or its user is removed, and makes
// no stronger one.
func TestTokens(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, 1)
	s.role("max", "vision", "member")
	s.role("max", "speech", "member")
	max, first := s.pass(s.client, client.NewPass{User: "max"})
	reads, _ := s.pass(max, client.NewPass{Role: "viewer", Label: "dashboard"})
	narrow, _ := s.pass(max, client.NewPass{Project: "speech"})
	_, err := reads.Submit(ctx, of("vision"), "")
	refused(t, "a token that reads", err, 403, "max is member in no project")
	_, err = narrow.Submit(ctx, of("vision"), "")
	refused(t, "a token for one project", err, 403, "in project vision")
	if _, err := narrow.Submit(ctx, of("speech"), ""); err != nil {
		t.Error(err)
	}
	_, err = reads.NewPass(ctx, client.NewPass{Role: "admin"})
	refused(t, "a stronger token", err, 403, "no token gives more than its user may, and max is admin nowhere")
	stronger, p := s.pass(reads, client.NewPass{})
	if _, err = stronger.Submit(ctx, of("vision"), ""); p.Role != "viewer" {
		t.Errorf("%+v", p)
	}
	refused(t, "a token that a weaker one has made", err, 403, "member")
	_, err = narrow.NewPass(ctx, client.NewPass{Project: "vision"})
	refused(t, "a token for another project", err, 403, "this token is for project speech alone")
	if _, p := s.pass(max, client.NewPass{Seconds: 3600}); time.Until(p.Expires) > time.Hour {
		t.Errorf("%+v", p)
	}
	j := s.submit(of("vision"))
	run, _ := s.pass(max, client.NewPass{Job: j.ID})
	if got, err := run.Tag(ctx, j.ID, map[string]string{"by": "itself"}, nil); err != nil || got.Tags["by"] != "itself" {
		t.Errorf("%+v, %v", got, err)
	}
	elsewhere := s.submit(of("vision"))
	_, err = run.Tag(ctx, elsewhere.ID, map[string]string{"by": "another"}, nil)
	refused(t, "another job", err, 403, "this token is for job 2")
	_, err = run.Do(ctx, j.ID, "cancel")
	refused(t, "cancel by the job's token", err, 403, "this token is for job 2")
	_, err = run.Submit(ctx, of("vision"), "")
	refused(t, "submit by the job's token", err, 403, "this token is for job 2")
	_, err = run.NewPass(ctx, client.NewPass{})
	refused(t, "a token by the job's token", err, 403, "this token is for job 2")
	if p, err := run.Jobs(ctx, nil, "", "", 10); err != nil || len(p.Jobs) != 1 || p.Jobs[0].ID != j.ID {
		t.Errorf("%+v, %v", p, err)
	}
	s.inNoFile(max.Token, reads.Token, narrow.Token, run.Token)
	s.jobTokensFollowRoles(max, run, j.ID)
	s.tokensOfOthersEnd()
	s.tokensEnd(max, first)
}

// inNoFile wants none of these texts in what the server keeps: its database and its log, content, and what stands
// beside them, nor as JSON has bytes. The owner's token is in a file of its own there, which shows that one is found.
func (s *site) inNoFile(texts ...string) {
	s.t.Helper()
	if where := contains(s.t, s.dir, s.client.Token); len(where) != 1 || filepath.Base(where[0]) != "token" {
		s.t.Errorf("the owner's token is in %q", where)
	}
	for _, text := range texts {
		if len(text) < 32 {
			s.t.Errorf("%q is no token", text)
			continue
		}
		forms := []string{text}
		for before := range 3 { // bytes of a group of three that are another's
			coded := base64.StdEncoding.EncodeToString(append(make([]byte, before), text...))
			forms = append(forms, coded[4:len(coded)-4])
		}
		for _, form := range forms {
			if where := contains(s.t, s.dir, form); where != nil {
				s.t.Errorf("%q stands in %q as %s", text, where, form)
			}
		}
	}
}

// jobTokensFollowRoles: a token for a job does no more in its project than its user may there now.
func (s *site) jobTokensFollowRoles(max, run *client.Client, id int64) {
	s.t.Helper()
	ctx := context.Background()
	p, err := s.client.NewPass(ctx, client.NewPass{Job: id})
	if err != nil {
		s.t.Fatal(err)
	}
	owners := client.New(s.url, p.Token)
	s.role("max", "vision", "viewer")
	if _, err := run.Job(ctx, id); err != nil {
		s.t.Errorf("a viewer's token for a job does not read it: %v", err)
	}
	_, err = run.Tag(ctx, id, map[string]string{"by": "a viewer"}, nil)
	refused(s.t, "tag by a viewer's token for a job", err, 403, "since max is no member of its project any more")
	refused(s.t, "content by a viewer's token for a job", run.Put(ctx, strings.Repeat("0", 64), strings.NewReader("x")), 403, "max is no member")
	if _, err := s.client.SetRole(ctx, "max", "vision", ""); err != nil {
		s.t.Fatal(err)
	}
	for what, call := range map[string]func(c *client.Client) error{
		"job":  func(c *client.Client) error { _, err := c.Job(ctx, id); return err },
		"jobs": func(c *client.Client) error { _, err := c.Jobs(ctx, nil, "", "", 10); return err },
		"tag": func(c *client.Client) error {
			_, err := c.Tag(ctx, id, map[string]string{"by": "nobody"}, nil)
			return err
		},
		"about": func(c *client.Client) error { _, err := c.About(ctx); return err },
	} {
		refused(s.t, what+" by a token whose user has no role any more", call(run), 403, "max has no role there any more")
		if err := call(owners); err != nil {
			s.t.Errorf("%s by the owner's token for the job: %v", what, err)
		}
	}
	if _, err := max.About(ctx); err != nil {
		s.t.Errorf("the user's own token: %v", err)
	}
	s.role("max", "*", "member")
	if _, err := run.Tag(ctx, id, map[string]string{"by": "a member"}, nil); err != nil {
		s.t.Errorf("the role in all projects: %v", err)
	}
}

// tokensOfOthersEnd: an administrator's token makes none for another administrator that lasts longer than itself.
func (s *site) tokensOfOthersEnd() {
	s.t.Helper()
	s.role("ann", "*", "admin")
	s.role("bea", "*", "admin")
	hour, mine := s.pass(s.client, client.NewPass{User: "ann", Seconds: 3600})
	for _, seconds := range []float64{0, 1e6} {
		_, p := s.pass(hour, client.NewPass{User: "bea", Seconds: seconds})
		if p.Expires.IsZero() || p.Expires.After(mine.Expires) {
			s.t.Errorf("one until %v has made one for another until %v", mine.Expires, p.Expires)
		}
	}
	if _, p := s.pass(hour, client.NewPass{User: "bea", Seconds: 60}); time.Until(p.Expires) > time.Minute {
		s.t.Errorf("asked for a minute it is until %v", p.Expires)
	}
}

func (s *site) tokensEnd(max *client.Client, first client.Pass) {
	s.t.Helper()
	ctx := context.Background()
	short, _ := s.pass(max, client.NewPass{Seconds: 1})
	var err error
	for end := time.Now().Add(patience); err == nil && time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		_, err = short.About(ctx)
	}
	refused(s.t, "a token that has expired", err, 401, "the token has expired on")
	tokens, err := max.Passes(ctx)
	if err != nil || len(tokens) < 4 || tokens[0].Token != "" {
		s.t.Errorf("%+v, %v", tokens, err)
	}
	s.role("eve", "vision", "member")
	eve, _ := s.pass(s.client, client.NewPass{User: "eve"})
	refused(s.t, "revoke another's", eve.RevokePass(ctx, first.ID), 404, "there is no token")
	if err := max.RevokePass(ctx, first.ID); err != nil {
		s.t.Error(err)
	}
	_, err = max.About(ctx)
	refused(s.t, "a token that was revoked", err, 401, "the token is missing or wrong")
	if err := s.client.RemoveUser(ctx, "eve"); err != nil {
		s.t.Error(err)
	}
	_, err = eve.About(ctx)
	refused(s.t, "a token of a user who was removed", err, 401, "the token is missing or wrong")
	_, err = client.New(s.url, strings.Repeat("0", 64)).About(ctx)
	refused(s.t, "another server's token", err, 401, "the token is missing or wrong")
}

// browser is one of a user's, from an address with a token on.
func (s *site) browser(
	token string,
) (get func(path string) (int, string), post func(path, origin string) int, session string) {
	s.t.Helper()
	r, err := http.Get(s.url + "/?token=" + token)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Body.Close()
	for _, c := range r.Cookies() {
		session = c.Value
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
			s.t.Errorf("%+v", c)
		}
	}
	if session == "" || session == token {
		s.t.Fatalf("the browser was given %q", session)
	}
	do := func(method, path, origin string) (int, string) {
		req, _ := http.NewRequest(method, s.url+path, nil)
		req.AddCookie(&http.Cookie{Name: "hora", Value: session})
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		r, err := c.Do(req)
		if err != nil {
			s.t.Fatal(err)
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		return r.StatusCode, string(b)
	}
	get = func(path string) (int, string) { return do("GET", path, "") }
	post = func(path, origin string) int {
		code, _ := do("POST", path, origin)
		return code
	}
	return get, post, session
}

// TestSessions: a browser has a session and no token; it sees what its user may see, a foreign form changes nothing,
// and it ends with the token that it was made from.
func TestSessions(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, 1)
	s.role("max", "vision", "member")
	_, p := s.pass(s.client, client.NewPass{User: "max"})
	mine, other := s.submit(of("vision")), s.submit(of("speech"))
	get, post, session := s.browser(p.Token)
	if code, text := get("/"); code != 200 || !strings.Contains(text, "vision") || strings.Contains(text, "speech") {
		t.Errorf("%d %s", code, text)
	}
	for path, want := range map[string]int{
		"/jobs/1": 200, "/jobs/2": 403, "/compare?job=1&job=2": 403, "/audit": 403, "/metrics": 403, "/nodes": 200,
		"/pools": 200, "/projects": 200, "/api/v1/jobs/2/logs": 403,
	} {
		if code, text := get(path); code != want || code == 403 && !strings.Contains(text, "role") {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	here, _ := url.Parse(s.url)
	for origin, want := range map[string]int{"": 403, "http://evil.example": 403, "http://" + here.Host: 303} {
		if code := post("/jobs/1/cancel", origin); code != want {
			t.Errorf("from %q: %d", origin, code)
		}
	}
	if code := post("/jobs/2/cancel", "http://"+here.Host); code != 403 {
		t.Errorf("another project's job: %d", code)
	}
	s.until(mine.ID, in(job.Cancelled))
	if j, err := s.client.Job(ctx, other.ID); err != nil || j.State != job.Paused {
		t.Errorf("%+v, %v", j, err)
	}
	_, err := client.New(s.url, session).About(ctx)
	refused(t, "a session as a token", err, 401, "the token is missing")
	s.inNoFile(session, p.Token)
	owner, _, _ := s.browser(s.client.Token)
	if code, text := owner("/audit"); code != 200 || !strings.Contains(text, "None of these was changed") || !strings.Contains(text, "/jobs/1/cancel") {
		t.Errorf("%d %s", code, text)
	}
	leaves, out, _ := s.browser(p.Token)
	if code := out("/sign-out", "http://evil.example"); code != 403 {
		t.Errorf("another site signs the browser out: %d", code)
	}
	if code, _ := leaves("/"); code != 200 {
		t.Errorf("before it was signed out: %d", code)
	}
	if code := out("/sign-out", "http://"+here.Host); code != 200 {
		t.Errorf("sign out: %d", code)
	}
	if code, _ := leaves("/"); code != 401 {
		t.Errorf("the cookie of a browser that was signed out: %d", code)
	}
	if code, _ := get("/"); code != 200 {
		t.Errorf("another browser with the same token: %d", code)
	}
	if err := s.client.RevokePass(ctx, p.ID); err != nil {
		t.Fatal(err)
	}
	if code, _ := get("/"); code != 401 {
		t.Errorf("after its token was revoked: %d", code)
	}
}

// TestRecords: who did what, refusals among it, in a chain that shows what was changed or taken out.
func TestRecords(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, 1)
	s.role("max", "vision", "member")
	max, _ := s.pass(s.client, client.NewPass{User: "max"})
	j, err := max.Submit(ctx, of("vision"), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := max.Do(ctx, j.ID, "cancel"); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		_, _ = client.New(s.url, "wrong").About(ctx)
	}
	_, _ = max.SetQuota(ctx, "vision", client.Quota{})
	s.readsThatAreRefused(max)
	all := s.recorded("owner set-role /users/max/roles 200", "owner new-token /tokens 201", "max submit /jobs 201", "max cancel /jobs/1/cancel 200",
		"nobody GET /api/v1/about 401", "max quota /projects/vision/quota 403", "max job /jobs/2 403", "max logs /jobs/2/logs 403",
		"max GET /metrics 403", "max GET /jobs/2 403", "nobody join /node 401", "node one join /pools/lab 200", "a machine for pool lab join /node 409")
	if len(all) > 20 {
		t.Errorf("%d records of 400 refusals: %+v", len(all), all)
	}
	s.kill()
	s.up()
	if r := s.hora("audit", "--verify"); r.code != 0 || !regexp.MustCompile(`^\d+ records, none changed; the last one's hash is [0-9a-f]{64}\n$`).MatchString(r.out) {
		t.Errorf("%+v", r)
	}
	if r := s.hora("audit"); r.code != 0 || !strings.Contains(r.out, "max") || strings.Contains(r.out, max.Token) {
		t.Errorf("%+v", r)
	}
	for _, c := range []struct{ change, says string }{
		{"UPDATE audit SET who = 'owner' WHERE id = 3", "record 3 was changed after it was written"},
		{"UPDATE audit SET who = 'max' WHERE id = 3", ""},
		{"DELETE FROM audit WHERE id = 2", "record 2 is missing"},
	} {
		s.change(c.change)
		is, err := s.client.CheckDeeds(ctx)
		if err != nil || !strings.Contains(is.Broken, c.says) || c.says == "" && is.Broken != "" {
			t.Errorf("%s: %+v, %v", c.change, is, err)
		}
	}
	if r := s.hora("audit", "--verify"); r.code != 1 || !strings.Contains(r.errs, "the records are not what they were: record 2 is missing") {
		t.Errorf("%+v", r)
	}
}

// readsThatAreRefused are a project's job and the server's figures, by who may see neither; and a machine with no token
// or one of another pool.
func (s *site) readsThatAreRefused(max *client.Client) {
	s.t.Helper()
	ctx := context.Background()
	other := s.submit(of("speech"))
	for range 50 {
		_, err := max.Job(ctx, other.ID)
		refused(s.t, "another project's job", err, 403, "in project speech")
	}
	owner := s.client.Token
	s.client.Token = max.Token
	for _, path := range []string{fmt.Sprintf("/api/v1/jobs/%d/logs", other.ID), "/metrics", fmt.Sprintf("/jobs/%d", other.ID)} {
		if r, text := s.call("GET", path, ""); r.StatusCode != 403 {
			s.t.Errorf("%s: %d %s", path, r.StatusCode, text)
		}
	}
	s.client.Token = "nobody's"
	for range 50 {
		if r, text := s.call("GET", "/api/v1/node", "", "Upgrade", "hora-node", "Connection", "Upgrade"); r.StatusCode != 401 {
			s.t.Errorf("a node with a wrong token: %d %s", r.StatusCode, text)
		}
	}
	s.client.Token = owner
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		s.t.Fatalf("%+v", r)
	}
	s.joining("one", "lab")
	token, err := s.client.JoinToken(ctx, "lab", time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	s.extra = []string{"HORA_TOKEN=" + token.Token}
	r := s.hora("node", "--pool", "shed", "--name", "two", "--dir", filepath.Join(s.t.TempDir(), "two"), "--server", s.url)
	if s.extra = nil; r.code == 0 {
		s.t.Errorf("%+v", r)
	}
}

// recorded waits until all of these are among the records: who, what, of what, and the answer.
func (s *site) recorded(wants ...string) []client.Deed {
	s.t.Helper()
	for end := time.Now().Add(patience); ; <-time.After(50 * time.Millisecond) {
		d, err := s.client.Deeds(context.Background(), "", 1000)
		if err != nil {
			s.t.Fatal(err)
		}
		var said []string
		for _, d := range d.Deeds {
			said = append(said, fmt.Sprint(d.Who, " ", d.What, " ", d.Target, " ", d.Status))
		}
		missing := slices.DeleteFunc(slices.Clone(wants), func(want string) bool { return slices.Contains(said, want) })
		if len(missing) == 0 {
			return d.Deeds
		}
		if time.Now().After(end) {
			s.t.Fatalf("%q is not among\n%s", missing, strings.Join(said, "\n"))
		}
	}
}

// change does to the server's database what only somebody on its machine could.
func (s *site) change(statement string) {
	s.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(s.dir, "hora.db"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	for _, text := range []string{"PRAGMA busy_timeout = 10000", statement} {
		if _, err := db.Exec(text); err != nil {
			s.t.Fatal(err)
		}
	}
}

// TestPeopleByCommands: what a user types.
func TestPeopleByCommands(t *testing.T) {
	s := newSite(t, 1)
	for _, c := range []struct {
		args, out, err string
		code           int
	}{
		{"whoami", "the owner at " + s.url + ": admin of all projects\n", "", 0},
		{"user add ana --project vision", "ana is member of project vision\n", "", 0},
		{"user add ana --all --role viewer", "ana is viewer of all projects, member of project vision\n", "", 0},
		{"user add ana", "", "hora user add was not told where: give --project P, or --all", 2},
		{"user add ana --project p --role boss", "", `role: "boss" is none of viewer, member, admin`, 2},
		{"user add", "", "takes a user's name", 2},
		{"user remove bob", "", "there is no user bob: hora user list has those that there are", 1},
		{"token new --user bob", "", "there is no user bob: hora user add bob", 1},
		{"token new --expires soon", "", "write it as 90d, 12h or 30m", 2},
		{"token revoke 99", "", "there is no token 99 of yours", 1},
		{"token nwe", "", "hora token has no \"nwe\": it has", 2},
		{"token new --job 7", "", "there is no job 7", 1},
	} {
		r := s.hora(strings.Fields(c.args)...)
		if r.code != c.code || c.out != "" && r.out != c.out || !strings.Contains(r.errs, c.err) {
			t.Errorf("hora %s: %+v", c.args, r)
		}
	}
	r := s.hora("token", "new", "--user", "ana", "--expires", "90d")
	token := strings.TrimSpace(r.out)
	if r.code != 0 || len(token) != 64 || !strings.Contains(r.errs, "token 1 of ana, which may do all that the user may, until ") {
		t.Fatalf("%+v", r)
	}
	s.extra = []string{"HORA_TOKEN=" + token}
	if r := s.hora("whoami", "--json"); r.code != 0 || !json.Valid([]byte(r.out)) || !strings.Contains(r.out, `"user": "ana"`) {
		t.Errorf("%+v", r)
	}
	if r := s.hora("token", "list"); r.code != 0 || strings.Count(r.out, "\n") != 2 {
		t.Errorf("%+v", r)
	}
	s.extra = nil
	if r := s.hora("user", "list"); !strings.Contains(r.out, "viewer of all projects, member of project vision") {
		t.Errorf("%+v", r)
	}
}

// TestThePageOfWhoMay: docs/server.md lists the operations as the server's own description does.
func TestThePageOfWhoMay(t *testing.T) {
	s := newSite(t, 1)
	_, text := s.call("GET", "/api/v1/openapi.json", "")
	var api struct {
		OpenAPI string
		Paths   map[string]map[string]struct{ OperationID, Description string }
	}
	if err := json.Unmarshal([]byte(text), &api); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(api.OpenAPI, "3.1.") {
		t.Errorf("the description is of OpenAPI %q", api.OpenAPI)
	}
	who := map[string][]string{}
	for path, methods := range api.Paths {
		for method, op := range methods {
			text, found := strings.CutPrefix(op.Description, "For: ")
			if !found {
				t.Errorf("%s %s does not say for whom it is: %q", method, path, op.Description)
			}
			text = strings.TrimSuffix(text, ".")
			who[text] = append(who[text], "`"+op.OperationID+"`")
		}
	}
	page, err := os.ReadFile("../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	for text, calls := range who {
		slices.Sort(calls)
		if row := "| " + text + " | " + strings.Join(calls, ", ") + " |"; !strings.Contains(string(page), row) {
			t.Errorf("docs/server.md lacks\n%s", row)
		}
	}
}
