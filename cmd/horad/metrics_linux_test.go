package main

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
)

// TestMetrics runs jobs and reads what Prometheus would.
func TestMetrics(t *testing.T) {
	s := newSite(t, 1)
	read := func(token string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequest("GET", s.url+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r, string(b)
	}
	if r, _ := read("wrong"); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the token: %s", r.Status)
	}
	s.until(s.submit(shell(1, "true")).ID, in(job.Finished))
	s.until(s.submit(shell(1, "exit 3")).ID, in(job.Failed))
	running := s.submit(shell(1, "sleep 1000"))
	s.until(running.ID, in(job.Running))
	odd := shell(1, "true")
	odd.Project = "a \"b\"\\\nc"
	waiting := s.submit(odd)
	held := shell(1, "true")
	held.Held = true
	s.submit(held)
	r, page := read(s.client.Token)
	if got := r.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4") {
		t.Errorf("it is %q", got)
	}
	has := samples(t, page)
	for name, want := range map[string]float64{
		`hora_jobs{state="queued"}`: 1, `hora_jobs{state="running"}`: 1, `hora_jobs{state="paused"}`: 1,
		`hora_jobs_submitted_total`: 5, `hora_jobs_ended_total{state="finished"}`: 1, `hora_jobs_ended_total{state="failed"}`: 1,
		`hora_attempts_started_total`: 3, `hora_attempts_ended_total{outcome="failed"}`: 1,
		`hora_project_jobs_queued{project="a \"b\"\\\nc"}`: 1, `hora_project_slots{project="default"}`: 1,
		`hora_submit_seconds_count`: 5, `hora_submit_seconds_bucket{le="+Inf"}`: 5,
	} {
		if got, ok := has[name]; got != want || !ok {
			t.Errorf("%s is %v (%v), want %v", name, got, ok, want)
		}
	}
	if has["hora_store_writes_total"] < 5 || has["hora_store_commits_total"] < 1 || has["hora_store_commits_total"] > has["hora_store_writes_total"] {
		t.Errorf("%v writes in %v commits", has["hora_store_writes_total"], has["hora_store_commits_total"])
	}
	for _, id := range []int64{waiting.ID, running.ID} {
		if _, err := s.client.Do(context.Background(), id, "cancel"); err != nil {
			t.Fatal(err)
		}
		s.until(id, in(job.Cancelled))
	}
	_, page = read(s.client.Token)
	has = samples(t, page)
	if has[`hora_jobs_ended_total{state="cancelled"}`] != 2 || has[`hora_attempts_ended_total{outcome="`+string(client.Stopped)+`"}`] != 1 {
		t.Errorf("two jobs were cancelled, one of them running:\n%s", page)
	}
}

var sampleLine = regexp.MustCompile(`^([a-z_]+)(_bucket|_sum|_count)?(\{[a-z]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z]+="(?:[^"\\\n]|\\["\\n])*")*\})? (\S+)$`)

// samples reads a page strictly: each sample's family was told before it, and none comes twice.
func samples(t *testing.T, page string) map[string]float64 {
	t.Helper()
	all, family := map[string]float64{}, ""
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			family, _, _ = strings.Cut(rest, " ")
			continue
		}
		if strings.HasPrefix(line, "# HELP ") {
			continue
		}
		name, _, _ := strings.Cut(line, "{")
		name, _, _ = strings.Cut(name, " ")
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		at := line[:strings.LastIndexByte(line, ' ')]
		_, twice := all[at]
		if !sampleLine.MatchString(line) || err != nil || twice ||
			name != family && !strings.HasPrefix(name, family+"_") {
			t.Errorf("Prometheus would not take %q below %s", line, family)
		}
		all[at] = value
	}
	return all
}

// TestNumbersThatAreNone are shown as what they are, and do not hide the others.
func TestNumbersThatAreNone(t *testing.T) {
	s := newSite(t, 1)
	j := s.submit(shell(1, `python3 -c '
import json, os, socket
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["HORA_REPORT"])
for step, loss in enumerate([3, "+Inf", 2, "NaN"]):
    s.sendall(json.dumps({"rank": 0, "step": step, "metrics": {"loss": loss, "up": "+Inf", "down": "-Inf"}}).encode() + b"\n")
'`))
	s.until(j.ID, in(job.Finished))
	s.until(s.submit(shell(1, "true")).ID, in(job.Finished))
	for _, path := range []string{"/jobs/1", "/compare?job=1&job=2"} {
		_, page := s.call("GET", path, "")
		for _, want := range []string{"NaN", "∞", "-∞", "2 to 3", "no finite number"} {
			if !strings.Contains(page, want) {
				t.Errorf("%s lacks %q: %s", path, want, page)
			}
		}
		for _, bad := range []string{"e+308", "e+18", ">+Inf", "to +Inf"} {
			if strings.Contains(page, bad) {
				t.Errorf("%s has %q: %s", path, bad, page)
			}
		}
	}
	r := s.hora("metrics", "1")
	if !regexp.MustCompile(`(?s)down +0 +4 +-∞ +none +none.*loss +0 +4 +NaN +2 +3.*up +0 +4 +∞ +none +none`).MatchString(r.out) {
		t.Errorf("hora metrics: %+v", r)
	}
}

// decisions are how many the server has made.
func (s *site) decisions() float64 {
	s.t.Helper()
	_, page := s.call("GET", "/metrics", "")
	n, counted := samples(s.t, page)["hora_decision_seconds_count"]
	if !counted {
		s.t.Fatal("the server does not count its decisions")
	}
	return n
}

// TestDecisionsKeepApart: many submissions at once are decided on together, at most every 50 ms; and while nothing
// changes for those that wait nothing is decided.
func TestDecisionsKeepApart(t *testing.T) {
	s := newSite(t, 1)
	held := shell(1, "true")
	held.Held = true
	const jobs, clients = 400, 8
	begin, before := time.Now(), s.decisions()
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range jobs / clients {
				if _, err := s.client.Submit(context.Background(), held, client.Key()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	n, took := s.decisions()-before, time.Since(begin)
	if most := took.Seconds()/0.05 + 2; n < 1 || n > most {
		t.Errorf("%v decisions in %v, for %d submissions: want 1 to %v", n, took, jobs, most)
	}
	s.decidesNothing()
}

// decidesNothing follows a job that writes for three seconds, in which the server looks at its idle nodes three times,
// takes what the job writes and looks at its outputs/; others wait for its slot, and nothing is decided about them.
func (s *site) decidesNothing() {
	s.t.Helper()
	writes := s.submit(shell(1, "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.1; done"))
	s.until(writes.ID, in(job.Running))
	for range 3 {
		waits := s.submit(shell(1, "true"))
		s.until(waits.ID, func(j client.Job) bool { return j.Reason != nil && j.Reason.Code == "slots" })
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var before, after float64
	begin, lines := time.Now(), 0
	_, _ = s.client.Follow(ctx, writes.ID, client.Following{Rank: 0, Line: func(l client.Line) {
		if l.At.Before(begin) {
			return
		}
		switch lines++; lines {
		case 5: // half a second: what the submissions and the start have led to is over
			before = s.decisions()
		case 35:
			after = s.decisions()
			cancel()
		}
	}})
	if lines < 35 || after != before {
		s.t.Errorf("%v decisions while a job wrote %d lines and nothing changed", after-before, lines)
	}
}
