package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
)

// listener is a webhook's address: it keeps what came, and checks the signature as a user would.
type listener struct {
	*httptest.Server
	mu     sync.Mutex
	secret string
	fail   int // so many times, first
	heard  map[string]client.Delivery
	bad    []string
	calls  int
}

func newListener(t *testing.T, l net.Listener) *listener {
	v := &listener{heard: map[string]client.Delivery{}}
	v.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(v.take)}}
	v.Start()
	t.Cleanup(v.Close)
	return v
}

func (v *listener) take(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.calls++
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(v.secret, "whsec_"))
	sum := hmac.New(sha256.New, key)
	fmt.Fprintf(sum, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), b)
	if want := "v1," + base64.StdEncoding.EncodeToString(sum.Sum(nil)); r.Header.Get("webhook-signature") != want {
		v.bad = append(v.bad, r.Header.Get("webhook-signature")+" and not "+want)
	}
	if v.fail > 0 {
		v.fail--
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	var d client.Delivery
	if err := json.Unmarshal(b, &d); err != nil {
		v.bad = append(v.bad, err.Error())
	}
	v.heard[r.Header.Get("webhook-id")] = d
}

func (v *listener) has(kind string, id int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, d := range v.heard {
		if d.Type == kind && d.Data.Job != nil && d.Data.Job.ID == id {
			return true
		}
	}
	return false
}

// TestWebhooks: what is signed comes, again where it failed, once more after the server was killed while the address
// was away, and not where nobody asked for it.
func TestWebhooks(t *testing.T) {
	t.Parallel() // it waits, most of the time
	s := newSite(t, 2)
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := newListener(t, at)
	r := s.hora("webhook", "add", v.URL+"/jobs", "--on", "running,finished,failed")
	number, secret, _ := strings.Cut(strings.TrimSpace(r.out), " ")
	if r.code != 0 || number != "1" || !strings.HasPrefix(secret, "whsec_") || !strings.Contains(r.errs, "shown this once") {
		t.Fatalf("%+v", r)
	}
	v.mu.Lock()
	v.secret, v.fail = secret, 1
	v.mu.Unlock()
	other := newListener(t, must(net.Listen("tcp", "127.0.0.1:0")))
	if r := s.hora("webhook", "add", other.URL, "--project", "elsewhere"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if r := s.hora("webhook", "test", "1"); r.code != 1 || !strings.Contains(r.errs, "answered 500") {
		t.Errorf("%+v", r)
	}
	if r := s.hora("webhook", "test", "1"); r.code != 0 || !strings.Contains(r.out, "answered 200") {
		t.Errorf("%+v", r)
	}
	v.mu.Lock()
	v.fail = 2
	v.mu.Unlock()
	d := shell(1, "true")
	d.Spec.Env = map[string]string{"KEY": "not to be told"}
	first := s.until(s.submit(d).ID, ended)
	s.eventually("the end is heard", func() bool { return v.has("job.finished", first.ID) && v.has("job.running", first.ID) })

	address := v.Listener.Addr().String()
	v.Close()
	failed := s.until(s.submit(shell(1, "exit 3")).ID, ended)
	s.eventually("the failure is told", func() bool { return strings.Contains(s.hora("webhook", "list").out, "nothing listens at 127.0.0.1:") })
	s.kill()
	s.up()
	again := newListener(t, must(net.Listen("tcp", address)))
	again.mu.Lock()
	again.secret = secret
	again.mu.Unlock()
	s.eventually("what waited is heard", func() bool { return again.has("job.failed", failed.ID) })
	for _, l := range []*listener{v, again} {
		l.mu.Lock()
		if len(l.bad) > 0 {
			t.Errorf("signatures: %v", l.bad)
		}
		for id, d := range l.heard {
			if d.Data.Job != nil && (len(d.Data.Job.Document.Spec.Env) > 0 || d.Type == "job.queued") {
				t.Errorf("delivery %s told %+v", id, d)
			}
		}
		l.mu.Unlock()
	}
	other.mu.Lock()
	if other.calls > 0 {
		t.Errorf("an address heard of another project's jobs: %v", other.heard)
	}
	other.mu.Unlock()
	s.wrongWebhooks()
}

func (s *site) wrongWebhooks() {
	t := s.t
	t.Helper()
	if r := s.hora("webhook", "remove", "1"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"hora webhook list has those", []string{"remove", "1"}},
		{"there is no webhook 7", []string{"test", "7"}},
		{"is not encrypted", []string{"add", "http://example.org/x"}},
		{"is no address of a webhook", []string{"add", "example.org/hook"}},
		{`--on: "ended" is none of queued, preparing`, []string{"add", "https://example.org/x", "--on", "ended"}},
		{"takes the number of a webhook", []string{"test", "x"}},
		{"it has add, list, remove and test", []string{"ad"}},
	} {
		if r := s.hora(append([]string{"webhook"}, c.args...)...); r.code == 0 || !strings.Contains(r.errs, c.want) {
			t.Errorf("hora webhook %v: %+v, want %q", c.args, r, c.want)
		}
	}
}

