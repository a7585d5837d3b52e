package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hora/job"
	"hora/server/client"
)

// TestAJobsOwnToken: each attempt finds the server and a token that reads and tags its own run and does nothing else,
// on the server's machine as on others; what it writes does not show it, and it ends with the attempt.
func TestAJobsOwnToken(t *testing.T) {
	s := newSite(t, 1)
	if r := s.hora("pool", "add", "two", "--provider", "local", "--max", "1", "--node", "cores=1"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	other := s.submit(shell(1, "true"))
	s.until(other.ID, ended)
	for _, pool := range []string{"default", "two"} {
		kept := filepath.Join(s.dir, "kept-"+pool)
		d := shell(1, `stat -c %a "$HORA_TOKEN_FILE"; cat "$HORA_TOKEN_FILE"; cp "$HORA_TOKEN_FILE" `+kept+`
export HOME=/nonexistent XDG_CONFIG_HOME=/nonexistent
hora job $HORA_SERVER_JOB >/dev/null && echo reads itself
hora job 1 || echo not another
hora cancel $HORA_SERVER_JOB || echo not cancelled
hora submit --no-code true || echo not submitted
until [ -e `+kept+`.go ]; do sleep 0.05; done`)
		d.Pool = pool
		j := s.submit(d)
		s.until(j.ID, in(job.Running))
		s.eventually("the job has spoken", func() bool { return strings.Contains(s.text(j.ID), "not submitted") })
		b, err := os.ReadFile(kept)
		if err != nil {
			t.Fatal(err)
		}
		token, ctx := strings.TrimSpace(string(b)), context.Background()
		own := client.New(s.url, token)
		if got, err := own.Tag(ctx, j.ID, map[string]string{"by": "itself"}, nil); err != nil || got.Tags["by"] != "itself" {
			t.Errorf("%+v, %v", got, err)
		}
		_, err = own.Tag(ctx, other.ID, map[string]string{"by": "another"}, nil)
		refused(t, "another job", err, 403, "a job that is to do more gets a token as a secret")
		_, err = client.New(s.url, strings.Replace(token, "-1-", "-2-", 1)).Job(ctx, j.ID)
		refused(t, "a token for a later attempt", err, 401, "missing or wrong")
		if err := os.WriteFile(kept+".go", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if j := s.until(j.ID, ended); j.State != job.Finished {
			t.Errorf("%+v", j)
		}
		_, err = own.Job(ctx, j.ID)
		refused(t, "a token of what has ended", err, 401, "which has ended")
		text := s.text(j.ID)
		for _, want := range []string{"600\n", "***\n", "reads itself", "not another", "not cancelled", "not submitted"} {
			if !strings.Contains(text, want) {
				t.Errorf("pool %s: it wrote %q and not %q", pool, text, want)
			}
		}
		if strings.Contains(text, token) {
			t.Errorf("the token is in its output: %q", text)
		}
	}
}
