package server

import (
	"bytes"
	"context"
	"database/sql"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hora/server/client"
	"hora/server/store"
)

// TestDeliveriesAndClocks: one that was put off while the clock was ten years ahead goes at once when it is right
// again, and one that fails while the clock jumps ahead is tried again.
func TestDeliveriesAndClocks(t *testing.T) {
	t.Parallel() // it waits, most of the time
	st, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls, fails := make(chan string), atomic.Bool{}
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the context ends with the connection from then on alone
		if fails.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
		select {
		case calls <- r.Header.Get("webhook-id"):
		case <-r.Context().Done():
		}
	}))
	defer hook.Close()
	w := client.Webhook{URL: hook.URL, Secret: secretMark + "c2VjcmV0"}
	now := time.Now()
	if err := st.Do(ctx, func(tx *sql.Tx) (err error) {
		if w.ID, err = store.NewWebhook(tx, &w); err == nil {
			err = store.AddDelivery(tx, w.ID, now.AddDate(10, 0, 0), []byte("{}"))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s := &Server{store: st, hooks: newWebhooks(), log: slog.New(slog.NewTextHandler(&log, nil))}
	s.now = func() time.Time { return now }
	news := make(chan struct{})
	ended := make(chan struct{})
	go func() { s.deliver(ctx, &w, news); close(ended) }()
	heard := func(want string) {
		t.Helper()
		select {
		case id := <-calls:
			if id != want {
				t.Errorf("delivery %s is heard, not %s", id, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("delivery %s is not heard", want)
		}
	}
	heard("msg_1")
	news <- struct{}{} // the first has been noted
	fails.Store(true)
	s.now = func() time.Time { return now.AddDate(10, 0, 0) }
	if err := st.Do(ctx, func(tx *sql.Tx) error { return store.AddDelivery(tx, w.ID, now, []byte("{}")) }); err != nil {
		t.Fatal(err)
	}
	news <- struct{}{}
	heard("msg_2")
	heard("msg_2")     // at once, since this machine's own clock is right
	news <- struct{}{} // the second try has been noted
	cancel()
	<-ended
	if n := strings.Count(log.String(), "call a webhook"); n != 1 {
		t.Errorf("two tries that failed are %d lines of the log, not 1:\n%s", n, log.String())
	}
}

// TestAWebhookThatIsNotReached: why stands there in words, and not in those for a program's calls.
func TestAWebhookThatIsNotReached(t *testing.T) {
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer slow.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for address, says := range map[string]string{
		"http://127.0.0.1:1/x": "nothing listens at 127.0.0.1:1",
		slow.URL:               "it does not answer in time",
		strings.Replace(plain.URL, "http:", "https:", 1): "it speaks http, and no https",
	} {
		h := newWebhooks()
		h.http.Timeout = 100 * time.Millisecond
		_, err := h.send(t.Context(), &client.Webhook{URL: address}, "msg_1", nil)
		if err == nil || err.Error() != says {
			t.Errorf("%s: %v, and not %s", address, err, says)
		}
	}
}
