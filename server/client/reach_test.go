package client

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestAStoppedServerOverTLS counts as away as late as one without: its kernel takes the connection, and the handshake
// is not answered.
func TestAStoppedServerOverTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New("https://127.0.0.1:1", "x")
		c.proxy = nil
		c.HTTP.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
			mine, theirs := net.Pipe()
			t.Cleanup(func() { theirs.Close() })
			return mine, nil
		}
		begin := time.Now()
		_, err := c.Jobs(t.Context(), nil, "", "", 10)
		if err == nil || !strings.Contains(err.Error(), "it has stopped answering") ||
			!strings.Contains(err.Error(), "have it go on, or end it and start it again with hora up") {
			t.Errorf("it says %v", err)
		}
		if took := time.Since(begin); took != silentFor {
			t.Errorf("it says so after %v, and not after %v", took, silentFor)
		}
		<-time.After(time.Hour) // until what was left open has ended
	})
}

// TestWhyAServerIsNotReached stands in a sentence, with what to do next, and in nobody's words for calls.
func TestWhyAServerIsNotReached(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secured := httptest.NewUnstartedServer(http.NotFoundHandler())
	secured.Config.ErrorLog = log.New(io.Discard, "", 0)
	secured.StartTLS()
	defer secured.Close()
	closed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			conn.Close()
		}
	}))
	defer closed.Close()
	for _, c := range []struct{ address, says string }{
		{"http://127.0.0.1:1", "nothing listens at 127.0.0.1:1: start it with hora up, or name another with HORA_SERVER"},
		{"https://127.0.0.1:1", "nothing listens at 127.0.0.1:1: start it with hora up, or name another with HORA_SERVER"},
		{closed.URL, "it closed the connection before it had answered: start it with hora up"},
		{strings.Replace(plain.URL, "http:", "https:", 1), "it speaks http, and no https: give its address as hora up prints it"},
		{strings.Replace(secured.URL, "https:", "http:", 1), "speaks https: give the whole address that hora up prints, which begins with https://"},
		{secured.URL, "whom this machine does not trust: give the whole address that hora up prints, with # and the fingerprint"},
		{secured.URL + "#" + strings.Repeat("0", 64), "and not the pinned 0000"},
	} {
		_, asked := New(c.address, "x").About(t.Context())
		_, _, linked := New(c.address, "x").Upgrade(t.Context(), "/node", "test")
		for _, err := range []error{asked, linked} {
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "tcp") {
				t.Errorf("%s: %v, and not %q", c.address, err, c.says)
			}
		}
	}
}

// TestWhoFollowsAServerThatIsNotTrusted waits for nothing.
func TestWhoFollowsAServerThatIsNotTrusted(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	for _, pin := range []string{"", "#" + strings.Repeat("0", 64)} {
		err := bounded(t, "who follows", time.Second, func() error {
			_, err := New(s.URL+pin, "x").Follow(t.Context(), 1, Following{Quiet: true, Rank: -2})
			return err
		})
		var gone *NoServer
		if !errors.As(err, &gone) || !gone.Distrusted() {
			t.Errorf("%q: %v", pin, err)
		}
	}
}
