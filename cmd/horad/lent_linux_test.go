package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"hora/job"
	"hora/server/client"
	"hora/server/store"
)

// TestStorageCredentials: who submits lends a job the keys to storage. The job's programs find them where their
// libraries look, in place of the node's own; they are in no log, no list and no file of the server's in clear, survive
// the server, and go with the job's end.
func TestStorageCredentials(t *testing.T) {
	ctx := context.Background()
	t.Setenv("AWS_ACCESS_KEY_ID", "THE-NODES")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "the-nodes-own")
	t.Setenv("AWS_PROFILE", "")
	var mu sync.Mutex
	var signed []string
	bucket := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		signed = append(signed, r.Header.Get("Authorization"))
		mu.Unlock()
		http.NotFound(w, r)
	}))
	t.Cleanup(bucket.Close)
	s := newSite(t, 2)
	const id, key, account = "MY-KEY-ID", "my-l0ng-secret/+key", `{"type":"authorized_user","client_secret":"hu5h-hush","refresh_token":"1//r3fresh-me"}`
	google := filepath.Join(t.TempDir(), "google.json")
	if err := os.WriteFile(google, []byte(account), 0o600); err != nil {
		t.Fatal(err)
	}
	s.extra = []string{
		"AWS_ACCESS_KEY_ID=" + id, "AWS_SECRET_ACCESS_KEY=" + key, "AWS_REGION=eu-west-1", "HORA_S3_ENDPOINT=" + bucket.URL,
		"GOOGLE_APPLICATION_CREDENTIALS=" + google,
	}
	script := `echo "$AWS_REGION ${AWS_ACCESS_KEY_ID-none}"; stat -c '%a %n' "$AWS_SHARED_CREDENTIALS_FILE" "$GOOGLE_APPLICATION_CREDENTIALS"
cat "$AWS_SHARED_CREDENTIALS_FILE" "$GOOGLE_APPLICATION_CREDENTIALS"; env | grep -c SECRET_ACCESS; hora data look s3://bucket/x.parquet; exit 3`
	r := s.hora("submit", "--no-code", "--held", "--storage-credentials", "--", "sh", "-c", script)
	n, err := strconv.ParseInt(strings.TrimSpace(r.out), 10, 64)
	if err != nil {
		t.Fatalf("%+v", r)
	}
	s.kill()
	s.up()
	if where := contains(t, s.dir, key); where != nil {
		t.Errorf("the key is in %v", where)
	}
	if _, err := s.client.Do(ctx, n, "resume"); err != nil {
		t.Fatal(err)
	}
	j := s.until(n, ended)
	text := ""
	add := func(l client.Line) { text += l.Text + "\n" }
	if err := s.client.Lines(ctx, n, client.Following{Rank: -2}, add); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"eu-west-1 none\n", "600 ", "aws_access_key_id = " + id + "\n",
		"aws_secret_access_key = ***\n",
		`"client_secret":"***"`, `"refresh_token":"***"`, "0\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	mu.Lock()
	if len(signed) == 0 || !strings.Contains(signed[0], "Credential="+id+"/") || !strings.Contains(signed[0], "/eu-west-1/s3/") {
		t.Errorf("the bucket was asked with %q", signed)
	}
	mu.Unlock()
	for _, never := range []string{key, "hu5h", "r3fresh", "the-nodes-own"} {
		if where := contains(t, s.dir, never); where != nil || strings.Contains(text, never) {
			t.Errorf("%q is in %v or\n%s", never, where, text)
		}
	}
	if v, is := j.Document.Credentials["AWS_SHARED_CREDENTIALS_FILE"]; j.State != job.Failed || !is || v != "" {
		t.Errorf("%s with credentials %v", j.State, j.Document.Credentials)
	}
	s.lentIsGone(n)
	s.wrongCredentials()
}

// lentIsGone looks at what is left of a job's keys in a copy of the store.
func (s *site) lentIsGone(n int64) {
	s.t.Helper()
	to := filepath.Join(s.t.TempDir(), "copy")
	if _, err := store.Backup(s.dir, to, func() {}); err != nil {
		s.t.Fatal(err)
	}
	st, err := store.Open(to)
	if err != nil {
		s.t.Fatal(err)
	}
	defer st.Close()
	if all, err := st.Lent(context.Background(), n); err == nil || !strings.Contains(err.Error(), "are gone") {
		s.t.Errorf("after the job's end its keys are %v, %v", all, err)
	}
}

func (s *site) wrongCredentials() {
	s.t.Helper()
	for name, says := range map[string]string{
		"LD_PRELOAD": "LD_PRELOAD is no variable of a storage's", "AZURE_CLIENT_SECRET": "AZURE_CLIENT_SECRET is empty",
	} {
		d := shell(1, "true")
		d.Credentials = map[string]string{name: map[string]string{"LD_PRELOAD": "/x.so"}[name]}
		_, err := s.client.Submit(context.Background(), d, "")
		refused(s.t, name, err, 422, says)
	}
	d := shell(1, "true")
	d.Credentials = map[string]string{"HORA_GCS_TOKEN": strings.Repeat("x", 70000)}
	_, err := s.client.Submit(context.Background(), d, "")
	refused(s.t, "large ones", err, 422, "have 70000 bytes, and may have 65536")
	s.extra = []string{"AWS_ACCESS_KEY_ID=", "GOOGLE_APPLICATION_CREDENTIALS="}
	if r := s.hora("submit", "--no-code", "--storage-credentials", "true"); r.code == 0 || !strings.Contains(r.errs, "there are no keys to storage here") {
		s.t.Errorf("%+v", r)
	}
	s.extra = []string{"AWS_ACCESS_KEY_ID=", "GOOGLE_APPLICATION_CREDENTIALS=/nowhere.json"}
	if r := s.hora("submit", "--no-code", "--storage-credentials", "true"); r.code == 0 || !strings.Contains(r.errs, "set GOOGLE_APPLICATION_CREDENTIALS to the file that is meant") {
		s.t.Errorf("%+v", r)
	}
}