func must(l net.Listener, err error) net.Listener {
	if err != nil {
		panic(err)
	}
	return l
}

// TestRetention: of each kind what is old goes and the rest stays; a project's own times win; content goes with the
// last that names it.
func TestRetention(t *testing.T) {
	t.Parallel() // it waits, most of the time
	s := newSite(t, 2)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.sh"), []byte("echo said; echo kept >outputs/file\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, project := range []string{"brief", "long", "brief"} {
		if r := s.horaIn(dir, "submit", "--project", project, "--follow", "sh", "train.sh"); r.code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	has := func(id int64) string {
		text := ""
		if r := s.hora("logs", fmt.Sprint(id)); strings.Contains(r.out, "said") {
			text += "logs "
		}
		if r := s.hora("metrics", fmt.Sprint(id)); strings.Contains(r.out, "0.5") {
			text += "metrics "
		}
		if r := s.hora("artifacts", fmt.Sprint(id)); strings.Contains(r.out, "file") {
			text += "artifacts "
		}
		if r := s.hora("job", fmt.Sprint(id)); r.code == 0 {
			text += "job"
		}
		return text
	}
	if err := s.client.Report(t.Context(), 2, []client.Reported{{Name: "loss", Value: 0.5}}); err != nil {
		t.Fatal(err)
	}
	if r := s.hora("retention"); r.code != 0 || r.out != "everything is kept for ever\n" {
		t.Errorf("%+v", r)
	}
	if r := s.hora("retention", "long", "--jobs", "900d"); r.code != 0 || r.out != "project long: jobs for 900d\n" {
		t.Errorf("%+v", r)
	}
	s.age()
	r := s.hora("retention", "--all", "--logs", "1h")
	if r.code != 0 || r.out != "all projects: logs for 1h0m0s\n" || !strings.HasPrefix(r.errs, "hora: what they wrote, of 2 jobs that ended before ") {
		t.Errorf("%+v", r)
	}
	s.eventually("the output goes", func() bool { return has(1) == "artifacts job" && has(3) == "artifacts job" })
	if got := has(2); got != "logs metrics artifacts job" {
		t.Errorf("a project with times of its own has %q", got)
	}
	if r := s.hora("logs", "1"); r.code != 0 || r.errs != "hora: job 1: what it wrote was removed, since it was kept as long as hora retention says\n" {
		t.Errorf("%+v", r)
	}
	if r := s.hora("job", "1"); !strings.Contains(r.out, "what it wrote was removed: logs are kept for 1h0m0s") {
		t.Errorf("%+v", r)
	}
	brief := func() bool { return s.hora("retention", "brief", "--jobs", "2h").code == 0 }
	s.eventually("the jobs go", func() bool { return brief() && has(1) == "" && has(3) == "" }) // forgotten by their node
	if got := has(2); got != "logs metrics artifacts job" {
		t.Errorf("a project with times of its own has %q", got)
	}
	waits := shell(1, "true")
	waits.Project, waits.Held = "brief", true
	held := s.submit(waits)
	s.unnamed()
	if got := has(2); got != "logs metrics artifacts job" {
		t.Errorf("after content went: %q", got)
	}
	to := t.TempDir()
	if r := s.hora("artifacts", "2", "--to", to); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if j := s.until(held.ID, in(job.Paused)); j.ID != held.ID {
		t.Error("a job that has not ended went")
	}
	s.wrongRetention()
	s.artifactsGo(2, "kept\n", "echo said; echo kept >outputs/file\n")
	if got := has(2); got != "logs job" {
		t.Errorf("a project that keeps neither metrics nor artifacts has %q", got)
	}
	if r := s.hora("retention", "brief", "--none"); r.code != 0 || r.out != "project brief: no times of its own\n" {
		t.Errorf("%+v", r)
	}
}

// age has all that has ended be three hours older than it was.
func (s *site) age() {
	s.t.Helper()
	s.change("UPDATE jobs SET ended = ended - 10800000000000 WHERE ended > 0")
}

// wrongRetention is refused where it is typed, in one sentence.
func (s *site) wrongRetention() {
	t := s.t
	t.Helper()
	for _, c := range []struct {
		want string
		args []string
	}{
		{"a project or --all", []string{"--logs", "3d"}},
		{"was not told how long", []string{"brief"}},
		{"write it as 90d", []string{"brief", "--logs", "soon"}},
		{`--jobs "365" has no unit: say it, as 365d or 365h`, []string{"brief", "--jobs", "365"}},
		{`--jobs "1e3" has no unit: say it, as 365d or 12h`, []string{"brief", "--jobs", "1e3"}},
		{"logs for 1m0s: what is removed does not come back, so nothing below an hour is taken", []string{"brief", "--logs", "1m"}},
		{"raise jobs", []string{"brief", "--logs", "3d", "--jobs", "2d"}},
		{"leave one of them out", []string{"brief", "--none", "--jobs", "2d"}},
	} {
		if r := s.hora(append([]string{"retention"}, c.args...)...); r.code == 0 || !strings.Contains(r.errs, c.want) {
			t.Errorf("hora retention %v: %+v, want %q", c.args, r, c.want)
		}
	}
}

// artifactsGo has the last job's metrics and artifacts go, and what was in those with them; its code stays.
func (s *site) artifactsGo(id int64, artifact, code string) {
	t := s.t
	t.Helper()
	there := func(text string) bool {
		hash := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
		_, err := os.Stat(filepath.Join(s.dir, "blobs", hash[:2], hash[2:]))
		return err == nil
	}
	if !there(artifact) || !there(code) {
		t.Fatal("what the job has is not there")
	}
	r := s.hora("retention", "long", "--metrics", "1h", "--artifacts", "2h")
	if r.code != 0 || r.out != "project long: metrics for 1h0m0s, artifacts for 2h0m0s\n" {
		t.Errorf("%+v", r)
	}
	s.eventually("what came back goes", func() bool { return !there(artifact) })
	if !there(code) {
		t.Error("the code of a job went with its artifacts")
	}
	story := s.hora("job", fmt.Sprint(id)).out
	for _, want := range []string{"what it reported was removed: metrics", "what came back of outputs/ was removed: artifacts"} {
		if !strings.Contains(story, want) {
			t.Errorf("its story lacks %q: %s", want, story)
		}
	}
}

// put sends content.
func (s *site) put(text string) (string, error) {
	sum := sha256.Sum256([]byte(text))
	hash := fmt.Sprintf("%x", sum)
	return hash, s.client.Put(s.t.Context(), hash, strings.NewReader(text))
}

// unnamed sends content that nothing names: it goes a day after it was last looked for, and nothing else does.
func (s *site) unnamed() {
	t := s.t
	t.Helper()
	hash, err := s.put("nobody names this")
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-48 * time.Hour)
	count := func() (n int) {
		_ = filepath.WalkDir(filepath.Join(s.dir, "blobs"), func(p string, e os.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				n++
				_ = os.Chtimes(p, old, old)
			}
			return nil
		})
		return n
	}
	before := count()
	s.until(s.submit(func() client.Document { d := shell(1, "true"); d.Project = "brief"; return d }()).ID, in(job.Finished))
	s.eventually("content goes", func() bool {
		s.age()
		if r := s.hora("retention", "brief", "--jobs", "2h"); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		_, err := os.Stat(filepath.Join(s.dir, "blobs", hash[:2], hash[2:]))
		return os.IsNotExist(err)
	})
	if after := count(); after != before-1 {
		t.Errorf("of %d contents %d are left: what a job names goes with it alone", before, after)
	}
}
