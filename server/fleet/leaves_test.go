package fleet

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"hora/server/backend"
	"hora/server/client"
	"hora/server/node"
)

// hung is a fleet with a node that answers nothing about files, as one whose disk hangs; asked is told of each
// question.
func hung(t *testing.T) (f *Fleet, asked chan string) {
	t.Helper()
	f, asked = New(Config{Here: &node.Local{}, Patience: time.Hour, Beat: time.Hour}), make(chan string, 100)
	over := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/outputs", "/output":
			asked <- r.URL.Path
			select {
			case <-r.Context().Done():
			case <-over:
			}
		}
	}))
	t.Cleanup(func() { close(over); s.Close() })
	ours, theirs := net.Pipe()
	t.Cleanup(func() { theirs.Close() })
	dial := func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("tcp", s.Listener.Addr().String())
	}
	l := &link{name: "far", conn: ours, ended: make(chan struct{})}
	l.http = &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	f.members["far"] = &member{hello: node.Hello{Name: "far", Pool: "p"}, link: l}
	return f, asked
}

// within fails unless it returns.
func within(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s does not return", what)
	}
}

// TestANodeWhoseDiskHangsHoldsNothingUp: what a gang has left there is asked for while it goes on, and no more once it
// is over; a file of it for as long as who watches waits.
func TestANodeWhoseDiskHangsHoldsNothingUp(t *testing.T) {
	f, asked := hung(t)
	g := backend.Gang{Job: 1, Attempt: 1, Document: client.Document{Pool: "p"}}
	r := f.runOf(key{1, 1})
	for _, slots := range []int{1, 0} {
		now := g
		now.Shares = []client.Share{{Node: "first", Slots: 1}, {Node: "far", Slots: slots}}
		r.declare(&now)
	}
	if what := <-asked; what != "/outputs" {
		t.Fatalf("it is asked for %s", what)
	}
	within(t, "to take the turn", func() {
		if r.wait(t.Context()) == nil {
			<-r.turn
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	within(t, "to open a file", func() {
		if file, err := f.artifact(had{"p", "far", 1, 1}, "model").Open(ctx); err == nil {
			file.Close()
			t.Error("there is a file")
		}
	})
	within(t, "to forget it", func() {
		if err := f.Kill(g.Ref(), backend.Over); err != nil {
			t.Error(err)
		}
	})
	within(t, "to close the fleet", f.Close)
}

// TestFilesAreListedInTime: a node that does not say which files it has is given so much time, which is told of.
func TestFilesAreListedInTime(t *testing.T) {
	f, _ := hung(t)
	defer f.Close()
	f.lists = 20 * time.Millisecond
	within(t, "to list files", func() {
		all := f.files(t.Context(), had{"p", "far", 1, 1})
		if len(all) != 1 || all[0].Missing == nil || !all[0].Missing.Late || all[0].From != "far" {
			t.Errorf("it is told %+v", all)
		}
	})
}
