package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hora/server/client"
)

// otherServer is one that lets a node in and speaks in its own words.
func otherServer(t *testing.T, speak func(conn net.Conn, in *json.Decoder, h Hello)) *Member {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/node" || r.Header.Get("Authorization") != "Bearer joining" {
			http.Error(w, "no", http.StatusNotFound)
			return
		}
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+Upgraded+"\r\n\r\n")
		in := json.NewDecoder(bufio.NewReader(buffered))
		var h Hello
		if err := in.Decode(&h); err != nil {
			t.Error(err)
			return
		}
		speak(conn, in, h)
	}))
	t.Cleanup(s.Close)
	return &Member{
		Hello: Hello{Name: "n", Pool: "p", Slots: 1, Version: "1"}, Local: &Local{Dir: t.TempDir()},
		Token: "joining", Dir: t.TempDir(),
		Server: func() (string, error) { return s.URL, nil }, Say: func(string) {},
	}
}

// TestAServerThatRefusesThisRelease: the node says which protocol it speaks, and ends with the server's sentence.
func TestAServerThatRefusesThisRelease(t *testing.T) {
	const sentence = "the server speaks version 2 of what nodes say, and node n (hora 1) version 1: install the same hora on both"
	m := otherServer(t, func(conn net.Conn, _ *json.Decoder, h Hello) {
		if h.Protocol != Protocol || h.Name != "n" || h.Version != "1" {
			t.Errorf("the node says %+v", h)
		}
		fmt.Fprintf(conn, "{\"error\": %q, \"upgrade\": {\"to\": \"9\"}}\n", sentence)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var fault *client.Fault
	if err := m.Join(ctx); !errors.As(err, &fault) || err.Error() != sentence {
		t.Errorf("the node ends with %v", err)
	}
}

// TestAServerOfALaterRelease: what it says beyond this release's words is passed over, and the node stays until it is
// told to end.
func TestAServerOfALaterRelease(t *testing.T) {
	beats := 0
	m := otherServer(t, func(conn net.Conn, in *json.Decoder, _ Hello) {
		_, _ = io.WriteString(conn, "{\"session\": \"s\", \"beat\": 0.05, \"patience\": 60, \"news\": [1]}\n{\"weather\": \"fair\"}\n{}\n")
		for beats < 3 {
			var w Word
			if in.Decode(&w) != nil {
				return
			}
			if w.Beat > 0 {
				beats++
			}
		}
		_, _ = io.WriteString(conn, "{\"end\": true}\n")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := m.Join(ctx); err != nil || ctx.Err() != nil || beats != 3 {
		t.Errorf("after %d signs of life the node ends with %v, %v", beats, err, ctx.Err())
	}
}

// TestAServerThatANodeDoesNotTrust: the node ends at once, and says what has the address whose fingerprint is another's
// or is missing: it waits for nobody.
func TestAServerThatANodeDoesNotTrust(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	for address, says := range map[string]string{
		s.URL:                                 "whom this machine does not trust: HORA_SERVER needs the whole address, with # and the fingerprint after it, as hora pool token p prints it",
		s.URL + "#" + strings.Repeat("0", 64): "and not the pinned 0000",
	} {
		m := &Member{
			Hello: Hello{Name: "n", Pool: "p", Slots: 1}, Local: &Local{Dir: t.TempDir()}, Token: "joining", Dir: t.TempDir(),
			Server: func() (string, error) { return address, nil }, Named: "HORA_SERVER", Say: func(string) {},
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		err := m.Join(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), ": HORA_SERVER needs the whole address") ||
			strings.Contains(err.Error(), "log in") {
			t.Errorf("the node of %s ends with %v", address, err)
		}
	}
}

// TestWhatANodeSaysAtItsEnd: one that the server ends says so; one whose token was taken back, and whose link was
// closed for that, does not say before that the server is away.
func TestWhatANodeSaysAtItsEnd(t *testing.T) {
	var said []string
	m := otherServer(t, func(conn net.Conn, _ *json.Decoder, _ Hello) {
		_, _ = io.WriteString(conn, "{\"session\": \"s\", \"beat\": 5, \"patience\": 60}\n{\"end\": true}\n")
	})
	m.Say = func(text string) { said = append(said, text) }
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := m.Join(ctx); err != nil || len(said) != 2 ||
		said[1] != "the server has ended node n: pool p was removed, or does not need it any more" {
		t.Errorf("it says %q and ends with %v", said, err)
	}
	said = nil
	times := 0
	m = otherServer(t, func(conn net.Conn, _ *json.Decoder, _ Hello) {
		if times++; times == 1 {
			_, _ = io.WriteString(conn, "{\"session\": \"s\", \"token\": \"taken back\", \"beat\": 5, \"patience\": 60}\n")
		}
	})
	m.Say = func(text string) { said = append(said, text) }
	var fault *client.Fault
	if err := m.Join(ctx); !errors.As(err, &fault) || len(said) != 1 {
		t.Errorf("it says %q and ends with %v", said, err)
	}
}
