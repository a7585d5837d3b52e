package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// silence is how long a server may say nothing in these tests.
const silence = 400 * time.Millisecond

// stoppable is a server that can be stopped: it still takes connections, and answers nothing.
type stoppable struct {
	*httptest.Server
	stopped atomic.Bool
	over    chan struct{}
}

func newStoppable(t *testing.T, h http.HandlerFunc) (*stoppable, *Client) {
	s := &stoppable{over: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.stopped.Load() {
			<-s.over
			return
		}
		if r.URL.Path == "/api/v1/about" {
			_, _ = io.WriteString(w, "{}")
			return
		}
		h(w, r)
	}))
	t.Cleanup(func() {
		close(s.over)
		s.CloseClientConnections()
		s.Close()
	})
	c := New(s.URL, "x")
	c.Silence = silence
	return s, c
}

// bounded is what a call answers that ends within three times the bound; it fails the test where that does not.
func bounded(t *testing.T, what string, bound time.Duration, call func() error) error {
	t.Helper()
	answer := make(chan error, 1)
	begin := time.Now()
	go func() { answer <- call() }()
	select {
	case err := <-answer:
		if took := time.Since(begin); took > 3*bound {
			t.Errorf("%s ended after %v, and its bound is %v", what, took, bound)
		}
		return err
	case <-time.After(30 * time.Second):
		t.Fatalf("%s does not end", what)
		return nil
	}
}

// TestAServerThatWasStopped counts as away: who asks it, changes something or follows a job hears so.
func TestAServerThatWasStopped(t *testing.T) {
	var s *stoppable
	s, c := newStoppable(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "event: state\ndata: {\"id\": 1, \"state\": \"running\"}\n\n")
		w.(http.Flusher).Flush()
		<-s.over
	})
	heard, lost := make(chan struct{}), atomic.Int64{}
	followed := make(chan error, 1)
	go func() {
		_, err := c.Follow(t.Context(), 1, Following{
			Rank: -2, State: func(Job) { close(heard) }, Lost: func(error) { lost.Add(1) },
		})
		followed <- err
	}()
	<-heard
	s.stopped.Store(true)
	says := func(what string, err error) {
		t.Helper()
		var gone *NoServer
		if !errors.As(err, &gone) || !strings.Contains(err.Error(), "it has stopped answering") || !strings.Contains(err.Error(), "hora up") {
			t.Errorf("%s says %v", what, err)
		}
	}
	says("a follower", bounded(t, "a follower", silence*4/3, func() error { return <-followed }))
	if lost.Load() == 0 {
		t.Error("the follower was not told that the server is away")
	}
	says("a list", bounded(t, "a list", silence, func() error { _, err := c.Jobs(t.Context(), nil, "", "", 10); return err }))
	says("who begins to follow", bounded(t, "who begins to follow", silence*4/3, func() error {
		_, err := c.Follow(t.Context(), 1, Following{Quiet: true, Rank: -2})
		return err
	}))
	err := bounded(t, "a change", silence, func() error { _, err := c.Do(t.Context(), 1, "cancel"); return err })
	if says("a change", err); err == nil || !strings.Contains(err.Error(), "it may have done it") {
		t.Error(err)
	}
}

// TestWhatTakesLong is waited for while the server lives: an answer, content that comes, content that goes, and a job
// that says nothing between two beats.
func TestWhatTakesLong(t *testing.T) {
	const pause = 3 * silence
	_, c := newStoppable(t, func(w http.ResponseWriter, r *http.Request) {
		flush := w.(http.Flusher).Flush
		switch {
		case r.Method == http.MethodPut:
			<-time.After(pause)
			n, _ := io.Copy(io.Discard, r.Body)
			w.Header().Set("X-Length", fmt.Sprint(n))
		case r.Method == http.MethodGet && strings.Contains(r.URL.Path, "blobs"):
			_, _ = io.WriteString(w, "one, ")
			flush()
			<-time.After(pause)
			_, _ = io.WriteString(w, "two")
		case strings.HasSuffix(r.URL.Path, "follow"):
			_, _ = io.WriteString(w, "event: state\ndata: {\"id\": 1}\n\n")
			flush()
			<-time.After(pause)
			_, _ = io.WriteString(w, "event: end\ndata: {\"id\": 1, \"state\": \"finished\"}\n\n")
		default:
			_, _ = io.Copy(io.Discard, r.Body)
			<-time.After(pause)
			_, _ = io.WriteString(w, "{}")
		}
	})
	ctx := context.Background()
	if _, err := c.Down(ctx, true); err != nil {
		t.Errorf("a call that takes long: %v", err)
	}
	if err := c.Put(ctx, "abc", io.LimitReader(zeros{}, 64<<20)); err != nil {
		t.Errorf("content that goes slowly: %v", err)
	}
	in, err := c.Get(ctx, hashOf([]byte("one, two")))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(in)
	if in.Close(); err != nil || string(b) != "one, two" {
		t.Errorf("content that comes slowly: %q, %v", b, err)
	}
	lost := 0
	j, err := c.Follow(ctx, 1, Following{Quiet: true, Rank: -2, Lost: func(error) { lost++ }})
	if err != nil || j.ID != 1 || lost > 0 {
		t.Errorf("a silent job: %+v, %v, lost %d times", j, err, lost)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
