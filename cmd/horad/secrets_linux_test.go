package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hora/job"
	"hora/server/client"
	"hora/server/store"
)

// contains lists files below a folder that have a text in them.
func contains(t *testing.T, dir, text string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var b []byte
			if b, err = os.ReadFile(p); bytes.Contains(b, []byte(text)) {
				all = append(all, p)
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // what an attempt leaves is removed meanwhile
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSecrets: a job that asks for one finds it in a file of its own, writes *** where it writes it, and leaves it
// nowhere.
func TestSecrets(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, 2)
	const value, key = "s3cr3t-V4lue/+%", "-----BEGIN-----\nkkkk1111\nkkkk2222\n-----END-----\n"
	if _, err := s.client.SetSecret(ctx, "default", "TOKEN", []byte(value)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.SetSecret(ctx, "default", "key", []byte(key)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.SetSecret(ctx, "other", "OTHER", []byte("another-one")); err != nil {
		t.Fatal(err)
	}
	d := shell(2, `cd "$HORA_SECRETS" && stat -c '%a %n' . * && wc -c <TOKEN && cat TOKEN && echo && cat key && echo "x$(cat TOKEN)y" >&2 && env | grep -c s3cr3t; ls "$HORA_SECRETS"; test -e "$HORA_SECRETS"/OTHER; echo $?; sleep 0.2; echo "z$(cat TOKEN)" >&2; exit 3`) // its last words are quoted as the cause
	d.Secrets = []string{"TOKEN", "key"}
	j := s.until(s.submit(d).ID, ended)
	var text []string
	if err := s.client.Lines(ctx, j.ID, client.Following{Rank: -2}, func(l client.Line) {
		if l.Rank == 0 {
			text = append(text, l.Text)
		}
	}); err != nil {
		t.Fatal(err)
	}
	said := strings.Join(text, "\n")
	for _, want := range []string{"700 .", "600 TOKEN", "600 key", "15", "***", "x***y", "0", "1"} {
		if !strings.Contains("\n"+said+"\n", "\n"+want+"\n") {
			t.Errorf("no line is %q in\n%s", want, said)
		}
	}
	for _, never := range []string{value, "kkkk1111", "kkkk2222"} {
		if strings.Contains(said, never) {
			t.Errorf("%q is in\n%s", never, said)
		}
		if where := contains(t, s.dir, never); where != nil {
			t.Errorf("%q is in %v", never, where)
		}
	}
	if j.State != job.Failed || strings.Contains(j.Text, value) {
		t.Errorf("%+v", j)
	}
	s.wrongSecrets()
	s.secretsOnNodes(value)
}

// wrongSecrets are refused where they are named, in one sentence.
func (s *site) wrongSecrets() {
	s.t.Helper()
	ctx := context.Background()
	d := shell(1, "true")
	d.Secrets = []string{"TOKNE"}
	_, err := s.client.Submit(ctx, d, "")
	refused(s.t, "a misspelt secret", err, 409, "project default has no secret TOKNE: did you mean TOKEN?")
	d.Secrets = []string{"OTHER"}
	_, err = s.client.Submit(ctx, d, "")
	refused(s.t, "another project's secret", err, 409, "project default has no secret OTHER: hora secret set OTHER --project default <FILE sets it")
	_, err = s.client.SetSecret(ctx, "default", "../x", []byte("y"))
	refused(s.t, "a name that is a path", err, 422, "a secret's name")
	_, err = s.client.SetSecret(ctx, "default", "x y", []byte("y"))
	refused(s.t, "a name with a blank", err, 422, "a secret's name")
	_, err = s.client.SetSecret(ctx, "default", "large", bytes.Repeat([]byte("x"), 70000))
	refused(s.t, "a large one", err, 422, "one may have 65536")
	s.role("vera", "default", "viewer")
	vera, _ := s.pass(s.client, client.NewPass{User: "vera"})
	_, err = vera.Secrets(ctx, "default")
	refused(s.t, "a viewer", err, 403, "the role member in project default")
	d.Secrets, d.Held = []string{"key"}, true
	held := s.submit(d)
	if err := s.client.RemoveSecret(ctx, "default", "key"); err != nil {
		s.t.Fatal(err)
	}
	refused(s.t, "removed twice", s.client.RemoveSecret(ctx, "default", "key"), 404, "has no secret key")
	if _, err := s.client.Do(ctx, held.ID, "resume"); err != nil {
		s.t.Fatal(err)
	}
	if j := s.until(held.ID, ended); j.State != job.Failed || !strings.Contains(j.Text, "secret key was removed from project default since") {
		s.t.Errorf("%+v", j)
	}
	r := s.hora("secret", "list")
	if r.code != 0 || !strings.Contains(r.out, "TOKEN") || strings.Contains(r.out, "s3cr3t") {
		s.t.Errorf("%+v", r)
	}
	folder := s.t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "t"), []byte("from-a-file\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if r := s.hora("secret", "set", "file", "--file", filepath.Join(folder, "t")); r.code != 0 || r.out != "secret file of project default is set: hora submit --secret file gives it to a job\n" {
		s.t.Errorf("%+v", r)
	}
	if r := s.hora("submit", "--no-code", "--follow", "--secret", "file", "--", "sh", "-c", `wc -c <$HORA_SECRETS/file`); r.code != 0 || !strings.Contains(r.out, "11") {
		s.t.Errorf("%+v", r)
	}
}

// secretsOnNodes: each node of a job gets them; a backup opens none without the key, and says so.
func (s *site) secretsOnNodes(value string) {
	s.t.Helper()
	ctx := context.Background()
	if r := s.hora("pool", "add", "two", "--provider", "local", "--max", "2", "--node", "cores=1", "--idle", "1m"); r.code != 0 {
		s.t.Fatalf("%+v", r)
	}
	d := shell(0, `echo $HORA_RANK; wc -c <$HORA_SECRETS/TOKEN; cat $HORA_SECRETS/TOKEN; echo; for f in "$HORA_SECRETS" "${HORA_OUTPUTS%/work/outputs}/secrets"; do test "$(cd .. && pwd)/secrets" = "$f" && echo own; done`)
	d.Spec.NP, d.Nodes, d.Pool, d.Secrets = 0, 2, "two", []string{"TOKEN"}
	j := s.until(s.submit(d).ID, ended)
	seen := map[string]int{}
	err := s.client.Lines(
		ctx, j.ID, client.Following{Rank: -2}, func(l client.Line) { seen[strings.TrimSpace(l.Text)]++ },
	)
	if err != nil || j.State != job.Finished {
		s.t.Fatalf("%+v, %v", j, err)
	}
	if seen["15"] != 2 || seen["***"] != 2 || seen["own"] != 4 || seen[value] != 0 {
		s.t.Errorf("%+v: %v", j, seen)
	}
	to := filepath.Join(s.t.TempDir(), "copy")
	if _, err := store.Backup(s.dir, to, func() {}); err != nil {
		s.t.Fatal(err)
	}
	st, err := store.Open(to)
	if err != nil {
		s.t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.Secret(ctx, "default", "TOKEN"); err == nil || !strings.Contains(err.Error(), "without which no secret opens: put it back, as it is in no backup") {
		s.t.Errorf("%v", err)
	}
	b, err := os.ReadFile(filepath.Join(s.dir, store.KeyFile))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, store.KeyFile), b, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if v, err := st.Secret(ctx, "default", "TOKEN"); err != nil || string(v) != value {
		s.t.Errorf("%q, %v", v, err)
	}
}
