package fleet

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"hora/server/backend"
	"hora/server/client"
	"hora/server/node"
)

// TestWhoIsToldAndWhoBegins: a gang that runs is told its shares on its first node, where it begins nowhere anew; on
// the others the parts that it has there now begin.
func TestWhoIsToldAndWhoBegins(t *testing.T) {
	f := New(Config{Here: &node.Local{}, Patience: time.Hour, Beat: time.Hour})
	defer f.Close()
	type start struct {
		node string
		tell bool
	}
	starts := make(chan start, 10)
	for _, name := range []string{"one", "two"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/start" {
				http.NotFound(w, r)
				return
			}
			var g node.Gang
			if err := json.NewDecoder(r.Body).Decode(&g); err != nil {
				t.Error(err)
			}
			starts <- start{name, g.Tell}
		}))
		defer s.Close()
		ours, theirs := net.Pipe()
		defer theirs.Close()
		dial := func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("tcp", s.Listener.Addr().String())
		}
		l := &link{name: name, conn: ours, ended: make(chan struct{})}
		l.http = &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
		f.members[name] = &member{hello: node.Hello{Name: name, Pool: "p"}, link: l}
	}
	r := f.runOf(key{1, 1})
	r.hub = []string{"127.0.0.1:1"}
	r.take = func([]backend.Record) error { return nil }
	g := backend.Gang{
		Job: 1, Attempt: 1, Document: client.Document{Pool: "p"}, Tell: true,
		Shares: []client.Share{{Node: "one", Slots: 1}, {Node: "two", Slots: 1}},
	}
	within(t, "the start", func() {
		if err := f.Start(t.Context(), g); err != nil {
			t.Error(err)
		}
	})
	want := map[start]bool{{"one", true}: true, {"two", false}: true}
	for range 2 {
		select {
		case s := <-starts:
			if !want[s] {
				t.Errorf("%+v", s)
			}
			delete(want, s)
		case <-time.After(time.Minute):
			t.Fatalf("%v is not started", want)
		}
	}
}
