package server

import (
	"bytes"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hora/server/store"
)

// onceSite makes one token a call, as the API does.
type onceSite struct {
	t    *testing.T
	a    *api
	dir  string
	made atomic.Int64
	fail bool          // it ends before it has answered
	slow chan struct{} // it waits for this before it answers
}

func newOnceSite(t *testing.T) *onceSite {
	o := &onceSite{t: t, dir: t.TempDir()}
	st, err := store.Open(o.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	o.a = &api{Server: &Server{store: st, log: slog.New(slog.NewTextHandler(io.Discard, nil)), ctx: t.Context()}}
	return o
}

func (o *onceSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := o.made.Add(1)
	if err := o.a.store.Do(r.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO users (name, added) VALUES (?, 1)", fmt.Sprintf("user %d", n))
		return err
	}); err != nil {
		o.t.Error(err)
	}
	if o.slow != nil {
		<-o.slow
	}
	if o.fail {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "the secret word of call %d", n)
}

func (o *onceSite) call(method, token, key, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/api/v1"+path, strings.NewReader(body))
	r.Header.Set(keyHeader, key)
	w := httptest.NewRecorder()
	func() {
		defer func() { _ = recover() }()
		o.a.once(token, o).ServeHTTP(w, r)
	}()
	return w
}

// TestACallWithAKeyIsMadeOnce: what comes again, at the same time too, answers the same; another call with the key is
// refused in a sentence, and another caller's key is another one.
func TestACallWithAKeyIsMadeOnce(t *testing.T) {
	o := newOnceSite(t)
	o.slow = make(chan struct{})
	var all sync.WaitGroup
	answers := make([]*httptest.ResponseRecorder, 8)
	for i := range answers {
		all.Go(func() { answers[i] = o.call("POST", "t1", "k", "/tokens", `{"label": "a"}`) })
	}
	close(o.slow)
	all.Wait()
	for _, w := range answers {
		if w.Code != 201 || w.Body.String() != "the secret word of call 1" || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
		}
	}
	if n := o.made.Load(); n != 1 {
		t.Fatalf("it was made %d times", n)
	}
	for _, c := range [][2]string{{"/tokens", `{"label": "b"}`}, {"/webhooks", `{"label": "a"}`}} {
		if w := o.call("POST", "t1", "k", c[0], c[1]); w.Code != 422 || !strings.Contains(w.Body.String(), "take a new one for each call") {
			t.Errorf("the key for another call: %d %s", w.Code, w.Body)
		}
	}
	if w := o.call("POST", "t2", "k", "/tokens", `{"label": "b"}`); w.Code != 201 || o.made.Load() != 2 {
		t.Errorf("another caller's: %d %s", w.Code, w.Body)
	}
	if w := o.call("POST", "t1", strings.Repeat("k", 201), "/tokens", ""); w.Code != 422 || o.made.Load() != 2 {
		t.Errorf("a long key: %d %s", w.Code, w.Body)
	}
	files, err := filepath.Glob(filepath.Join(o.dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if b, err := os.ReadFile(name); err == nil && bytes.Contains(b, []byte("secret word")) {
			t.Errorf("%s has what was answered", name)
		}
	}
}

// TestACallWhoseServerEnded: what was carried out and never answered is made again where that changes nothing, and
// otherwise said.
func TestACallWhoseServerEnded(t *testing.T) {
	o := newOnceSite(t)
	o.fail = true
	for _, c := range []struct {
		method, path string
		status       int
		made         int64
	}{
		{"POST", "/tokens", 409, 1},
		{"PUT", "/pools/a", 201, 2},
		{"POST", "/jobs/1/cancel", 201, 2},
	} {
		o.made.Store(0)
		o.fail = true
		o.call(c.method, "t", c.path, c.path, "")
		o.fail = false
		if err := o.a.store.Do(t.Context(), func(tx *sql.Tx) error { _, err := tx.Exec("DELETE FROM users"); return err }); err != nil {
			t.Fatal(err)
		}
		if w := o.call(c.method, "t", c.path, c.path, ""); w.Code != c.status || o.made.Load() != c.made {
			t.Errorf("%s %s: %d %s, made %d times", c.method, c.path, w.Code, w.Body, o.made.Load())
		}
	}
}

// TestAKeyOfAnotherCallAndNoCall: what leads nowhere is told so, whatever its key was sent with before.
func TestAKeyOfAnotherCallAndNoCall(t *testing.T) {
	c := newCallSite(t, nil)
	call := func(method, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequest(method, c.url+"/api/v1"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Authorization": {"Bearer owner"}, "Content-Type": {"application/json"}, keyHeader: {"k"}}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		b, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, string(b)
	}
	if code, text := call("PUT", "/projects/vision/quota", `{"slots": 1}`); code != 200 {
		t.Fatal(code, text)
	}
	for _, x := range []struct {
		method, path string
		status       int
		says         string
	}{
		{"TRACE", "/projects/vision/quota", 405, "TRACE is not for"},
		{"DELETE", "/projects/vision/quota", 405, "DELETE is not for"},
		{"OPTIONS", "/tokens", 405, "which takes GET, HEAD, POST"},
		{"POST", "/nothing", 404, "there is no call"},
		{"PUT", "/projects/vision/quota?a=1&a=2", 422, "given 2 times"},
		{"PUT", "/projects/speech/quota", 422, "take a new one for each call"},
	} {
		if code, text := call(x.method, x.path, `{"slots": 1}`); code != x.status || !strings.Contains(text, x.says) {
			t.Errorf("%s %s: %d %s, and not %d with %q", x.method, x.path, code, text, x.status, x.says)
		}
	}
}

// TestKeysAreBounded: in number and in time.
func TestKeysAreBounded(t *testing.T) {
	st, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	now := time.Now()
	count := func(table string) (n int) {
		if err := st.Read(t.Context(), func(tx *sql.Tx) error { return tx.QueryRow("SELECT count(*) FROM " + table).Scan(&n) }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := st.Do(t.Context(), func(tx *sql.Tx) error {
		for i := range 10_050 {
			c := &store.Claim{ID: fmt.Sprint(i), At: now.Add(-time.Hour)}
			if err := store.SetAnswer(tx, c, []byte("x")); err != nil {
				return err
			}
		}
		return store.Key(tx, "old", "", 1, now.AddDate(0, 0, -8))
	}); err != nil {
		t.Fatal(err)
	}
	if n := count("answers"); n != 10_000 {
		t.Errorf("%d answers are kept", n)
	}
	if err := st.Do(t.Context(), func(tx *sql.Tx) error {
		return store.SetAnswer(tx, &store.Claim{ID: "late", At: now.AddDate(0, 0, 8)}, []byte("x"))
	}); err != nil {
		t.Fatal(err)
	}
	if err := st.ExpireKeys(t.Context(), now.AddDate(0, 0, 8)); err != nil || count("answers") != 1 || count("keys") != 0 {
		t.Errorf("after a week %d answers and %d keys are kept, %v", count("answers"), count("keys"), err)
	}
}
