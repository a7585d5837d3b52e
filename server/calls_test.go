package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"hora/job"
	"hora/job/schedule"
	"hora/server/client"
	"hora/server/fleet"
	"hora/server/node"
	"hora/server/snapshot"
	"hora/server/store"
)

// callSite is a server in this process, on a machine without slots, and who calls it.
type callSite struct {
	t      *testing.T
	dir    string
	st     *store.Store
	s      *Server
	url    string
	client *client.Client
	down   chan bool
}

// soon bounds every wait of these tests.
const soon = 60 * time.Second

func newCallSite(t *testing.T, makes Makes) *callSite {
	return newCallSiteIn(t, t.TempDir(), makes)
}

// newCallSiteIn also has some nodes that are always there.
func newCallSiteIn(t *testing.T, dir string, makes Makes, nodes ...schedule.Node) *callSite {
	t.Helper()
	c := &callSite{t: t, dir: dir, down: make(chan bool, 2)}
	var err error
	if c.st, err = store.Open(dir); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	back := fleet.New(fleet.Config{
		Here: &node.Local{Dir: t.TempDir(), Nodes: nodes}, Key: []byte("gangs"), Patience: time.Minute, Beat: time.Second,
	})
	if c.s, err = New(t.Context(), c.st, back, makes, []byte("tokens"), log); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(c.s.Handler(Settings{
		Version: "test", Token: "owner", Down: func(now bool) { c.down <- now },
	}))
	c.url, c.client = web.URL, client.New(web.URL, "owner")
	t.Cleanup(func() {
		c.close()
		web.CloseClientConnections()
		web.Close()
	})
	return c
}

func (c *callSite) close() {
	c.s.Close()
	_ = c.st.Close()
}

// submit makes a job, which waits.
func (c *callSite) submit() int64 {
	c.t.Helper()
	j, err := c.client.Submit(c.t.Context(), client.Document{Spec: job.Spec{Command: []string{"true"}}}, client.Key())
	if err != nil {
		c.t.Fatal(err)
	}
	return j.ID
}

// become has a job be as f makes it, and followers look.
func (c *callSite) become(id int64, f func(l *live)) {
	c.t.Helper()
	if err := c.s.do(func() { f(c.s.live[id]) }); err != nil {
		c.t.Fatal(err)
	}
	c.s.news.wake(id)
}

func runsNow(l *live) {
	l.job.State, l.attempt = job.Running, &client.Attempt{Number: 1, Shares: []client.Share{{Node: "far", Slots: 1}}}
}

// TestDownNowWaitsForASlowEnd: a call may take as long as it needs, whatever was sent with it; a job that takes its
// time to end is no reason to let others start.
func TestDownNowWaitsForASlowEnd(t *testing.T) {
	t.Parallel() // it waits, most of the time
	c := newCallSiteIn(t, t.TempDir(), nil, schedule.Node{Name: "far", Pool: "another", Slots: 1})
	id := c.submit()
	c.become(id, runsNow)
	answer := make(chan string, 2)
	// With a key what is sent has come before the HTTP library waits for it.
	for _, key := range []string{"", client.Key()} {
		go func() {
			r, err := http.NewRequest("POST", c.url+"/api/v1/down", strings.NewReader(`{"now": true}`))
			if err == nil {
				r.Header = http.Header{"Authorization": {"Bearer owner"}, "Content-Type": {"application/json"}, keyHeader: {key}}
			}
			a, err := http.DefaultClient.Do(r)
			if err != nil {
				answer <- err.Error()
				return
			}
			b, _ := io.ReadAll(a.Body)
			a.Body.Close()
			answer <- a.Status + " " + string(b)
		}()
	}
	select {
	case text := <-answer:
		t.Fatalf("the job runs, and down answers %s", text)
	case <-time.After(6500 * time.Millisecond): // longer than the HTTP library waits for what is sent
	}
	c.become(id, func(l *live) { l.job.State, l.attempt = job.Cancelled, nil })
	for range 2 {
		select {
		case text := <-answer:
			if !strings.HasPrefix(text, "200") {
				t.Error(text)
			}
		case <-time.After(soon):
			t.Fatal("the job has ended, and down does not answer")
		}
	}
	if now := <-c.down; !now {
		t.Error("the server ends without --now")
	}
}

