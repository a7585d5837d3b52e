package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"hora/server/client"
	"hora/server/store"
)

// Records tell who did what, and what was refused for want of a role or a token.

// deed is what a call that changes something is recorded as.
type deed struct {
	store.Deed
	quiet bool
}

type deedKey struct{}

func deedOf(ctx context.Context) *deed {
	d, _ := ctx.Value(deedKey{}).(*deed)
	return d
}

// remark adds to what is recorded of a call.
func remark(ctx context.Context, format string, a ...any) {
	if d := deedOf(ctx); d != nil {
		d.Text = fmt.Sprintf(format, a...)
	}
}

func newDeed(r *http.Request, who string) *deed {
	d := &deed{}
	d.Deed.Deed = client.Deed{
		At: time.Now().UTC(), Who: who, Address: addressOf(r), What: r.Method,
		Target: clip(strings.TrimPrefix(r.URL.Path, "/api/v1")), Status: http.StatusOK,
	}
	return d
}

// looked has a call that changes nothing written down where it was refused because of the caller's roles.
func (a *api) looked(w http.ResponseWriter, r *http.Request, is *who, next http.Handler) {
	d := newDeed(r, is.label())
	out := &answering{ResponseWriter: w, status: http.StatusOK}
	next.ServeHTTP(out, r.WithContext(context.WithValue(r.Context(), deedKey{}, d)))
	if d.Status = out.status; d.Status == http.StatusForbidden {
		a.refused.note(a.Server, d.Deed.Deed)
	}
}

// recorded has a call written down with the first thing that it writes, or once it has answered. What was refused
// because of the caller's roles is written down too.
func (a *api) recorded(w http.ResponseWriter, r *http.Request, is *who, next http.Handler) {
	d := newDeed(r, is.label())
	ctx := context.WithValue(r.Context(), deedKey{}, d)
	out := &answering{ResponseWriter: w, status: http.StatusOK}
	next.ServeHTTP(out, r.WithContext(store.WithDeed(ctx, &d.Deed)))
	switch {
	case d.Written() && out.status == d.Status:
	case d.Written(): // with what it would have answered
		said := d.Deed.Deed
		said.Status, said.Text = out.status, "the call had written down what it does, and then answered this"
		a.note(r, said)
	case out.status == http.StatusForbidden:
		d.Status = out.status
		a.refused.note(a.Server, d.Deed.Deed)
	case out.status < 400 && !d.quiet:
		d.Status = out.status
		a.note(r, d.Deed.Deed)
	}
}

// note writes a record down that goes with nothing else.
func (a *api) note(r *http.Request, d client.Deed) {
	if err := a.store.Note(context.WithoutCancel(r.Context()), d); err != nil {
		a.log.Warn("record who did what", "error", err)
	}
}

// answering keeps the status of an answer.
type answering struct {
	http.ResponseWriter
	status int
}

func (w *answering) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// ReadFrom sends files as quickly as without a record.
func (w *answering) ReadFrom(r io.Reader) (int64, error) { return io.Copy(w.ResponseWriter, r) }

// Flush is for who sends an answer bit by bit.
func (w *answering) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (w *answering) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// clip bounds what a stranger has written down.
func clip(text string) string { return text[:min(len(text), 200)] }
