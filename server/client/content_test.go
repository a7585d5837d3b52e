package client

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// TestContentWhoseServerWasLost on the way is sent again, whole: a file and a list, of which the first server had a
// part.
func TestContentWhoseServerWasLost(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for what, content := range map[string]io.Reader{"a file": file, "a list": bytes.NewReader(text)} {
		calls, came := 0, ""
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls++; calls < 3 {
				_, _ = io.CopyN(io.Discard, r.Body, 1000)
				panic(http.ErrAbortHandler)
			}
			b, _ := io.ReadAll(r.Body)
			came = hashOf(b)
			w.WriteHeader(http.StatusNoContent)
		}))
		err := New(s.URL, "x").Put(t.Context(), hashOf(text), content)
		if err != nil || came != hashOf(text) || calls != 3 {
			t.Errorf("%s: %v after %d calls, and what came has the hash %s", what, err, calls, came)
		}
		s.Close()
	}
}

// TestContentThatIsNotWhatItsHashSays is an error at its end, and so is one that ends early.
func TestContentThatIsNotWhatItsHashSays(t *testing.T) {
	want := hashOf([]byte("content"))
	sends := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, sends)
	}))
	defer s.Close()
	for _, sends = range []string{"content", "conten", "Content", ""} {
		in, err := New(s.URL, "x").Get(t.Context(), want)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(in)
		in.Close()
		said := err == nil || strings.Contains(err.Error(), "and not "+want+": fetch it again")
		if string(b) != sends || (sends == "content") != (err == nil) || !said {
			t.Errorf("%q came as %q, %v", sends, b, err)
		}
	}
}
