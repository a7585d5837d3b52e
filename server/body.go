package server

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// bodyPatience is how long a call waits for the next part of what is sent to it.
const bodyPatience = time.Minute

// patient bounds how long what is sent may stay away, whatever its size, and nothing else: once it is there, or while
// nobody reads it, no deadline stands on the connection. One that stood there would, when it has passed, look to
// net/http as if the caller had left, and end the context of a call that is still being worked on.
func patient(within time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			body := r.Body
			r = r.WithContext(r.Context()) // by its own one's body net/http sees whether the connection may go on
			r.Body = &patientBody{ReadCloser: body, within: within, conn: http.NewResponseController(w)}
		}
		next.ServeHTTP(w, r)
	})
}

type patientBody struct {
	io.ReadCloser
	within time.Duration
	conn   *http.ResponseController
	over   bool // nothing more is read from the connection
}

func (b *patientBody) Read(p []byte) (int, error) {
	if b.over {
		return b.ReadCloser.Read(p)
	}
	bounded := b.conn.SetReadDeadline(time.Now().Add(b.within)) == nil
	n, err := b.ReadCloser.Read(p)
	if bounded {
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	b.over = err != nil
	return n, err
}

// cutShort says in plain words that what was sent did not come whole; err itself where that is not what is wrong.
func cutShort(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(http.StatusRequestTimeout, "nothing more of what is sent came for %v: send it again", bodyPatience)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuse(http.StatusBadRequest, "what is sent broke off before its end: send it again")
	}
	return err
}
