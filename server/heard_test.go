package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hora/job"
	"hora/server/backend"
)

// TestZonesThatReportWhileAJobRuns: what ranks in another zone say is there as it comes, and once, however often it
// comes; of what took part there anew too.
func TestZonesThatReportWhileAJobRuns(t *testing.T) {
	c := newCluster(t, map[string]int{"east": 1, "west": 1})
	s := newSite(t, c)
	id := s.submit(2, 0)
	g := c.gang(id, 1)
	c.mu.Lock()
	second, began := g.is.Shares[1].Node, time.Now()
	c.mu.Unlock()
	said := func(since time.Time, n uint64, loss float64) backend.Record {
		return backend.Record{At: time.Now(), From: second, Since: since, N: n, Report: reportOf(1, int64(n), loss)}
	}
	all := []backend.Record{said(began, 2, 0.5), said(began, 4, 0.25), said(began.Add(time.Minute), 2, 0.125)}
	reported := func(n int) {
		t.Helper()
		s.becomes("it is there", func() bool { return s.lasts(id)[1] == float64(all[n-1].Report.Metrics["loss"]) })
		is, err := s.client.Metrics(t.Context(), id, "loss", 100)
		if err != nil || len(is) != 1 || is[0].Count != int64(n) {
			t.Errorf("of %d numbers there are %+v, %v", n, is, err)
		}
	}
	g.see(all[0])
	reported(1)
	for _, r := range all[:2] {
		g.see(r)
	}
	reported(2)
	s.close()
	for _, r := range all {
		g.see(r)
	}
	s.up()
	reported(3)
	c.with(func() { g.left = all })
	g.exit(0)
	s.ends(id, job.Finished)
	reported(3)
}

// TestARestoredServerIsToldWhatIsGone: what a server has taken is kept no more, and one that was restored from an older
// copy says which lines it lacks, and of whom it lacks numbers.
func TestARestoredServerIsToldWhatIsGone(t *testing.T) {
	c := newCluster(t, map[string]int{"east": 1, "west": 1})
	s := newSite(t, c)
	id := s.submit(2, 0)
	g := c.gang(id, 1)
	c.mu.Lock()
	second, began := g.is.Shares[1].Node, time.Now()
	c.mu.Unlock()
	g.say(0, "one")
	s.becomes("it is heard", func() bool { return strings.Contains(s.wrote(id), "one") })
	s.close()
	older := filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(older, os.DirFS(s.dir)); err != nil {
		t.Fatal(err)
	}
	s.up()
	g.say(1, "two")
	g.say(0, "three")
	s.becomes("it is heard", func() bool { return strings.Contains(s.wrote(id), "three") })
	s.close()
	s.dir = older
	c.with(func() {
		n := uint64(len(g.said)) - 1
		g.gone = &backend.Record{N: n, At: time.Now(), Gone: &backend.Gone{Begun: g.said[0].At, Lines: 2}}
		g.seen = []backend.Record{
			{N: 8, At: time.Now(), From: second, Since: began, Gone: &backend.Gone{Begun: began}},
			{N: 9, At: time.Now(), From: second, Since: began, Report: reportOf(1, 9, 0.5)},
		}
	})
	s.up()
	g.say(0, "four")
	g.exit(0)
	s.ends(id, job.Finished)
	want := "1.1 [0] one\n1.2 [-1] hora: line 2 is missing: this server was restored from a copy that has not got them, and " +
		"the node has them no more\n1.3 [0] three\n1.4 [0] four\n"
	if text := s.wrote(id); text != want {
		t.Errorf("it wrote %q", text)
	}
	text := s.story(id)
	for _, part := range []string{"lines of its output, what it reported", "what ranks reported on node " + second} {
		if strings.Count(text, "lacks what the node has no more: "+part) != 1 {
			t.Errorf("its story is %q", text)
		}
	}
	if is := s.lasts(id); is[1] != 0.5 {
		t.Errorf("it reported %v", is)
	}
}
