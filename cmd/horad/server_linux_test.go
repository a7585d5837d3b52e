package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
)

// builtIn names the folder of the programs in a test that this one has started again, elsewhere.
const builtIn = "HORA_TEST_PROGRAMS"

// programs builds hora and horad once, beside each other as the wheels install them.
var programs = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(builtIn); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "hora-server-test-")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"hora", "horad"} {
		c := exec.Command("go", "build", "-o", filepath.Join(dir, name), "hora/cmd/"+name)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if raced {
			c = exec.Command("go", "build", "-race", "-o", filepath.Join(dir, name), "hora/cmd/"+name)
		}
		if out, err := c.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	if os.Getenv(countsIn) != "" {
		if err := count(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if flag.Lookup("test.parallel").DefValue == flag.Lookup("test.parallel").Value.String() {
		_ = flag.Set("test.parallel", "4") // those that are parallel wait, most of the time
	}
	code := m.Run()
	if dir, _ := programs(); dir != "" && os.Getenv(builtIn) == "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// underRace are those tests that have most of the server's goroutines at work. Where they run, a race ends its process.
var underRace = []string{
	"TestQueueAndItsReasons", "TestAKilledServerWithSubmissionsInFlight", "TestAnElasticJobOfTwoNodes", "TestDownNowStartsNothing",
	"TestLinesWithFollowers", "TestStaticPool", "TestLocalPool", "TestReports", "TestWebhooks", "TestSessions", "TestAPreemptedJobGoesOn",
}

// selected skips the other tests in the race run.
func selected(t *testing.T) {
	if testing.Short() && !slices.Contains(underRace, t.Name()) {
		t.Skip("takes long under the race detector, where a selection of these tests runs")
	}
}

// site is a server and what its users have.
type site struct {
	t      *testing.T
	dir    string // of the server
	home   string
	bin    string
	slots  int
	port   string   // a free one without it
	more   []string // flags of hora up
	extra  []string // environment
	log    *os.File // what hora up says goes here, where somebody reads it
	nodes  *os.File // and what nodes say
	cmd    *exec.Cmd
	url    string
	client *client.Client
}

// patience bounds every wait of these tests.
const patience = 60 * time.Second

func newSite(t *testing.T, slots int) *site {
	t.Helper()
	return newSiteIn(t, filepath.Join(t.TempDir(), "server"), slots)
}

func newSiteIn(t *testing.T, dir string, slots int) *site {
	t.Helper()
	selected(t)
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: dir, home: t.TempDir(), bin: bin, slots: slots}
	s.start()
	return s
}

// newSiteWith is a site of one slot whose programs have more in their environment.
func newSiteWith(t *testing.T, extra ...string) *site {
	t.Helper()
	selected(t)
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: filepath.Join(t.TempDir(), "server"), home: t.TempDir(), bin: bin, slots: 1, extra: extra}
	s.start()
	return s
}

// start starts the server, and sees to its end.
func (s *site) start() {
	s.t.Helper()
	s.up()
	s.t.Cleanup(func() {
		if s.cmd == nil {
			return
		}
		if r := s.hora("down", "--now"); r.code != 0 {
			s.t.Errorf("hora down --now: %+v", r)
			_ = s.cmd.Process.Kill()
		}
		_ = s.cmd.Wait()
	})
}

func (s *site) env() []string {
	env := []string{"HOME=" + s.home}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if name != "HOME" && name != "XDG_CONFIG_HOME" && !strings.HasPrefix(name, "HORA_") {
			env = append(env, kv)
		}
	}
	if raced {
		env = append(env, "GORACE=halt_on_error=1 atexit_sleep_ms=20")
	}
	return append(env, s.extra...)
}

