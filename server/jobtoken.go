package server

import (
	"crypto/subtle"
	"fmt"
	"net/http"

	"hora/server/client"
	"hora/server/store"
)

// running admits what an attempt of a job says with the token that it was started with: to its own run, and as long as
// it runs. nil for a text that is no such token.
func (a *api) running(text string) (*who, error) {
	var id int64
	var attempt int
	if n, err := fmt.Sscanf(text, "job-%d-%d-", &id, &attempt); n != 2 || err != nil {
		return nil, nil
	}
	if subtle.ConstantTimeCompare([]byte(text), []byte(a.fleet.JobToken(id, attempt))) != 1 {
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
	return admit(store.Pass{Pass: client.Pass{Job: id}}, store.HashOf(text)), nil
}
