package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// inFlight is how many requests one server gets at a time: with 50 ms to an answer and
// ranges of a MiB, more than half a GB a second.
const inFlight = 64

// web is the store of http and https addresses.
var web = NewWeb()

// Web reads files from servers that know ranges.
type Web struct {
	client *http.Client
	places chan struct{}
	pause  time.Duration // before the first repetition; doubled each time
	giveUp time.Duration
	sign   func(r *http.Request, body []byte) // nil: requests go as they are
	url    func(name string) (string, error)  // nil: a name is an address
	token  func(context.Context) (string, error)
	header http.Header // of every request
}

// NewWeb makes a store with connections of its own.
func NewWeb() *Web {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 2*inFlight, inFlight
	t.ResponseHeaderTimeout = 30 * time.Second
	t.DisableCompression = true // ranges are of the file as it lies there
	return &Web{
		client: &http.Client{Transport: t}, places: make(chan struct{}, inFlight),
		pause: 100 * time.Millisecond, giveUp: 60 * time.Second,
	}
}

// List answers the one file: servers list no folders.
func (w *Web) List(ctx context.Context, name string) ([]Object, error) {
	if strings.HasSuffix(name, "/") {
		return nil, &Error{"list", name, errors.New("a web server lists no folders; give the addresses of the files")}
	}
	o, err := w.Stat(ctx, name)
	return []Object{o}, err
}

// Stat asks for the size and the tag.
func (w *Web) Stat(ctx context.Context, name string) (Object, error) {
	var o Object
	err := w.repeat(ctx, "open", name, func(ctx context.Context) error {
		answer, err := w.do(ctx, http.MethodHead, name, nil, nil)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.ContentLength < 0 {
			return final(errors.New("the server does not say how long the file is"))
		}
		o = Object{Name: name, Size: answer.ContentLength, Tag: tag(answer)}
		return nil
	})
	return o, err
}

func tag(r *http.Response) string {
	if etag := r.Header.Get("ETag"); etag != "" && !strings.HasPrefix(etag, "W/") {
		return etag
	}
	return r.Header.Get("Last-Modified")
}

// ReadAt gets a range. An answer that is cut short is asked for again from there.
func (w *Web) ReadAt(ctx context.Context, o Object, p []byte, offset int64) error {
	if len(p) == 0 {
		return nil
	}
	got := 0
	return w.while(ctx, "read", o.Name, func(ctx context.Context, came func()) error {
		header := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", offset+int64(got), offset+int64(len(p))-1)}}
		answer, err := w.do(ctx, http.MethodGet, o.Name, header, nil)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if now := tag(answer); now != "" && o.Tag != "" && now != o.Tag {
			return final(ErrChanged)
		}
		if err := rangeIs(answer, offset+int64(got), o.Size); err != nil {
			return final(err)
		}
		for got < len(p) {
			n, err := io.ReadFull(answer.Body, p[got:min(got+enough, len(p))])
			got += n
			if err != nil {
				return err
			}
			came()
		}
		return nil
	})
}

// enough is how many bytes of a long range must come within giveUp: a row group over a slow line takes longer than
// that as a whole.
const enough = 1 << 20

// rangeIs checks that the answer begins where it was asked to.
func rangeIs(r *http.Response, offset, size int64) error {
	if r.StatusCode == http.StatusOK && offset == 0 {
		return nil
	}
	if r.StatusCode != http.StatusPartialContent {
		return errors.New("the server sends the whole file where a part is asked for; it must know ranges")
	}
	var from, to, all int64
	said := r.Header.Get("Content-Range")
	if n, _ := fmt.Sscanf(said, "bytes %d-%d/%d", &from, &to, &all); n < 2 || from != offset || n == 3 && all != size {
		return fmt.Errorf("the server answers with the range %q where byte %d of %d is asked for", said, offset, size)
	}
	return nil
}

// Put sends a whole file.
func (w *Web) Put(ctx context.Context, name string, content []byte) error {
	return w.repeat(ctx, "write", name, func(ctx context.Context) error {
		answer, err := w.do(ctx, http.MethodPut, name, nil, content)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	})
}

// do makes one request. Answers that are no success are errors.
func (w *Web) do(ctx context.Context, method, name string, header http.Header, body []byte) (*http.Response, error) {
	if w.url != nil {
		var err error
		if name, err = w.url(name); err != nil {
			return nil, final(err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, name, bytes.NewReader(body))
	if err != nil {
		return nil, final(errors.New("it is no address"))
	}
	for k, v := range w.header {
		request.Header[k] = v
	}
	for k, v := range header {
		request.Header[k] = v
	}
	if w.token != nil {
		token, err := w.token(ctx)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if w.sign != nil {
		w.sign(request, body)
	}
	answer, err := w.client.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode/100 == 2 {
		return answer, nil
	}
	answer.Body.Close()
	switch code := answer.StatusCode; {
	case code == http.StatusNotFound || code == http.StatusGone:
		return nil, final(ErrNotFound)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return nil, final(ErrDenied)
	case code == http.StatusPreconditionFailed || code == http.StatusRequestedRangeNotSatisfiable:
		return nil, final(ErrChanged)
	case code == http.StatusTooManyRequests || code >= 500 || code == http.StatusRequestTimeout:
		return nil, &busy{answer.Status, after(answer)}
	default:
		return nil, final(fmt.Errorf("the server answers %s", answer.Status))
	}
}

// busy is an answer that asks to come again.
type busy struct {
	status string
	after  time.Duration
}

func (b *busy) Error() string { return "the server answers " + b.status }

func after(r *http.Response) time.Duration {
	seconds, _ := strconv.Atoi(r.Header.Get("Retry-After"))
	return time.Duration(min(max(seconds, 0), 30)) * time.Second
}

// finalError is one that comes again when asked again.
type finalError struct{ error }

func (f finalError) Unwrap() error { return f.error }
func final(err error) error        { return finalError{err} }

// repeat tries until it works, is denied for good, or the time is over.
func (w *Web) repeat(ctx context.Context, do, name string, try func(context.Context) error) error {
	return w.while(ctx, do, name, func(ctx context.Context, _ func()) error { return try(ctx) })
}

var errStill = errors.New("nothing comes from the server")

// while is repeat for what comes in pieces: its time begins anew with each.
func (w *Web) while(ctx context.Context, do, name string, try func(ctx context.Context, came func()) error) error {
	select {
	case w.places <- struct{}{}:
		defer func() { <-w.places }()
	case <-ctx.Done():
		return &Error{do, name, ctx.Err()}
	}
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	over := time.AfterFunc(w.giveUp, cancel)
	defer over.Stop()
	var last error
	pause := w.pause
	came := func() {
		over.Reset(w.giveUp)
		pause = w.pause
	}
	for ; ; pause *= 2 {
		err := try(limited, came)
		if err == nil {
			return nil
		}
		var f finalError
		if errors.As(err, &f) {
			return &Error{do, name, f.error}
		}
		if ctx.Err() != nil {
			return &Error{do, name, ctx.Err()}
		}
		switch {
		case limited.Err() == nil:
			last = err
		case last == nil:
			last = errStill
		}
		wait := pause
		var b *busy
		if errors.As(err, &b) {
			wait = max(wait, b.after)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-limited.Done():
			timer.Stop()
			return &Error{do, name, fmt.Errorf("%w; it was asked for %v; see whether the server is well, then go on from the saved state", last, w.giveUp)}
		}
	}
}