// up starts the server, as a user does, and waits for its first line.
func (s *site) up() {
	s.t.Helper()
	s.cmd = exec.Command(filepath.Join(s.bin, "hora"), "up", "--dir", s.dir, "--port", cmp.Or(s.port, "0"), "--slots", fmt.Sprint(s.slots))
	s.cmd.Args = append(s.cmd.Args, s.more...)
	s.cmd.Env, s.cmd.Stderr = s.env(), cmp.Or(s.log, os.Stderr)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	in := bufio.NewReader(out)
	line, err := in.ReadString('\n')
	if err != nil {
		s.t.Fatalf("hora up said %q and no more: %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, in) }()
	var found bool
	if s.url, found = strings.CutPrefix(strings.TrimSpace(line), "hora: serving "); !found {
		s.t.Fatalf("the first line is %q", line)
	}
	token, err := os.ReadFile(filepath.Join(s.dir, "token"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.client = client.New(s.url, strings.TrimSpace(string(token)))
}

// kill ends the server without a word to it.
func (s *site) kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Wait()
}

type said struct {
	code      int
	out, errs string
}

// hora runs the program in a folder of its own.
func (s *site) hora(args ...string) said { return s.horaIn(s.t.TempDir(), args...) }

func (s *site) horaIn(dir string, args ...string) said {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(s.bin, "hora"), args...)
	c.Dir, c.Env = dir, s.env()
	var out, errs strings.Builder
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if ctx.Err() != nil {
		s.t.Fatalf("hora %s did not end; it said %q, %q", strings.Join(args, " "), out.String(), errs.String())
	}
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		s.t.Fatal(err)
	}
	return said{c.ProcessState.ExitCode(), out.String(), errs.String()}
}

func (s *site) submit(d client.Document) client.Job {
	s.t.Helper()
	j, err := s.client.Submit(context.Background(), d, client.Key())
	if err != nil {
		s.t.Fatal(err)
	}
	return j
}

func shell(np int, script string) client.Document {
	return client.Document{Spec: job.Spec{Command: []string{"sh", "-c", script}, NP: np}}
}

// until follows a job until it is as one wants it.
func (s *site) until(id int64, want func(client.Job) bool) client.Job {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var found client.Job
	j, err := s.client.Follow(ctx, id, client.Following{Quiet: true, Rank: -2, State: func(j client.Job) {
		if found.ID == 0 && want(j) {
			found = j
			cancel()
		}
	}})
	switch {
	case found.ID != 0:
		return found
	case err != nil:
		s.t.Fatalf("job %d: %v; it is %+v", id, err, j)
	case !want(j):
		s.t.Fatalf("job %d ended as %+v", id, j)
	}
	return j
}

func ended(j client.Job) bool { return j.State.Ended() }

func in(state job.State) func(client.Job) bool {
	return func(j client.Job) bool { return j.State == state }
}

func TestFirstMinute(t *testing.T) {
	s := newSite(t, 2)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("train.sh", "echo trained by $HORA_RANK with $(cat data.txt); mkdir -p outputs; echo $1 > outputs/result.$HORA_RANK; ls; exit $1\n")
	write("data.txt", "numbers")
	write("secret.env", "not along")
	write(".gitignore", "*.env\n")
	r := s.horaIn(dir, "submit", "-np", "2", "--follow", "sh", "train.sh", "0")
	if r.code != 0 || !strings.Contains(r.out, "[0]<stdout>:trained by 0 with numbers\n") || !strings.Contains(r.out, "[1]<stdout>:trained by 1 with numbers\n") {
		t.Fatalf("%+v", r)
	}
	if strings.Contains(r.out, "secret.env") {
		t.Error("what .gitignore names went along")
	}
	r = s.horaIn(dir, "submit", "--retries", "1", "--name", "a failure", "sh", "train.sh", "7")
	if r.code != 0 || r.out != "2\n" {
		t.Fatalf("%+v", r)
	}
	if r := s.hora("wait", "2"); r.code != 7 {
		t.Errorf("hora wait exits with %d, and the job with 7: %s", r.code, r.errs)
	}
	j, err := s.client.Job(context.Background(), 2)
	if err != nil || len(j.Attempts) != 2 || j.ExitCode != 7 || j.State != job.Failed {
		t.Errorf("%+v, %v", j, err)
	}
	if r := s.hora("logs", "--rank", "0", "1"); r.code != 0 || !strings.HasPrefix(r.out, "[0]<stdout>:trained by 0") || strings.Contains(r.out, "[1]") {
		t.Errorf("%+v", r)
	}
	s.logsSince(1, "trained by 0")
	to := t.TempDir()
	if r := s.hora("artifacts", "--to", to, "1"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if b, err := os.ReadFile(filepath.Join(to, "result.1")); string(b) != "0\n" {
		t.Errorf("outputs/ came back as %q, %v", b, err)
	}
	if r := s.hora("jobs", "--all"); r.code != 0 || !strings.Contains(r.out, "a failure") || !strings.Contains(r.out, "finished") {
		t.Errorf("%+v", r)
	}
	if r := s.hora("job", "2"); !strings.Contains(r.out, "queues again") || !strings.Contains(r.out, "exit code 7") {
		t.Errorf("%+v", r)
	}
	r = s.horaIn(dir, "submit", "--follow", "sh", "train.sh", "7")
	if r.code != 7 || strings.Count(r.errs, "exit code 7") != 1 || !strings.HasSuffix(r.errs, "exit code 7\nhora: job 3: failed\n") {
		t.Errorf("why it failed stands once, and before that it did: %+v", r)
	}
}

// logsSince gives a job a line of two hours ago, and asks for what is no older than that, or younger.
func (s *site) logsSince(id int64, now string) {
	t := s.t
	t.Helper()
	then := time.Now().Add(-2 * time.Hour)
	line, err := json.Marshal(client.Line{Number: 1, At: then, Text: "long ago"})
	if err != nil {
		t.Fatal(err)
	}
	s.change(fmt.Sprintf(`INSERT INTO lines (job, attempt, first, last, begins, ends, codec, block)
		VALUES (%d, 0, 1, 1, %d, %[2]d, 0, CAST('%s' AS BLOB))`, id, then.UnixNano(), line))
	for _, c := range []struct {
		since string
		old   bool
	}{{"3h", true}, {"10800", true}, {"1h", false}, {"90m", false}} {
		r := s.hora("logs", "--since", c.since, fmt.Sprint(id))
		if r.code != 0 || strings.Contains(r.out, "long ago") != c.old || !strings.Contains(r.out, now) {
			t.Errorf("hora logs --since %s: %+v", c.since, r)
		}
	}
	for _, wrong := range []string{"soon", ""} {
		if r := s.hora("logs", "--since", wrong, fmt.Sprint(id)); r.code != 2 || !strings.Contains(r.errs, "--since") {
			t.Errorf("hora logs --since %q: %+v", wrong, r)
		}
	}
	if r := s.hora("logs", "--since", "-5m", fmt.Sprint(id)); r.code != 2 || !strings.Contains(r.errs, "--since") {
		t.Errorf("hora logs --since of a time to come: %+v", r)
	}
}

func TestQueueAndItsReasons(t *testing.T) {
	s := newSite(t, 2)
	first := s.submit(shell(2, "while [ ! -f outputs/go ]; do sleep 0.05; done"))
	s.until(first.ID, in(job.Running))
	second := s.submit(shell(2, "echo second"))
	never := s.submit(shell(5, "true"))
	third := s.submit(shell(1, "echo third"))
	reason := func(id int64, code, text string) {
		t.Helper()
		j := s.until(id, func(j client.Job) bool { return j.Reason != nil && j.Reason.Code == code })
		if !strings.Contains(j.Reason.Text, text) {
			t.Errorf("job %d waits because %q, want %q", id, j.Reason.Text, text)
		}
	}
	reason(second.ID, "slots", "first in pool default: needs 2 slots at once, none is free; job 1 runs without a time limit")
	reason(never.ID, "never", "pool default will never hold it: it needs 5 slots at once")
	if r := s.hora("priority", fmt.Sprint(third.ID), "90"); r.code != 0 || !strings.Contains(r.out, "priority 90") {
		t.Errorf("%+v", r)
	}
	reason(third.ID, "slots", "first in pool default")
	if r := s.hora("pause", fmt.Sprint(second.ID)); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if r := s.hora("cancel", fmt.Sprint(never.ID)); r.code != 0 || !strings.Contains(r.out, "cancelled before it ran") {
		t.Errorf("%+v", r)
	}
	if r := s.hora("cancel", fmt.Sprint(first.ID)); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if j := s.until(first.ID, ended); j.State != job.Cancelled {
		t.Errorf("%+v", j)
	}
	s.until(third.ID, in(job.Finished))
	if j, _ := s.client.Job(context.Background(), second.ID); j.State != job.Paused {
		t.Errorf("job 2 is %s and was paused", j.State)
	}
	if r := s.hora("resume", fmt.Sprint(second.ID)); r.code != 0 {
		t.Errorf("%+v", r)
	}
	s.until(second.ID, in(job.Finished))
	if r := s.hora("cancel", fmt.Sprint(second.ID)); r.code == 0 || !strings.Contains(r.errs, "has ended: cancel comes too late") {
		t.Errorf("%+v", r)
	}
	limited := shell(1, "sleep 600")
	limited.TimeLimit = 0.5
	if j := s.until(s.submit(limited).ID, ended); j.State != job.Failed || !strings.Contains(j.Text, "time limit of 500ms") {
		t.Errorf("%+v", j)
	}
}

// TestPauseOfARunningJobKeepsItsOutputs: the next attempt goes on from what this one has saved, also where the folder
// that went along had a file of that name; and what it saved has come while it ran.
func TestPauseOfARunningJobKeepsItsOutputs(t *testing.T) {
	s := newSite(t, 1)
	dir := t.TempDir()
	for name, text := range map[string]string{"saved": "old\n", "deep": "a file, and then a folder", "left": "as it was\n"} {
		if err := os.MkdirAll(filepath.Join(dir, "outputs"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "outputs", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := s.horaIn(dir, "submit", "sh", "-c", `[ $HORA_SERVER_ATTEMPT -gt 1 ] && { echo "goes on from" $(cat outputs/saved outputs/deep/er outputs/left); exit 0; }
rm outputs/deep; mkdir outputs/deep; echo more >outputs/deep/er; echo new >outputs/saved; echo saved; sleep 600`)
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	id, err := strconv.ParseInt(strings.TrimSpace(r.out), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	_, _ = s.client.Follow(ctx, id, client.Following{Rank: -2, Line: func(client.Line) { cancel() }})
	s.comesBack(id)
	if r := s.hora("pause", fmt.Sprint(id)); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.until(id, in(job.Paused))
	if r := s.hora("resume", fmt.Sprint(id)); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if j := s.until(id, ended); j.State != job.Finished {
		t.Errorf("%+v", j)
	}
	if text := s.text(id); !strings.Contains(text, "goes on from newer more as it was") {
		t.Errorf("it wrote %q", text)
	}
	all, err := s.client.Artifacts(context.Background(), id)
	var names []string
	for _, a := range all {
		names = append(names, a.Path)
	}
	if got := strings.Join(names, " "); err != nil || got != "deep/er saved" {
		t.Errorf("of outputs/ came %q, %v", got, err)
	}
}

// comesBack has what a running job saves come while it runs, and once more when it has saved that again.
func (s *site) comesBack(id int64) {
	t := s.t
	t.Helper()
	to := filepath.Join(t.TempDir(), "saved")
	comes := func(want string) {
		t.Helper()
		s.eventually("outputs/ comes back", func() bool {
			r := s.hora("artifacts", "--to", to, fmt.Sprint(id))
			b, _ := os.ReadFile(filepath.Join(to, "saved"))
			return r.code == 0 && string(b) == want
		})
	}
	comes("new\n")
	saved := filepath.Join(s.dir, "attempts", fmt.Sprintf("%d.1", id), "work", "outputs", "saved")
	if err := os.WriteFile(saved, []byte("newer\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	comes("newer\n")
	if j, err := s.client.Job(context.Background(), id); err != nil || j.State != job.Running {
		t.Errorf("all that time it was to run: %+v, %v", j, err)
	}
}

func TestReports(t *testing.T) {
	s := newSite(t, 2)
	d := shell(2, `python3 -c '
import json, os, socket
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["HORA_REPORT"])
for step in range(1000):
    s.sendall(json.dumps({"rank": int(os.environ["HORA_RANK"]), "step": step, "metrics": {"loss": 1 / (step + 1), "bad": "nan"}}).encode() + b"\n")
'`)
	j := s.until(s.submit(d).ID, ended)
	all, err := s.client.Metrics(context.Background(), j.ID, "loss", 100)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v %v of %+v", all, err, j)
	}
	for rank, m := range all {
		if m.Rank != rank || m.Count != 1000 || m.Min != 0.001 || m.Max != 1 || m.Last != 0.001 ||
			len(m.Points) != 100 || m.Points[99].Step != 999 {
			t.Errorf("%+v", m)
		}
	}
	if r := s.hora("metrics", fmt.Sprint(j.ID)); r.code != 0 || !strings.Contains(r.out, "loss") || strings.Contains(r.out, "e+308") {
		t.Errorf("%+v", r)
	}
	other := shell(1, "exit 3")
	other.Tags = map[string]string{"try": "2"}
	s.compared(j.ID, s.until(s.submit(other).ID, ended).ID)
}

func TestRequestsThatAreWrong(t *testing.T) {
	s := newSite(t, 1)
	post := func(path, body, token string) (int, string) {
		t.Helper()
		req, err := http.NewRequest("POST", s.url+"/api/v1"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		var f client.Fault
		if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, f.Detail
	}
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{"/jobs", `{"spec": {"command": ["true"]}, "priorty": 3}`, 422, "there is no field priorty: did you mean priority?"},
		{"/jobs", `{"spec": {"command": ["true"], "restart": 2}}`, 422, `did you mean restarts?`},
		{"/jobs", `{"spec": {}}`, 422, "there is no command to start"},
		{"/jobs", `{"spec": {"command": ["true"], "hosts": "a:4"}}`, 422, "the server says hosts itself"},
		{"/jobs", `{"spec": {"command": ["true"]}, "pool": "p9"}`, 409, "there is no pool p9: take one of default"},
		{"/jobs", `{"spec": {"command": ["true"]}, "priority": 101}`, 422, "priority: 101 is too large: give a number from 0 to 100"},
		{"/jobs/77/cancel", ``, 404, "there is no job 77"},
	} {
		if status, says := post(c.path, c.body, s.client.Token); status != c.status || !strings.Contains(says, c.says) {
			t.Errorf("%s %s: %d %q, want %d %q", c.path, c.body, status, says, c.status, c.says)
		}
	}
	if status, says := post("/jobs", `{"spec": {"command": ["true"]}}`, "wrong"); status != 401 || !strings.Contains(says, "token") {
		t.Errorf("%d %q", status, says)
	}
	key := client.Key()
	a, err1 := s.client.Submit(context.Background(), shell(1, "true"), key)
	b, err2 := s.client.Submit(context.Background(), shell(1, "true"), key)
	if err1 != nil || err2 != nil || a.ID != b.ID {
		t.Errorf("sent twice with one key: jobs %d and %d, %v, %v", a.ID, b.ID, err1, err2)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"submit", "--priorty", "3", "true"}, "did you mean --priority?"},
		{[]string{"submit", "-H", "a:4", "true"}, "-H is not for jobs of a server"},
		{[]string{"submit", "--memory", "lots", "true"}, "write it as 500MiB or 8GiB"},
		{[]string{"job", "x"}, `"x" is no job`},
		{[]string{"up", "--dir", s.dir, "--port", "0"}, "another server has this folder open, at " + s.url + ": HORA_SERVER=" + s.url + " hora down ends it"},
		{[]string{"up", "--dir", t.TempDir(), "--listen", "everywhere", "--port", "0"}, "0.0.0.0 for all of them"},
		{[]string{"up", "--dir", t.TempDir(), "--listen", "192.0.2.77", "--port", "0"}, "does not have the address"},
		{[]string{"up", "--dir", t.TempDir(), "--tls-key", "k", "--port", "0"}, "belong together"},
		{[]string{"login", "http://192.0.2.77:1"}, "is not encrypted"},
	} {
		if r := s.hora(c.args...); r.code == 0 || !strings.Contains(r.errs, c.says) {
			t.Errorf("hora %s: %+v, want %q", strings.Join(c.args, " "), r, c.says)
		}
	}
}

func TestQuotas(t *testing.T) {
	s := newSite(t, 2)
	if r := s.hora("quota", "small", "--slots", "1", "--max", "1"); r.code != 0 || r.out != "project small: 1 slot\n" {
		t.Fatalf("%+v", r)
	}
	if r := s.hora("quota", "small", "--slots", "2", "--max", "1"); r.code == 0 || !strings.Contains(r.errs, "--max 1 is below --slots 2") {
		t.Errorf("%+v", r)
	}
	s.kill() // it is on the disk
	s.up()
	d := shell(1, "while [ ! -f outputs/go ]; do sleep 0.05; done")
	d.Project = "small"
	first := s.submit(d)
	s.until(first.ID, in(job.Running))
	second := s.submit(d)
	j := s.until(second.ID, func(j client.Job) bool { return j.Reason != nil && j.Reason.Code == "quota" })
	if !strings.Contains(j.Reason.Text, "project small has 1 of the 1 slot it may have") {
		t.Error(j.Reason.Text)
	}
	s.until(s.submit(shell(1, "true")).ID, in(job.Finished)) // others have the free slot
	if r := s.hora("projects"); r.code != 0 || !strings.Contains(r.out, "small") || !strings.Contains(r.out, "1 job") {
		t.Errorf("%+v", r)
	}
	if r := s.hora("quota", "small"); r.code != 0 || r.out != "project small: 1 slot\n" {
		t.Errorf("%+v", r)
	}
	if r := s.hora("quota", "small", "--none"); r.code != 0 || r.out != "project small: none\n" {
		t.Errorf("%+v", r)
	}
	s.until(second.ID, in(job.Running))
}
