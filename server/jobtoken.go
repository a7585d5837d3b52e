package server

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"

	"hora/server/client"
	"hora/server/store"
)

// jobToken is what an attempt of a job proves to be itself with: the same whenever it is asked for, and kept nowhere.
func (s *Server) jobToken(job int64, attempt int) string {
	h := hmac.New(sha256.New, s.key)
	fmt.Fprintf(h, "token %d.%d", job, attempt)
	return fmt.Sprintf("job-%d-%d-%s", job, attempt, hex.EncodeToString(h.Sum(nil)))
}

// running admits what an attempt of a job says with the token that it was started with: to its own run, and as long as
// it runs. nil for a text that is no such token.
func (a *api) running(text string) (*who, error) {
	var id int64
	var attempt int
	if n, err := fmt.Sscanf(text, "job-%d-%d-", &id, &attempt); n != 2 || err != nil {
		return nil, nil
	}
	if subtle.ConstantTimeCompare([]byte(text), []byte(a.jobToken(id, attempt))) != 1 {
		return nil, nil
	}
	runs := false
	if err := a.do(func() {
		l := a.live[id]
		runs = l != nil && l.attempt != nil && l.attempt.Number == attempt
	}); err != nil {
		return nil, refuse(http.StatusServiceUnavailable, "the server is ending: try again when it is back")
	}
	if !runs {
		return nil, refuse(http.StatusUnauthorized, "the token is that of attempt %d of job %d, which has ended: hora token new --job %d makes another", attempt, id, id)
	}
	w := admit(store.Pass{Pass: client.Pass{Job: id}}, store.HashOf(text))
	w.narrow(id, writer)
	return w, nil
}
