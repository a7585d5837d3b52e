package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
)

// slowPython stands for an interpreter that makes an environment: it says when it has begun, waits until it may go on,
// and keeps what it was asked.
const slowPython = `#!/bin/sh
cat >> "$PIPES/asked"
echo >> "$PIPES/asked"
echo begun > "$PIPES/begun"
read go < "$PIPES/go"
mkdir -p "$3/environments/e/bin"
touch "$3/environments/e/complete"
echo '{"environment": "e", "lock": ["x==1"], "site": {}}' > "$3/requests/$4.json"
`

// pipes are what the test and that interpreter tell each other.
type pipes struct {
	t   *testing.T
	dir string
}

func newPipes(t *testing.T) *pipes {
	p := &pipes{t, t.TempDir()}
	for _, name := range []string{"begun", "go"} {
		if err := syscall.Mkfifo(filepath.Join(p.dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "python"), []byte(slowPython), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("PIPES", p.dir)
	return p
}

func (p *pipes) within(what string, f func() error) {
	p.t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		if err != nil {
			p.t.Fatal(what, err)
		}
	case <-time.After(patience):
		p.t.Fatal(what, "takes too long")
	}
}

func (p *pipes) begun() {
	p.t.Helper()
	p.within("until it begins", func() error { _, err := os.ReadFile(filepath.Join(p.dir, "begun")); return err })
}

func (p *pipes) letGo() {
	p.t.Helper()
	p.within("until it goes on", func() error { return os.WriteFile(filepath.Join(p.dir, "go"), []byte("go\n"), 0) })
}

func (p *pipes) asked() []string {
	b, err := os.ReadFile(filepath.Join(p.dir, "asked"))
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func (s *site) ended(id int64) client.Job {
	s.t.Helper()
	j, err := s.client.Follow(s.t.Context(), id, client.Following{Quiet: true, Rank: -2})
	if err != nil {
		s.t.Fatal(err)
	}
	return j
}

// TestAnEnvironmentIsMadeOnce holds that an environment is made while the server is killed and comes back, that a job
// which asks for the same waits for it, and that the next attempt takes the same releases.
func TestAnEnvironmentIsMadeOnce(t *testing.T) {
	p := newPipes(t)
	s := newSite(t, 2)
	if r := s.hora("submit", "--no-code", "--pip", "x", "--retries", "1", "sh", "-c", `test -n "$VIRTUAL_ENV" && false`); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	p.begun()
	s.kill()
	s.up()
	j, err := s.client.Job(t.Context(), 1)
	if err != nil || j.State != job.Preparing || len(j.Attempts) != 1 {
		t.Fatalf("the job is %s with %d attempts, %v", j.State, len(j.Attempts), err)
	}
	if r := s.hora("submit", "--no-code", "--pip", "x", "sh", "-c", `echo "in $VIRTUAL_ENV"`); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	p.letGo()
	if r := s.hora("logs", "-f", "2"); r.code != 0 || !strings.Contains(r.out, "in "+filepath.Join(s.dir, "environments", "environments", "e")) {
		t.Fatalf("%+v", r)
	}
	p.begun() // the second attempt of job 1 asks again, with the lock
	p.letGo()
	if j := s.ended(1); j.State != job.Failed || len(j.Attempts) != 2 {
		t.Fatalf("%+v", j)
	}
	asked := p.asked()
	if len(asked) != 2 || strings.Contains(asked[0], "lock") || !strings.Contains(asked[1], `"lock":["x==1"]`) {
		t.Fatalf("it was asked %q", asked)
	}
	if r := s.hora("job", "2"); !strings.Contains(r.out, "environment e with 1 package beside the interpreter's") {
		t.Fatalf("%+v", r)
	}
}

// TestPackagesThatDoNotResolve end the job however many retries it has; where the index did not answer it is tried
// again.
func TestPackagesThatDoNotResolve(t *testing.T) {
	bin := t.TempDir()
	says := "#!/bin/sh\nif grep -q missing; then echo never pip: No matching distribution; else echo bad pip: connection broken; fi\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "python"), []byte(says), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	s := newSite(t, 1)
	for _, c := range []struct {
		pip, text string
		attempts  int
	}{{"missing", "pip: No matching distribution", 1}, {"away", "pip: connection broken", 3}} {
		r := s.hora("submit", "--no-code", "--follow", "--retries", "2", "--pip", c.pip, "true")
		if r.code != 1 || !strings.Contains(r.errs, "hora: make the environment: "+c.text) {
			t.Errorf("--pip %s: %+v", c.pip, r)
		}
		all, err := s.client.Jobs(t.Context(), nil, "", "", 1)
		if err != nil {
			t.Fatal(err)
		}
		j, err := s.client.Job(t.Context(), all.Jobs[0].ID)
		if err != nil || j.State != job.Failed || len(j.Attempts) != c.attempts || !strings.Contains(j.Text, c.text) {
			t.Errorf("--pip %s: it is %s after %d attempts, want %d: %s, %v", c.pip, j.State, len(j.Attempts), c.attempts, j.Text, err)
		}
	}
}

// TestAJobIsCancelledWhileItsEnvironmentIsMade also holds that what made it ends.
func TestAJobIsCancelledWhileItsEnvironmentIsMade(t *testing.T) {
	p := newPipes(t)
	s := newSite(t, 1)
	if r := s.hora("submit", "--no-code", "--pip", "x", "true"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	p.begun()
	if r := s.hora("cancel", "1"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if j := s.ended(1); j.State != job.Cancelled {
		t.Fatalf("%+v", j)
	}
	// Nobody reads the pipe any more: the interpreter was ended with the job.
	if f, err := os.OpenFile(filepath.Join(p.dir, "go"), os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
		f.Close()
		t.Fatal("the interpreter waits still")
	}
	// A job that waits has its environment made ahead.
	if r := s.hora("submit", "--no-code", "sleep", "600"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if r := s.hora("submit", "--no-code", "--pip", "y", "true"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	p.begun()
	p.letGo()
	if j, err := s.client.Job(t.Context(), 3); err != nil || j.State != job.Queued {
		t.Fatalf("%+v, %v", j, err)
	}
	if r := s.hora("cancel", "2"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if j := s.ended(3); j.State != job.Finished {
		t.Fatalf("%+v", j)
	}
}

// TestAnEnvironmentIsMadeAheadOnNodes: on each of the pool's that are there, once, and on no other machine.
func TestAnEnvironmentIsMadeAheadOnNodes(t *testing.T) {
	p := newPipes(t)
	for _, name := range []string{"begun", "go"} { // nobody waits
		if err := os.Remove(filepath.Join(p.dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(p.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := newSite(t, 1)
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.joining("one", "lab")
	s.joining("two", "lab")
	if r := s.hora("submit", "--no-code", "--pool", "lab", "-np", "4", "sleep", "600"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.until(1, in(job.Running))
	for range 2 { // the second asks for what the first did
		if r := s.hora("submit", "--no-code", "--pool", "lab", "--pip", "x", "true"); r.code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	s.eventually("both nodes have it", func() bool {
		for _, name := range []string{"one", "two"} {
			if _, err := os.Stat(filepath.Join(s.dir, "..", name, "environments", "environments", "e", "complete")); err != nil {
				return false
			}
		}
		return true
	})
	if r := s.hora("cancel", "1"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	for _, id := range []int64{2, 3} {
		if j := s.ended(id); j.State != job.Finished {
			t.Errorf("%+v", j)
		}
	}
	if asked := strings.Join(p.asked(), ""); strings.Count(asked, "pip") != 2 {
		t.Errorf("it was not made once a node: %q", asked)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "environments")); err == nil {
		t.Error("it was made on the server's machine too, where no node of the pool is")
	}
}
