package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
	"hora/server/node"
)

// laterPython stands for an interpreter that makes an environment at once where it is asked first, and slowly or not at
// all where it is asked later, as the file "later" says.
const laterPython = `#!/bin/sh
cat >> "$ASKED/asked"
echo >> "$ASKED/asked"
if test "$(wc -l < "$ASKED/asked")" -gt 1; then . "$ASKED/later"; fi
mkdir -p "$3/environments/e/bin"
touch "$3/environments/e/complete"
echo '{"environment": "e", "lock": ["x==1"], "site": {}}' > "$3/requests/$4.json"
`

// gangSite has a pool of two nodes of a slot each, that are there.
func gangSite(t *testing.T, later string) (s *site, asked string) {
	bin, dir := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		filepath.Join(bin, "python"): laterPython, filepath.Join(dir, "later"): later,
	} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s = newSiteWith(t, "PATH="+bin+":"+os.Getenv("PATH"), "ASKED="+dir)
	if r := s.hora("pool", "add", "two", "--provider", "local", "--min", "2", "--max", "2", "--node", "cores=1"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.eventually("the nodes are there", func() bool { return len(s.ready("two")) == 2 })
	return s, filepath.Join(dir, "asked")
}

// TestAGangAwaitsANodeThatTakesLong: a node that makes its environment longer than the start timeout, while the server
// is killed, does not end the job, and takes the releases that the first node has taken.
func TestAGangAwaitsANodeThatTakesLong(t *testing.T) {
	t.Parallel() // it waits, most of the time
	s, asked := gangSite(t, "touch $ASKED/begun; sleep 5\n")
	r := s.hora("submit", "--no-code", "--pool", "two", "-np", "2", "--pip", "x", "--start-timeout", "2s", "sh", "-c", `echo "rank $HORA_RANK in ${VIRTUAL_ENV##*/}"`)
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.eventually("the second node makes its environment", func() bool {
		_, err := os.Stat(filepath.Join(filepath.Dir(asked), "begun"))
		return err == nil
	})
	s.kill()
	s.up()
	if j := s.ended(1); j.State != job.Finished || len(j.Attempts) != 1 {
		t.Fatalf("it ended as %s after %d attempts: %s\n%s", j.State, len(j.Attempts), j.Text, s.text(1))
	}
	if text := s.text(1); !strings.Contains(text, "rank 0 in e") || !strings.Contains(text, "rank 1 in e") {
		t.Errorf("it wrote %q", text)
	}
	b, err := os.ReadFile(asked)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(all) != 2 || strings.Contains(all[0], "lock") || !strings.Contains(all[1], `"lock":["x==1"]`) {
		t.Errorf("the nodes were asked %q", all)
	}
}

// TestAGangEndsWithANodeThatCannotMakeItsEnvironment: at once, with that node's name and the resolver's last lines.
func TestAGangEndsWithANodeThatCannotMakeItsEnvironment(t *testing.T) {
	t.Parallel() // it waits, most of the time
	s, _ := gangSite(t, "echo out ERROR: the index is not there; echo bad pip: no index; exit 1\n")
	begin := time.Now()
	if r := s.hora("submit", "--no-code", "--pool", "two", "-np", "2", "--pip", "x", "true"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	j := s.ended(1)
	if took := time.Since(begin); took > 3*5*time.Second {
		t.Errorf("it took %v to end", took)
	}
	other := j.Attempts[0].Shares[1].Node
	want := "its part on node " + other + " failed: make the environment: pip: no index"
	if j.State != job.Failed || j.ExitCode != 1 || j.Text != want {
		t.Errorf("it ended as %s with %d and %q, and not with %q", j.State, j.ExitCode, j.Text, want)
	}
	text := s.hora("logs", "1").errs
	for _, want := range []string{"hora: the last that node " + other + " wrote:", "ERROR: the index is not there"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in what it wrote:\n%s", want, text)
		}
	}
}

