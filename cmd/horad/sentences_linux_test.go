package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
)

// TestWhatCommandsSay: what a command has done, or why it has nothing to show, with the next step that helps.
func TestWhatCommandsSay(t *testing.T) {
	t.Parallel() // it waits, most of the time
	s := newSite(t, 1)
	first := s.submit(shell(1, "sleep 600"))
	s.until(first.ID, in(job.Running))
	second := s.submit(shell(1, "true"))
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	none := t.TempDir()
	folder := t.TempDir()
	for _, c := range []struct {
		args string
		code int
		says string // of both streams
	}{
		{"logs 1 --rank 9", 1, "job 1 has no rank 9: its only one is 0\n"},
		{"logs 1 --rank 0", 0, "hora: job 1: nothing of its rank 0 is there yet; runs with 1 slot on " + host + "\n"},
		{"logs 2", 0, "hora: job 2: nothing of it is there yet; waits: first in pool default: needs 1 slot, none is free; job 1 runs without a time limit\n"},
		{"submit --call f true", 2, "hora: --call is of hora run alone"},
		{"submit -np x true", 2, `-np, --num-proc: "x" is not a whole number from 1 to 1048576`},
		{"submit --results d true", 2, "hora: --results is of hora run alone"},
		{"quota nobody --slots 1", 0, "hora: nothing of project nobody runs, waits or has run yet: hora projects lists those that there are\n"},
		{"quota default --share 0", 2, "--share 0 is no weight: give a number above 0"},
		{"user add ana --project vision", 0, "ana is member of project vision\n"},
		{"user remove ana --project vision", 0, "ana is without a role now\n"},
		{"user remove ana", 0, "ana is removed, with all roles and tokens\n"},
		{"webhook add http://127.0.0.1:1/x", 0, "webhook 1 hears"},
		{"webhook add ftp://x", 1, `"ftp://x" is no address of a webhook: write it as https://HOST/PATH`},
		{"user add ben --role king", 2, `--role: "king" is none of viewer, member, admin`},
		{"webhook remove 1", 0, "webhook 1 is removed\n"},
		{"secret remove X", 1, "project default has no secret X: hora secret list --project default has those that there are\n"},
		{"pool add two --provider local --max 1 --node cores=1", 0, "pool two: 0 to 1 node"},
		{"pool add a_b --provider local --node memory=8", 2, `--node: memory "8" is no amount`},
		{"submit --memory 8 true", 2, `"8" is less than any process needs: say the unit, as in 500MiB or 8GiB`},
		{"submit --memory 99TiB true", 0, "will ever have 99 TiB for one process"},
		{"cancel 3", 0, ""},
		{"compare 2 3", 0, "ran            -                   -\n"},
		{"secret set X", 1, "the secret is empty: give it on standard input, or with --file"},
		{"pool token two", 1, "so no machine joins it: hora pool list has the pools"},
		{"code 1 --changes", 1, "no folder went along with job 1"},
	} {
		r := s.hora(strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.out+r.errs, c.says) {
			t.Errorf("hora %s: %+v, want %d %q", c.args, r, c.code, c.says)
		}
	}
	if r := s.hora("pool", "add", "a_b"); strings.Count(r.errs, "is not a pool's name") != 1 {
		t.Errorf("it is said more than once, or not: %+v", r)
	}
	if r := s.hora("submit", "--help"); strings.Contains(r.out, "--call") || strings.Contains(r.out, "--results") {
		t.Errorf("the help has flags that do nothing: %s", r.out)
	}
	home := s.home
	s.home = none
	if r := s.hora("jobs"); r.code != 69 || !strings.Contains(r.errs, "there is no server") {
		t.Errorf("without a server: %+v", r)
	}
	s.home = home
	s.tokensSay()
	if n, err := copyServer(s.dir, filepath.Join(folder, "copy"), io.Discard); err != nil {
		t.Errorf("%d files, %v", n, err)
	} else if is, err := os.Stat(filepath.Join(folder, "copy", "hora.db")); err != nil || is.Mode().Perm() != 0o600 {
		t.Errorf("the copy of the database has mode %v, %v", is.Mode(), err)
	}
	want := fmt.Sprintf("the server at %s has ended, and 1 job that ran with it; 1 job that waited is kept: hora up with the same folder takes it up again\n", s.url)
	if r := s.hora("down", "--now"); r.out != want {
		t.Errorf("%+v, want %q", r, want)
	}
	_ = s.cmd.Wait()
	s.up() // and it is
	s.until(second.ID, in(job.Finished))
}

