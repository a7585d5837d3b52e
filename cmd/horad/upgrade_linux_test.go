package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hora/job"
	"hora/server/client"
)

// nextRelease builds horad as a later release will be: its store has one more step.
func nextRelease(t *testing.T, to string) {
	t.Helper()
	source, err := filepath.Abs("../../server/store/schema.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	head, tail, found := strings.Cut(string(text), "\n}\n\n// migrate ")
	if !found {
		t.Fatal("the steps of the store do not end where they did")
	}
	dir := t.TempDir()
	later := filepath.Join(dir, "schema.go")
	step := head + "\n\t`CREATE TABLE later (x INTEGER) STRICT; INSERT INTO later VALUES (7);`,\n}\n\n// migrate " + tail
	if err := os.WriteFile(later, []byte(step), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {source: later}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", name, "-o", to, "hora/cmd/horad")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// copied copies a program, as an installer does: beside, then over what was there.
func copied(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to+".new", b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(to+".new", to); err != nil {
		t.Fatal(err)
	}
}

// TestAnUpgradeUnderRunningJobs installs a later release over the one that runs, on the server and on a node, and
// starts the server again: jobs here, on a node and in the queue go on, once, and all their lines are there. The
// folder as it was is beside the database, and the earlier release refuses the one that the later has written.
func TestAnUpgradeUnderRunningJobs(t *testing.T) {
	t.Parallel() // it waits, most of the time
	selected(t)
	next := filepath.Join(t.TempDir(), "horad")
	nextRelease(t, next)
	built, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range []string{"hora", "horad"} {
		copied(t, filepath.Join(built, name), filepath.Join(bin, name))
	}
	s := &site{t: t, dir: filepath.Join(t.TempDir(), "server"), home: t.TempDir(), bin: bin, slots: 1}
	s.start()
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	s.port = at.Port()
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.joining("one", "lab")

	gate := filepath.Join(t.TempDir(), "gate")
	script := fmt.Sprintf(`i=0; until test -e %s; do echo line $i; i=$((i+1)); sleep 0.02; done; echo ends after $i`, gate)
	here := s.submit(shell(1, script))
	d := shell(2, script)
	d.Pool = "lab"
	there := s.submit(d)
	waits := s.submit(shell(1, "echo ran"))
	long := func(id int64) func() bool { return func() bool { return strings.Count(s.text(id), "line") > 20 } }
	for _, j := range []client.Job{here, there} {
		s.until(j.ID, in(job.Running))
		s.eventually("lines come", long(j.ID))
	}

	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	copied(t, filepath.Join(built, "hora"), filepath.Join(bin, "hora"))
	copied(t, next, filepath.Join(bin, "horad"))
	s.up()
	copies, err := filepath.Glob(filepath.Join(s.dir, "*.before-*"))
	if err != nil || len(copies) != 1 {
		t.Errorf("the store before the upgrade is in %v, %v", copies, err)
	}
	for _, j := range []client.Job{here, there} {
		before := strings.Count(s.text(j.ID), "line")
		s.eventually("lines come again", func() bool { return strings.Count(s.text(j.ID), "line") > before+20 })
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, was := range []client.Job{here, there, waits} {
		j := s.until(was.ID, ended)
		if j.State != job.Finished || len(j.Attempts) != 1 {
			t.Errorf("job %d is %s after %d attempts: %s", j.ID, j.State, len(j.Attempts), j.Text)
		}
	}
	s.counted(here.ID)
	s.counted(there.ID)
	if got := s.text(waits.ID); !strings.Contains(got, "ran") {
		t.Errorf("the job that waited wrote %q", got)
	}

	if r := s.hora("down"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	_ = s.cmd.Wait()
	s.cmd = nil
	copied(t, filepath.Join(built, "horad"), filepath.Join(bin, "horad"))
	r := s.hora("up", "--dir", s.dir, "--port", "0")
	if r.code == 0 || !strings.Contains(r.errs, "written by a newer release") || !strings.Contains(r.errs, "install that release") {
		t.Errorf("the earlier release on the later's folder: %+v", r)
	}
}

// counted sees that the lines of rank 0 are there, each once and in order.
func (s *site) counted(id int64) {
	s.t.Helper()
	next := 0
	err := s.client.Lines(context.Background(), id, client.Following{Rank: 0}, func(l client.Line) {
		if want := fmt.Sprintf("line %d", next); l.Text != want && l.Text != fmt.Sprintf("ends after %d", next) {
			s.t.Errorf("job %d: line %d is %q", id, next, l.Text)
		}
		next++
	})
	if err != nil || next < 40 {
		s.t.Errorf("job %d wrote %d lines, %v", id, next, err)
	}
}
