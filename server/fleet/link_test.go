package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"hora/server/backend"
	"hora/server/node"
)

// TestANodeThatComesAtTheEnd: one that is being let in while the server ends does not hold it up.
func TestANodeThatComesAtTheEnd(t *testing.T) {
	f := New(Config{Here: &node.Local{}, Patience: time.Hour, Beat: time.Hour})
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go func() {
		_ = json.NewEncoder(theirs).Encode(node.Hello{Protocol: node.Protocol, Name: "late", Pool: "p", Slots: 1})
		_, _ = io.Copy(io.Discard, theirs)
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Enter(ours, bufio.NewReader(ours), backend.Gate{
			Check: func(*backend.Comer) error { return nil },
			Token: func(*backend.Comer) (string, error) { f.Close(); return "", nil },
		})
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the node is still heard")
	}
}

// greet lets a peer that has proved its token say hello in its own words, and answers what it hears.
func greet(t *testing.T, hello string) (w node.Welcome, f *Fleet) {
	t.Helper()
	f = New(Config{Here: &node.Local{}, Patience: time.Hour, Beat: time.Hour})
	t.Cleanup(f.Close)
	ours, theirs := net.Pipe()
	t.Cleanup(func() { theirs.Close() })
	go f.Enter(ours, bufio.NewReader(ours), backend.Gate{
		Check: func(*backend.Comer) error { return nil },
		Token: func(*backend.Comer) (string, error) { return "own", nil },
		Lives: func(string, [2]int64) bool { return true },
	})
	_ = theirs.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(theirs, hello+"\n"); err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(theirs).Decode(&w); err != nil {
		t.Fatal(err)
	}
	return w, f
}

// TestGreetingsOfOtherReleases: a node of an older or a newer protocol is told both versions and what to do, and has no
// place; one of the same protocol with fields of a later release is let in.
func TestGreetingsOfOtherReleases(t *testing.T) {
	for _, c := range []struct{ hello, want string }{
		{`{"version": "0.1", "name": "old", "pool": "p", "slots": 1}`, "and node old (hora 0.1) version 0: install the same hora on both"},
		{`{"protocol": 2, "version": "9", "name": "new", "pool": "p", "cores": {"all": 8}}`, "and node new (hora 9) version 2: install the same hora on both"},
		{`{"protocol": -1, "name": "odd"}`, "and node odd (hora ) version -1: install the same hora on both"},
	} {
		w, f := greet(t, c.hello)
		if want := "the server speaks version 1 of what nodes say, " + c.want; w.Error != want || w.Session != "" || w.Token != "" {
			t.Errorf("%s hears %+v, and not %q", c.hello, w, want)
		}
		if all, _ := f.Capacity(); len(all) != 0 {
			t.Errorf("%s has become %+v", c.hello, all)
		}
	}
	w, f := greet(t, `{"protocol": 1, "version": "1.9", "name": "later", "pool": "p", "slots": 2, "weather": ["fair"]}`)
	if all, _ := f.Capacity(); w.Error != "" || w.Session == "" || w.Token != "own" || len(all) != 1 || all[0].Slots != 2 {
		t.Errorf("a later release of the same protocol hears %+v and is %+v", w, all)
	}
}

// TestANodeThatCannotQuote: one of an earlier release, which does not know the call, is no fault.
func TestANodeThatCannotQuote(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	dial := func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("tcp", s.Listener.Addr().String())
	}
	l := &link{name: "old", http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
	if err := l.Quote(1, 1, []backend.Line{{Text: "x"}}); err != nil {
		t.Error(err)
	}
	if err := l.Kill(1, 1, "cancelled"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("any other call: %v", err)
	}
}