// TestDownNowAndAJobThatEndsAnyway: one that was ending when it was to be cancelled, and queues again, is waited for
// until it does not run, and not for ever.
func TestDownNowAndAJobThatEndsAnyway(t *testing.T) {
	c := newCallSite(t, nil)
	id := c.submit()
	c.become(id, func(l *live) { runsNow(l); l.finishing = true })
	answer := make(chan error, 1)
	go func() {
		_, err := c.s.CancelAll(t.Context())
		answer <- err
	}()
	select {
	case err := <-answer:
		t.Fatalf("the job runs, and CancelAll answers %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	c.become(id, func(l *live) { l.job.State, l.attempt, l.finishing = job.Queued, nil, false })
	select {
	case err := <-answer:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("nothing runs, and CancelAll waits")
	}
}

// TestWhoLeavesDownNow: nothing ends then, and jobs that wait may start again.
func TestWhoLeavesDownNow(t *testing.T) {
	c := newCallSite(t, nil)
	id := c.submit()
	c.become(id, runsNow)
	ctx, leave := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	go func() {
		_, err := c.client.Down(ctx, true)
		answer <- err
	}()
	ending := func() (yes bool) {
		_ = c.s.do(func() { yes = c.s.ending })
		return yes
	}
	for end := time.Now().Add(soon); !ending(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("down has not begun")
		}
	}
	leave()
	if err := <-answer; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for end := time.Now().Add(soon); ending(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("who called has left, and no job may start")
		}
	}
	f, _ := fault(fmt.Errorf("read: %w", context.Canceled)).(interface{ GetStatus() int })
	if f.GetStatus() != http.StatusServiceUnavailable {
		t.Errorf("a call whose caller has left answers %d", f.GetStatus())
	}
}

// TestWhatIsSentMayComeSlowly: the next part of it is waited for, for so long, and nothing ends what is done then.
func TestWhatIsSentMayComeSlowly(t *testing.T) {
	t.Parallel() // it waits, most of the time
	const within = 300 * time.Millisecond
	read, worked := make(chan error, 1), make(chan error, 1)
	s := httptest.NewServer(patient(within, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		read <- err
		select {
		case <-r.Context().Done():
		case <-time.After(3 * within):
		}
		worked <- r.Context().Err()
	})))
	defer s.Close()
	send := func(pause time.Duration) {
		in, out := io.Pipe()
		go func() {
			for range 4 {
				_, _ = io.WriteString(out, "part")
				<-time.After(pause)
			}
			out.Close()
		}()
		if r, err := http.Post(s.URL, "text/plain", in); err == nil {
			r.Body.Close()
		}
	}
	send(within / 3) // longer than within, all in all
	if err := <-read; err != nil {
		t.Errorf("what came slowly was read with %v", err)
	}
	if err := <-worked; err != nil {
		t.Errorf("and the call ended with %v", err)
	}
	send(4 * within)
	cut := (*refusal)(nil)
	if err := <-read; !errors.As(cutShort(err), &cut) || cut.status != http.StatusRequestTimeout {
		t.Errorf("what stayed away was read with %v", err)
	}
}

// TestManyContentsAtOnce: a folder may have many files.
func TestManyContentsAtOnce(t *testing.T) {
	c := newCallSite(t, nil)
	var hashes []string
	for i := range 20_000 {
		sum := sha256.Sum256([]byte(fmt.Sprint(i)))
		hashes = append(hashes, hex.EncodeToString(sum[:]))
	}
	if err := c.client.Put(t.Context(), hashes[7], strings.NewReader("7")); err != nil {
		t.Fatal(err)
	}
	missing, err := c.client.Missing(t.Context(), hashes)
	if err != nil || len(missing) != len(hashes)-1 || slices.Contains(missing, hashes[7]) {
		t.Errorf("of %d contents, one of them here, %d are missing: %v", len(hashes), len(missing), err)
	}
}

// TestLinesSinceAMoment come whole, also where those before it stand in the same block as the first of them.
func TestLinesSinceAMoment(t *testing.T) {
	c := newCallSite(t, nil)
	id := c.submit()
	begin := time.Now().UTC().Truncate(time.Second)
	const lines, block = 8000, 4000 // as an attempt that has ended is kept
	for first := 1; first <= lines; first += block {
		var all []client.Line
		for n := first; n < first+block; n++ {
			at := begin.Add(time.Duration(n) * time.Second)
			all = append(all, client.Line{Attempt: 1, Number: uint64(n), At: at, Text: "x"})
		}
		if err := c.st.Do(t.Context(), func(tx *sql.Tx) error { return store.AddLines(tx, id, 1, all) }); err != nil {
			t.Fatal(err)
		}
	}
	since := begin.Add(3990 * time.Second)
	count, last := 0, uint64(0)
	err := c.client.Lines(t.Context(), id, client.Following{Rank: -2, Since: since}, func(l client.Line) {
		count, last = count+1, l.Number
	})
	if err != nil || count != 4011 || last != lines {
		t.Errorf("since line 3990 of %d there are %d lines, the last one %d: %v", lines, count, last, err)
	}
}

