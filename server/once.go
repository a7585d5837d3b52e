package server

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"hora/server/store"
)

// A call that changes something may carry a key of its caller's. The same call with the same key again changes nothing
// and answers what the first one did: so who has lost an answer may send it again. What is kept of answers, which may
// have tokens in them, is encrypted for who has the caller's token and the key; the store has neither.

// keyHeader is where the key stands.
const keyHeader = "Idempotency-Key"

const (
	keyLongest  = 200
	onceLargest = 4 << 20 // bytes of a call with a key: those of the largest one, a job
)

// turns have calls with one key take turns. The zero value is ready.
type turns struct {
	mu  sync.Mutex // guards all
	all map[string]chan struct{}
}

// take waits until nobody else makes the call.
func (t *turns) take(ctx context.Context, id string) (over func(), err error) {
	for {
		t.mu.Lock()
		other := t.all[id]
		if other == nil {
			break
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if t.all == nil {
		t.all = map[string]chan struct{}{}
	}
	mine := make(chan struct{})
	t.all[id] = mine
	t.mu.Unlock()
	return func() {
		t.mu.Lock()
		delete(t.all, id)
		t.mu.Unlock()
		close(mine)
	}, nil
}

type requestKey struct{}

// requestOf is the hash of what was sent with a key; "" where there is none.
func requestOf(ctx context.Context) string {
	text, _ := ctx.Value(requestKey{}).(string)
	return text
}

// keyed is one call with a key.
type keyed struct {
	store.Claim
	secret [sha256.Size]byte
}

func newKeyed(token, key string, r *http.Request, body []byte) *keyed {
	id := sha256.Sum256([]byte("key\x00" + token + "\x00" + key))
	k := &keyed{secret: sha256.Sum256([]byte("answer\x00" + token + "\x00" + key))}
	k.ID, k.At = hex.EncodeToString(id[:]), time.Now()
	h := hmac.New(sha256.New, k.secret[:])
	fmt.Fprintf(h, "%s %s\n", r.Method, r.URL.RequestURI())
	h.Write(body)
	k.Request = hex.EncodeToString(h.Sum(nil))
	return k
}

// reply is an answer as it is kept.
type reply struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body"`
}

func (k *keyed) box() (cipher.AEAD, error) {
	b, err := aes.NewCipher(k.secret[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(b)
}

func (k *keyed) seal(a *reply) ([]byte, error) {
	box, err := k.box()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, box.NonceSize())
	rand.Read(nonce)
	return box.Seal(nonce, nonce, text, nil), nil
}

func (k *keyed) open(sealed []byte) (*reply, error) {
	box, err := k.box()
	if err != nil {
		return nil, err
	}
	if len(sealed) < box.NonceSize() {
		return nil, errors.New("it is too short")
	}
	text, err := box.Open(nil, sealed[:box.NonceSize()], sealed[box.NonceSize():], nil)
	if err != nil {
		return nil, err
	}
	a := &reply{}
	return a, json.Unmarshal(text, a)
}

// once has a call with a key made once. Content goes by its hash and needs none; a submission keeps its key with the
// job, and is told here only what was sent.
func (a *api) once(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get(keyHeader)
		if key == "" || !strings.HasPrefix(r.URL.Path, "/api/v1/") || strings.HasPrefix(r.URL.Path, "/api/v1/blobs/") {
			next.ServeHTTP(w, r)
			return
		}
		if len(key) > keyLongest {
			problemAnswer(w, http.StatusUnprocessableEntity, fmt.Sprintf("the %s has %d bytes, and may have %d: send a shorter one", keyHeader, len(key), keyLongest))
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, onceLargest))
		if cut := (*refusal)(nil); errors.As(cutShort(err), &cut) {
			problemAnswer(w, cut.status, cut.text)
			return
		}
		if over := (*http.MaxBytesError)(nil); errors.As(err, &over) {
			problemAnswer(w, http.StatusRequestEntityTooLarge, tooLarge(over.Limit))
			return
		}
		if err != nil {
			problemAnswer(w, http.StatusBadRequest, "what is sent could not be read: send it again")
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		if r.URL.Path == "/api/v1/jobs" {
			k := newKeyed("", key, r, body)
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, k.Request)))
			return
		}
		k := newKeyed(token, key, r, body)
		over, err := a.turns.take(r.Context(), k.ID)
		if err != nil {
			return // who called has gone
		}
		defer over()
		a.onceIn(k, w, r, next)
	})
}

// onceIn answers what was answered before, or makes the call; nobody else does meanwhile.
func (a *api) onceIn(k *keyed, w http.ResponseWriter, r *http.Request, next http.Handler) {
	request, sealed, err := a.store.Answer(r.Context(), k.ID)
	switch {
	case err != nil:
		problemAnswer(w, http.StatusServiceUnavailable, "the server cannot look the key up now: try again")
		return
	case request != "" && request != k.Request:
		problemAnswer(w, http.StatusUnprocessableEntity, "this "+keyHeader+" was sent with another call: take a new one for each call, or send the same again")
		return
	case sealed != nil:
		before, err := k.open(sealed)
		if err != nil {
			problemAnswer(w, http.StatusInternalServerError, "what this call has answered before cannot be read: look how things stand, and send a new "+keyHeader)
			return
		}
		if d := deedOf(r.Context()); d != nil {
			d.quiet = true // nothing is changed
		}
		before.Header.Set("Idempotent-Replayed", "true")
		before.send(w)
		return
	case request != "" && r.Method == http.MethodPost && !strings.HasPrefix(r.URL.Path, "/api/v1/jobs/"):
		problemAnswer(w, http.StatusConflict, "this call was carried out, and the server ended before it had answered: look at the list of what it makes, and call again with a new "+keyHeader)
		return
	}
	out := &keeping{ResponseWriter: w, reply: reply{Status: http.StatusOK, Header: http.Header{}}}
	next.ServeHTTP(out, r.WithContext(store.WithClaim(r.Context(), &k.Claim)))
	if request != "" && r.Method == http.MethodDelete && out.Status == http.StatusNotFound {
		out.reply = reply{Status: http.StatusNoContent, Header: http.Header{}} // it is removed, by this call
	}
	if err := a.keepAnswer(k, &out.reply, request != ""); err != nil {
		a.log.Warn("keep the answer of a call with a key", "error", err) // it was made, and may be told
	}
	out.send(w)
}

// keepAnswer keeps an answer that came well. One that did not has changed nothing, and is tried anew.
func (a *api) keepAnswer(k *keyed, out *reply, before bool) error {
	if out.Status >= http.StatusBadRequest {
		if !k.Written() && !before {
			return nil
		}
		return a.store.Do(a.ctx, func(tx *sql.Tx) error { return store.DropAnswer(tx, &k.Claim) })
	}
	sealed, err := k.seal(out)
	if err != nil {
		return err
	}
	return a.store.Do(a.ctx, func(tx *sql.Tx) error { return store.SetAnswer(tx, &k.Claim, sealed) })
}

// keeping takes an answer instead of sending it.
type keeping struct {
	http.ResponseWriter
	reply
}

func (w *keeping) Header() http.Header         { return w.reply.Header }
func (w *keeping) WriteHeader(status int)      { w.Status = status }
func (w *keeping) Write(b []byte) (int, error) { w.Body = append(w.Body, b...); return len(b), nil }

// Unwrap is for http.ResponseController.
func (w *keeping) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (a *reply) send(w http.ResponseWriter) {
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
}
