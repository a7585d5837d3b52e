package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestASubmissionWhoseAnswerWasLost is sent again until a server answers; one that met no server is not.
func TestASubmissionWhoseAnswerWasLost(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	keys := make(chan string, 10)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			keys <- r.Header.Get("Idempotency-Key")
		}
		c.Close() // killed, and away for a while
		l.Close()
		<-time.After(400 * time.Millisecond)
		if l, err = net.Listen("tcp", address); err != nil {
			t.Error(err)
			return
		}
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			keys <- r.Header.Get("Idempotency-Key")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"id": 7}`)
			l.Close()
		}))
	}()
	j, err := New("http://"+address, "x").Submit(context.Background(), Document{}, "one key")
	if err != nil || j.ID != 7 || <-keys != "one key" || <-keys != "one key" {
		t.Errorf("job %d, %v", j.ID, err)
	}
	begin := time.Now()
	var gone *NoServer
	if _, err := New("http://127.0.0.1:1", "x").Submit(context.Background(), Document{}, "key"); !errors.As(err, &gone) ||
		time.Since(begin) > 5*time.Second {
		t.Errorf("a server that is not there: %v after %v", err, time.Since(begin))
	}
}
