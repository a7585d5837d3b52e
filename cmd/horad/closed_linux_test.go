package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hora/job"
	"hora/server/client"
)

// TestAPoolOfAProject takes jobs of that project alone, by whatever way they come and whoever sends them, also after
// the server was started anew; and it is closed to nobody who is in it.
func TestAPoolOfAProject(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, 1)
	add := func(projects ...string) said {
		args := []string{"pool", "add", "two", "--provider", "local", "--max", "1", "--node", "cores=1,memory=1GiB", "--idle", "1m"}
		for _, p := range projects {
			args = append(args, "--project", p)
		}
		return s.hora(args...)
	}
	if r := s.hora("pool", "add", "open", "--provider", "local", "--max", "1", "--node", "cores=1"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if r := add("vision"); r.code != 0 || !strings.Contains(r.out, "; for jobs of vision alone\n") {
		t.Fatalf("%+v", r)
	}
	s.role("max", "vision", "member")
	s.role("eve", "other", "member")
	max, _ := s.pass(s.client, client.NewPass{User: "max"})
	eve, p := s.pass(s.client, client.NewPass{User: "eve"})
	to := func(project string) client.Document {
		d := of(project)
		d.Pool = "two"
		return d
	}
	says := "pool two is for jobs of project vision alone, and this one is of project other: take one of default, open"
	closed := func() {
		t.Helper()
		for who, c := range map[string]*client.Client{"a member of another project": eve, "the owner": s.client} {
			_, err := c.Submit(ctx, to("other"), "")
			refused(t, who, err, 403, says)
		}
		file := filepath.Join(t.TempDir(), "job.yaml")
		if err := os.WriteFile(file, []byte("command: [\"true\"]\npool: two\nproject: other\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		s.extra = []string{"HORA_TOKEN=" + p.Token}
		defer func() { s.extra = nil }()
		for _, args := range [][]string{
			{"--pool", "two", "--project", "other", "true"},
			{"--pool", "two", "--fresh", "--project", "other", "true"},
			{"--pool", "two", "--node", "two-1", "--project", "other", "true"},
			{"--file", file},
		} {
			if r := s.hora(append([]string{"submit", "--no-code"}, args...)...); r.code == 0 || !strings.Contains(r.errs, says) {
				t.Errorf("hora submit %v: %+v", args, r)
			}
		}
	}
	closed()
	d := to("vision")
	d.Held = false
	j, err := max.Submit(ctx, d, "")
	if err != nil {
		t.Fatal(err)
	}
	if j = s.until(j.ID, ended); j.State != job.Finished {
		t.Errorf("the project's own job ended as %+v", j)
	}
	s.kill()
	s.up()
	eve, max = client.New(s.url, eve.Token), client.New(s.url, max.Token)
	closed()
	r := s.hora("pool", "list")
	for what, count := range map[string]int{" PROJECTS\n": 1, " vision\n": 1, " all\n": 2} {
		if strings.Count(r.out, what) != count {
			t.Errorf("%+v", r)
		}
	}
	get, _, _ := s.browser(p.Token)
	if code, text := get("/pools"); code != 200 || !strings.Contains(text, "<dt>for jobs of</dt><dd>vision</dd>") {
		t.Errorf("%d %s", code, text)
	}
	s.poolIsClosedToNobodyInIt(max, eve, to, add)
}

func (s *site) poolIsClosedToNobodyInIt(
	max, eve *client.Client, to func(string) client.Document, add func(...string) said,
) {
	s.t.Helper()
	ctx := context.Background()
	held, err := max.Submit(ctx, to("vision"), "")
	if err != nil {
		s.t.Fatal(err)
	}
	if r := add("speech"); r.code == 0 || !strings.Contains(r.errs, fmt.Sprintf("job %d of project vision is in pool two, which is to be for jobs of project speech alone: cancel it, or wait for its end", held.ID)) {
		s.t.Errorf("%+v", r)
	}
	if r := add("speech,vision", "other", "vision"); r.code != 0 || !strings.Contains(r.out, "for jobs of other, speech, vision alone") {
		s.t.Errorf("%+v", r)
	}
	theirs, err := eve.Submit(ctx, to("other"), "")
	if err != nil {
		s.t.Errorf("the pool is for its project too: %v", err)
	}
	for _, id := range []int64{held.ID, theirs.ID} {
		s.hora("cancel", fmt.Sprint(id))
		s.until(id, ended)
	}
	if r := add("speech"); r.code != 0 {
		s.t.Errorf("%+v", r)
	}
	for _, wrong := range []string{"*", " ,", strings.Repeat("x", 201)} {
		if r := add(wrong); wrong != " ," && (r.code == 0 || !strings.Contains(r.errs, "is no project")) {
			s.t.Errorf("%+v", r)
		}
	}
	if r := add(); r.code != 0 || !strings.Contains(r.errs, "is everybody's now: give --project again where that is not meant") {
		s.t.Errorf("%+v", r)
	}
	if _, err = max.Submit(ctx, to("vision"), ""); err != nil {
		s.t.Errorf("the pool is everybody's: %v", err)
	}
}