// TestAnElasticGangWithoutANodeThatCannotMakeItsEnvironment: it goes on with the rest, and its output says what the
// resolver of that node did; with too few left it fails as one of a fixed size does.
func TestAnElasticGangWithoutANodeThatCannotMakeItsEnvironment(t *testing.T) {
	t.Parallel() // it waits, most of the time
	s, asked := gangSite(t, "echo out ERROR: the index is not there; echo bad pip: no index; exit 1\n")
	gate := filepath.Join(t.TempDir(), "gate")
	elastic := func(least int) client.Job {
		d := shell(2, "until [ -e "+gate+" ]; do sleep 0.02; done")
		d.Pool, d.Spec.MinNP, d.Environment = "two", least, &client.Environment{Pip: []string{fmt.Sprint("x", least)}}
		return s.submit(d)
	}
	resolver := func(j client.Job, when string) {
		t.Helper()
		s.eventually("its output has the resolver's lines "+when, func() bool {
			var all []string
			every := client.Following{Rank: -2}
			err := s.client.Lines(t.Context(), j.ID, every, func(l client.Line) { all = append(all, l.Text) })
			at := slices.IndexFunc(all, func(l string) bool {
				return strings.HasPrefix(l, "hora: the last that node two-")
			})
			return err == nil && at >= 0 && slices.Contains(all[at:], "ERROR: the index is not there")
		})
	}
	j := elastic(1)
	resolver(j, "while it runs")
	story, err := s.client.Happenings(t.Context(), j.ID)
	if err != nil || !slices.ContainsFunc(story, func(h client.Happening) bool {
		return strings.HasSuffix(h.Text, "make the environment: pip: no index; it goes on with 1 slot")
	}) {
		t.Errorf("its story is %+v, %v", story, err)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if j := s.ended(j.ID); j.State != job.Finished || len(j.Attempts) != 1 {
		t.Errorf("it ended as %s after %d attempts: %s", j.State, len(j.Attempts), j.Text)
	}
	if err := os.Remove(asked); err != nil { // the first node makes it
		t.Fatal(err)
	}
	j = s.ended(elastic(2).ID)
	all := s.ready("two")
	other := all[1-slices.Index(all, j.Attempts[0].Shares[0].Node)]
	want := "its part on node " + other + " failed: make the environment: pip: no index"
	if j.State != job.Failed || len(j.Attempts) != 1 || j.ExitCode != 1 || j.Text != want {
		t.Errorf("it ended as %s after %d attempts with %d and %q, and not with %q", j.State, len(j.Attempts), j.ExitCode, j.Text, want)
	}
	resolver(j, "when it has failed")
}

// TestAGangEndsWithANodeThatCannotStartIt: with that node's name and why.
func TestAGangEndsWithANodeThatCannotStartIt(t *testing.T) {
	t.Parallel() // it waits, most of the time
	s, _ := gangSite(t, "")
	if r := s.hora("submit", "--no-code", "--pool", "two", "-np", "2", "true"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	j := s.ended(1)
	if j.State != job.Finished {
		t.Fatalf("%+v", j)
	}
	other := j.Attempts[0].Shares[1].Node
	jobs := filepath.Join(s.dir, "nodes", other, node.AttemptsName)
	s.eventually("the node has put away what the first job left", func() bool {
		return os.Remove(jobs) == nil // an empty folder
	})
	if err := os.WriteFile(jobs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := shell(2, "true")
	d.Pool = "two"
	j = s.ended(s.submit(d).ID)
	if want := fmt.Sprintf("its part on node %s could not be started: ", other); j.State != job.Failed || !strings.HasPrefix(j.Text, want) {
		t.Errorf("it ended as %s with %q, and not with %q", j.State, j.Text, want)
	}
}

// TestAGangsReports: what ranks on other nodes than the first say with hora.report, and of tags, is the job's, once and
// while it runs, also where the server was killed meanwhile.
func TestAGangsReports(t *testing.T) {
	t.Parallel() // it waits, most of the time
	s := newSite(t, 1)
	if r := s.hora("pool", "add", "two", "--provider", "local", "--max", "2", "--node", "cores=1"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	gate := filepath.Join(t.TempDir(), "gate")
	d := shell(2, `python3 -c '
import json, os, socket, time
rank = int(os.environ["HORA_RANK"])
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["HORA_REPORT"])
for step in range(3):
    s.sendall(json.dumps({"rank": rank, "step": step, "metrics": {"loss": rank + step}, "tags": {"by %d" % rank: "it"}}).encode() + b"\n")
    while step and not os.path.exists("`+gate+`%d" % step): time.sleep(0.02)
'`)
	d.Pool, d.Nodes, d.PerNode, d.Spec.NP = "two", 2, 1, 0
	j := s.submit(d)
	reported := func(steps int) {
		t.Helper()
		var all []client.Metric
		s.eventually(fmt.Sprintf("both ranks have reported %d steps", steps), func() bool {
			var err error
			all, err = s.client.Metrics(t.Context(), j.ID, "loss", 10)
			return err == nil && len(all) == 2 && all[0].Count >= int64(steps) && all[1].Count >= int64(steps)
		})
		for rank, m := range all {
			if m.Rank != rank || m.Count != int64(steps) || m.Last != float64(rank+steps-1) || m.Points[1].Step != 1 {
				t.Errorf("rank %d reported %+v", rank, m)
			}
		}
	}
	open := func(n int) {
		if err := os.WriteFile(gate+fmt.Sprint(n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reported(2)
	s.kill()
	open(1)
	s.up()
	reported(3)
	open(2)
	if j = s.until(j.ID, ended); j.State != job.Finished {
		t.Fatalf("it ended as %s: %s\n%s", j.State, j.Text, s.text(j.ID))
	}
	reported(3)
	if j.Tags["by 0"] != "it" || j.Tags["by 1"] != "it" {
		t.Errorf("its tags are %q", j.Tags)
	}
}