// TestWhatBoundsSay: a quota is shown, set and taken away, and what is wrong with it, or with a time, is said in the
// flags' own words.
func TestWhatBoundsSay(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	for _, c := range []struct {
		args string
		code int
		says string // of both streams
	}{
		{"quota nobody", 0, "project nobody: none\n"},
		{"quota nobody --slots 1", 0, "project nobody: 1 slot and what it borrows\n"},
		{"quota nobody", 0, "project nobody: 1 slot and what it borrows\n"},
		{"quota nobody --slots 0 --max 0", 0, "project nobody: none\n"},
		{"quota nobody --slots 0 --max 2", 2, "give --slots 2 --max 2 for no more than so many"},
		{"quota nobody --slots -1", 2, "--slots -1 is no number of slots: give 0 or more"},
		{"quota nobody --none --max 2", 2, "leave one of them out"},
		{"retention nobody --jobs 900d", 0, "hora: nothing of project nobody runs, waits or has run yet"},
		{"token new --expires 90", 2, `--expires "90" has no unit: say it, as 90d or 90h`},
		{"submit --held true", 0, "1\n"},
		{"submit --held true", 0, "2\n"},
		{"cancel", 2, "hora cancel takes the number of a job, or of several"},
		{"cancel 1 x", 2, `"x" is no job`},
		{"cancel 1 9 2", 1, "there is no job 9"},
		{"job 2", 0, "cancelled"},
		{"job 1", 0, "cancelled"},
		{"pool add plain --provider command --max 1 --node cores=1 --create true --delete true --list true", 0, ""},
		{"pool list", 0, "1    1 core  "},
		{"webhook add http://127.0.0.1:1/x --on nosuch", 2, `--on: "nosuch" is none of queued, preparing, running`},
		{"webhook add http://127.0.0.1:1/x --project nobody", 0, "hora: nothing of project nobody runs, waits or has run yet"},
	} {
		r := s.hora(strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.out+r.errs, c.says) {
			t.Errorf("hora %s: %+v, want %d %q", c.args, r, c.code, c.says)
		}
	}
}

// tokensSay refuses what asks for more than there is, and says when less is given.
func (s *site) tokensSay() {
	s.t.Helper()
	if r := s.hora("user", "add", "bob", "--project", "vision"); r.code != 0 {
		s.t.Fatalf("%+v", r)
	}
	p, err := s.client.NewPass(context.Background(), client.NewPass{User: "bob", Seconds: time.Hour.Seconds()})
	if err != nil {
		s.t.Fatal(err)
	}
	was := s.extra
	s.extra = []string{"HORA_SERVER=" + s.url, "HORA_TOKEN=" + p.Token}
	defer func() { s.extra = was }()
	want := "a job that names no project is of project default, where bob is no member: write --project vision"
	if r := s.hora("submit", "true"); r.code != 1 || !strings.Contains(r.errs, want) {
		s.t.Errorf("%+v", r)
	}
	if r := s.hora("token", "new", "--role", "admin"); r.code != 1 || !strings.Contains(r.errs, "bob is admin nowhere") {
		s.t.Errorf("%+v", r)
	}
	if r := s.hora("token", "new", "--role", "member", "--expires", "5h"); r.code != 0 || !strings.Contains(r.errs, "it does not last as long as was asked") {
		s.t.Errorf("%+v", r)
	}
	if r := s.hora("token", "new", "--role", "member", "--expires", "5m"); r.code != 0 || strings.Contains(r.errs, "as long as") {
		s.t.Errorf("%+v", r)
	}
}