// TestAJobsListHasItOnce: a list that a job's own token reads has an end.
func TestAJobsListHasItOnce(t *testing.T) {
	c := newCallSite(t, nil)
	id := c.submit()
	c.submit()
	token, _, err := c.s.addPass(t.Context(), &store.Pass{Pass: client.Pass{Job: id}})
	if err != nil {
		t.Fatal(err)
	}
	own := client.New(c.url, token)
	var found []int64
	for cursor, pages := "", 0; pages < 5; pages++ {
		p, err := own.Jobs(t.Context(), nil, "", cursor, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range p.Jobs {
			found = append(found, j.ID)
		}
		if cursor = p.Next; cursor == "" {
			break
		}
	}
	if !slices.Equal(found, []int64{id}) {
		t.Errorf("the token of job %d lists %v", id, found)
	}
	if p, err := own.Jobs(t.Context(), []string{"failed"}, "", "", 10); err != nil || len(p.Jobs) != 0 {
		t.Errorf("of jobs that failed it lists %+v, %v", p.Jobs, err)
	}
}

// TestAnAcceptedFolderStays: what a job's folder is made of counts as new once the job is taken, however long ago it
// was sent.
func TestAnAcceptedFolderStays(t *testing.T) {
	c := newCallSite(t, nil)
	put := func(content []byte) string {
		sum := sha256.Sum256(content)
		hash := hex.EncodeToString(sum[:])
		if err := c.client.Put(t.Context(), hash, bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
		return hash
	}
	file := put([]byte("print(1)"))
	m := snapshot.Manifest{Files: []snapshot.File{{Path: "train.py", Mode: 0o644, Size: 8, Hash: file}}}
	list, name, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if is := put(list); is != name {
		t.Fatal(is, name)
	}
	old := time.Now().Add(-48 * time.Hour)
	for _, hash := range []string{file, name} {
		if err := os.Chtimes(c.st.BlobFile(hash), old, old); err != nil {
			t.Fatal(err)
		}
	}
	d := client.Document{Spec: job.Spec{Command: []string{"true"}}, Code: name}
	if _, err := c.client.Submit(t.Context(), d, client.Key()); err != nil {
		t.Fatal(err)
	}
	for what, hash := range map[string]string{"its file": file, "its list": name} {
		info, err := os.Stat(c.st.BlobFile(hash))
		if err != nil || time.Since(info.ModTime()) > time.Hour {
			t.Errorf("the folder was accepted, and %s is %v old: %v", what, time.Since(info.ModTime()), err)
		}
	}
}

// TestABrowserThatIsLetInIsRecorded, as each that is made and opens something is.
func TestABrowserThatIsLetInIsRecorded(t *testing.T) {
	c := newCallSite(t, nil)
	r, err := http.Get(c.url + "/?token=owner")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusOK || len(r.Cookies()) != 1 {
		t.Fatalf("%d, %v", r.StatusCode, r.Cookies())
	}
	all, err := c.st.Deeds(t.Context(), 0, 10)
	if err != nil || len(all) != 1 || all[0].What != "sign-in" || all[0].Who != "owner" || all[0].Target != "/" {
		t.Errorf("it is recorded as %+v, %v", all, err)
	}
}

// TestDownNowWithANodeThatIsAway: what runs there is told to end when that is back, which nobody waits for.
func TestDownNowWithANodeThatIsAway(t *testing.T) {
	t.Parallel() // it waits, most of the time
	c := newCallSite(t, nil)
	id := c.submit()
	c.become(id, func(l *live) {
		runsNow(l)
		l.attempt.Shares[0].Node = "gone"
	})
	began := time.Now()
	a, err := c.client.Down(t.Context(), true)
	took := time.Since(began)
	if err != nil || a.Running != 1 || a.Left != 1 || took < unheardLonger || took > 3*unheardLonger {
		t.Errorf("%+v, %v after %v", a, err, took)
	}
	var stop client.Outcome
	if err := c.s.do(func() { stop = c.s.live[id].stop }); err != nil || stop != client.Stopped {
		t.Errorf("it is %q, %v", stop, err)
	}
}
