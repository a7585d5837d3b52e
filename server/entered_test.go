package server

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// counted is a body without an end.
type counted struct{ read int }

func (c *counted) Read(b []byte) (int, error) {
	c.read += len(b)
	return copy(b, make([]byte, len(b))), nil
}

// TestAFormOfAnybodyIsShort: the form of who signs in is read of anybody, and no more than that of it.
func TestAFormOfAnybodyIsShort(t *testing.T) {
	c := newCallSite(t, nil)
	h := c.s.Handler(Settings{Version: "test", Token: "owner"})
	for _, as := range []string{"", "Bearer nobody"} {
		for _, kind := range []string{"application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
			body := &counted{}
			r := httptest.NewRequest("POST", enter, body)
			r.Header.Set("Content-Type", kind)
			r.Header.Set("Origin", "http://"+r.Host)
			if as != "" {
				r.Header.Set("Authorization", as)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusUnauthorized || body.read > 1<<17 {
				t.Errorf("%s as %q: %d after %d bytes", kind, as, w.Code, body.read)
			}
		}
	}
}
