package server

import (
	"database/sql"
	"io"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
	"hora/server/fleet"
	"hora/server/node"
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

func newCallSiteIn(t *testing.T, dir string, makes Makes) *callSite {
	t.Helper()
	c := &callSite{t: t, dir: dir, down: make(chan bool, 2)}
	var err error
	if c.st, err = store.Open(dir); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	back := fleet.New(fleet.Config{
		Here: &node.Local{Dir: t.TempDir()}, Key: []byte("gangs"), Patience: time.Minute, Beat: time.Second,
	})
	if c.s, err = New(t.Context(), c.st, back, makes, log); err != nil {
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
