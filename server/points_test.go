package server

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"hora/server/client"
)

// pointsOf are the steps and values of a job's metric, and which number that is none was its last.
func (c *callSite) pointsOf(id int64, name string) (all []string) {
	c.t.Helper()
	found, err := c.client.Metrics(c.t.Context(), id, name, 1000)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, m := range found {
		for _, p := range m.Points {
			all = append(all, fmt.Sprintf("%d:%d=%g", m.Rank, p.Step, p.Value))
		}
		if m.LastIs != "" {
			all = append(all, m.LastIs)
		}
	}
	return all
}

// post sends points with a key, and answers the status and what was said.
func (c *callSite) post(path, key, body string) (int, string) {
	c.t.Helper()
	r, err := http.NewRequest("POST", c.url+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer owner"}, "Content-Type": {"application/json"}, keyHeader: {key}}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer a.Body.Close()
	b, _ := io.ReadAll(a.Body)
	return a.StatusCode, string(b)
}

// TestPointsFromOutside: a program adds points to a job that has no process, and to one that has ended; a point without
// a step comes after the last one, also over several blocks.
func TestPointsFromOutside(t *testing.T) {
	c := newCallSite(t, nil)
	id, step := c.submit(), int64(7)
	if _, err := c.client.Do(t.Context(), id, "cancel"); err != nil {
		t.Fatal(err)
	}
	for _, some := range [][]client.Reported{
		{{Name: "loss", Value: 3}, {Name: "acc", Step: &step, Value: 0.5}, {Name: "loss", Value: 2}},
		{{Name: "loss", Value: 1}, {Name: "acc", Value: 0.75}, {Name: "acc", ValueIs: "NaN"}},
	} {
		if err := c.client.Report(t.Context(), id, some); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][]string{
		"loss": {"0:0=3", "0:1=2", "0:2=1"}, "acc": {"0:7=0.5", "0:8=0.75", "NaN"},
	} {
		if got := c.pointsOf(id, name); !slices.Equal(got, want) {
			t.Errorf("%s is %q, and not %q", name, got, want)
		}
	}
	many := slices.Repeat([]client.Reported{{Name: "many", Value: 1}}, 600)
	if err := c.client.Report(t.Context(), id, many); err != nil {
		t.Fatal(err)
	}
	if err := c.client.Report(t.Context(), id, many[:1]); err != nil {
		t.Fatal(err)
	}
	if got := c.pointsOf(id, "many"); len(got) != 601 || got[600] != "0:600=1" {
		t.Errorf("%d points, the last is %s", len(got), got[len(got)-1])
	}
}

// TestPointsComeOnce: a call whose answer was lost adds nothing when it comes again, whether the answer was kept or the
// server ended before that.
func TestPointsComeOnce(t *testing.T) {
	c := newCallSite(t, nil)
	path, body := fmt.Sprintf("/jobs/%d/metrics", c.submit()), `{"points": [{"name": "loss", "value": 3}]}`
	for i := range 3 {
		if status, said := c.post(path, "key", body); status != http.StatusNoContent {
			t.Fatalf("%d %s", status, said)
		}
		if i == 1 {
			forget := func(tx *sql.Tx) error { _, err := tx.Exec("UPDATE answers SET answer = NULL"); return err }
			if err := c.st.Do(t.Context(), forget); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := c.pointsOf(1, "loss"); !slices.Equal(got, []string{"0:0=3"}) {
		t.Errorf("one call sent three times has added %q", got)
	}
	if status, said := c.post(path, "another", body); status != http.StatusNoContent {
		t.Fatalf("%d %s", status, said)
	}
	if got := c.pointsOf(1, "loss"); !slices.Equal(got, []string{"0:0=3", "0:1=3"}) {
		t.Errorf("a call of its own has added %q", got)
	}
}

// TestWhoAddsPoints: members of the job's project, and the job's own token; what is too much or of no form is
// refused, and adds nothing.
func TestWhoAddsPoints(t *testing.T) {
	c := newCallSite(t, nil)
	id, ctx := c.submit(), t.Context()
	other := c.submit()
	one := []client.Reported{{Name: "loss", Value: 3}}
	as := func(p client.NewPass) *client.Client {
		t.Helper()
		made, err := c.client.NewPass(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		return client.New(c.url, made.Token)
	}
	for user, role := range map[string]string{"vera": "viewer", "max": "member"} {
		if _, err := c.client.SetRole(ctx, user, "default", role); err != nil {
			t.Fatal(err)
		}
	}
	own := as(client.NewPass{Job: id})
	for what, c := range map[string]struct {
		by     *client.Client
		job    int64
		points []client.Reported
		status int
		says   string
	}{
		"a member":          {as(client.NewPass{User: "max"}), id, one, 0, ""},
		"the job":           {own, id, one, 0, ""},
		"a viewer":          {as(client.NewPass{User: "vera"}), id, one, 403, "the role member in project default"},
		"another job":       {own, other, one, 403, "this token is for job 1"},
		"a job that is not": {c.client, 77, one, 404, "there is no job 77"},
		"no point":          {c.client, id, []client.Reported{}, 422, ""},
		"a name too long":   {c.client, id, []client.Reported{{Name: strings.Repeat("x", 501)}}, 422, ""},
		"an odd number":     {c.client, id, []client.Reported{{Name: "x", ValueIs: "nan"}}, 422, ""},
		"too many":          {c.client, id, slices.Repeat(one, 10_001), 422, ""},
	} {
		err := c.by.Report(ctx, c.job, c.points)
		var f *client.Fault
		if c.status == 0 && err != nil || c.status != 0 &&
			(!errors.As(err, &f) || f.Status != c.status || !strings.Contains(f.Detail, c.says)) {
			t.Errorf("%s: %v, and not %d with %q", what, err, c.status, c.says)
		}
	}
	if got := c.pointsOf(id, ""); !slices.Equal(got, []string{"0:0=3", "0:1=3"}) {
		t.Errorf("there is %q", got)
	}
}
