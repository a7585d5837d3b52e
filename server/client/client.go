package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Client calls one server.
type Client struct {
	URL     string // without a slash at its end
	Token   string
	User    string // who submits
	HTTP    *http.Client
	Silence time.Duration // how long the server may say nothing until it counts as away; 0 is 45 s
	pin     string        // fingerprint of the only authority that it trusts
	proxy   func(*http.Request) (*url.URL, error)
}

// New makes a client. An address may end in # and the fingerprint of the server's own authority.
func New(address, token string) *Client {
	bare, pin := splitPin(address)
	proxy := http.ProxyFromEnvironment
	return &Client{URL: bare, Token: token, pin: pin, proxy: proxy, HTTP: &http.Client{Transport: &http.Transport{
		TLSClientConfig: security(pin), Proxy: proxy,
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, MaxIdleConnsPerHost: 64,
		TLSHandshakeTimeout: 2 * silentFor, // watch ends what a server that was stopped leaves open
	}}}
}

// Key makes a key by which a submission that is sent twice is one job.
func Key() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// keyHeader is where the key of a call stands by which it is made once, however often it is sent.
const keyHeader = "Idempotency-Key"

// call sends a request and reads the answer into to. One that changes something is safe to send again: when the server
// ended before its answer came nobody knows whether it has carried it out, so that the same is sent until it says. A
// server that is not there to begin with is an error at once.
func (c *Client) call(ctx context.Context, method, path string, headers map[string]string, body, to any) error {
	_, streams := body.(io.Reader)
	_, content := body.(contentAgain)
	key, given := headers[keyHeader]
	if method == http.MethodGet || streams || given && key == "" {
		return c.callOnce(ctx, method, path, headers, body, to)
	}
	if !given && !content { // content is the same under its hash however often it comes
		headers = map[string]string{keyHeader: Key()}
	}
	failed, sent := time.Time{}, false // since when it fails: content may take longer than that to be sent
	for {
		err := c.callOnce(ctx, method, path, headers, body, to)
		if failed.IsZero() {
			failed = time.Now()
		}
		var fault *Fault
		refused := errors.As(err, &fault) && fault.Status != http.StatusServiceUnavailable
		silent := errors.Is(err, errSilent)
		sent = sent || fault != nil || lost(err) || silent
		late := time.Since(failed) > againWithin
		switch {
		case err == nil, !sent, refused, late && fault != nil:
			return err
		case late, silent:
			return fmt.Errorf("%w; it may have done it: look when it is back", err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Client) callOnce(ctx context.Context, method, path string, headers map[string]string, body, to any) error {
	r, err := c.send(ctx, method, path, headers, body)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if to == nil {
		return nil
	}
	if err := json.NewDecoder(r.Body).Decode(to); err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.URL, err)
	}
	return nil
}

// send sends a request and answers what comes back, whose body is to be closed.
func (c *Client) send(
	ctx context.Context, method, path string, headers map[string]string, body any,
) (r *http.Response, err error) {
	whole := ctx
	ctx, w := c.watch(ctx)
	defer func() {
		if err != nil {
			w.stop()
		}
	}()
	var in io.Reader
	var again func() (io.ReadCloser, error)
	kind := "application/json"
	switch b := body.(type) {
	case nil:
	case io.Reader:
		in, kind = b, "application/octet-stream"
	case contentAgain:
		in, kind = b(), "application/octet-stream"
		again = func() (io.ReadCloser, error) { return io.NopCloser(b()), nil }
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.URL+"/api/v1"+path, in)
	if err != nil {
		return nil, fmt.Errorf("the server's address %q: %w: write it as http://HOST:PORT", c.URL, err)
	}
	if again != nil {
		req.GetBody = again
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	if in != nil {
		req.Header.Set("Content-Type", kind)
	}
	for k, v := range headers {
		if v != "" {
			req.Header.Set(k, v)
		}
	}
	if r, err = c.HTTP.Do(req); err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		if whole.Err() != nil {
			return nil, whole.Err()
		}
		return nil, &NoServer{c.URL, silentOr(ctx, err)}
	}
	w.hears()
	r.Body = &heardBody{r.Body, ctx, w}
	if r.StatusCode < 400 {
		return r, nil
	}
	defer r.Body.Close()
	f := &Fault{Status: r.StatusCode, Title: r.Status}
	b, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if json.Unmarshal(b, f) != nil || f.Detail == "" {
		f.Detail = c.stranger(r.Status, b)
	}
	return nil, f
}

// againWithin is how long a call whose answer was lost is sent again: a server that was killed is back by then,
// or is not to be waited for.
const againWithin = 15 * time.Second

// Submit submits a job. The key makes it one job however often it is sent; without one it is sent once.
func (c *Client) Submit(ctx context.Context, d Document, key string) (j Job, err error) {
	return j, c.call(ctx, "POST", "/jobs", map[string]string{keyHeader: key, "X-Hora-User": c.User}, d, &j)
}

// lost says whether a request had gone out when its connection broke.
func lost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed)
}

// Job answers one job.
func (c *Client) Job(ctx context.Context, id int64) (j Job, err error) {
	return j, c.call(ctx, "GET", fmt.Sprintf("/jobs/%d", id), nil, nil, &j)
}

// Jobs lists jobs of some states, the newest first, from a cursor on.
func (c *Client) Jobs(ctx context.Context, states []string, project, cursor string, limit int) (p Page, err error) {
	q := url.Values{"limit": {strconv.Itoa(limit)}}
	if len(states) > 0 {
		q.Set("state", strings.Join(states, ","))
	}
	if project != "" {
		q.Set("project", project)
	}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	return p, c.call(ctx, "GET", "/jobs?"+q.Encode(), nil, nil, &p)
}

// Do does something to a job: cancel, pause, resume.
func (c *Client) Do(ctx context.Context, id int64, what string) (j Job, err error) {
	return j, c.call(ctx, "POST", fmt.Sprintf("/jobs/%d/%s", id, what), nil, nil, &j)
}

// Priority gives a job another priority.
func (c *Client) Priority(ctx context.Context, id int64, priority int) (j Job, err error) {
	return j, c.call(ctx, "POST", fmt.Sprintf("/jobs/%d/priority", id), nil, map[string]int{"priority": priority}, &j)
}

// Happenings answers a job's story.
func (c *Client) Happenings(ctx context.Context, id int64) (all []Happening, err error) {
	return all, c.call(ctx, "GET", fmt.Sprintf("/jobs/%d/happenings", id), nil, nil, &all)
}

// Metrics answers what ranks reported, with at most so many points of each.
func (c *Client) Metrics(ctx context.Context, id int64, name string, points int) (all []Metric, err error) {
	q := url.Values{"points": {strconv.Itoa(points)}}
	if name != "" {
		q.Set("name", name)
	}
	return all, c.call(ctx, "GET", fmt.Sprintf("/jobs/%d/metrics?%s", id, q.Encode()), nil, nil, &all)
}

// Artifacts lists what came back of outputs/.
func (c *Client) Artifacts(ctx context.Context, id int64) (all []Artifact, err error) {
	return all, c.call(ctx, "GET", fmt.Sprintf("/jobs/%d/artifacts", id), nil, nil, &all)
}

// askedAtOnce is how many contents one call asks for.
const askedAtOnce = 50_000

// Missing says which contents the server has not got.
func (c *Client) Missing(ctx context.Context, hashes []string) (missing []string, err error) {
	for some := range slices.Chunk(hashes, askedAtOnce) {
		var of []string
		if err := c.call(ctx, "POST", "/blobs/missing", nil, map[string][]string{"hashes": some}, &of); err != nil {
			return nil, err
		}
		missing = append(missing, of...)
	}
	return missing, nil
}

// About says what the server is.
func (c *Client) About(ctx context.Context) (a About, err error) {
	return a, c.call(ctx, "GET", "/about", nil, nil, &a)
}

// Nodes lists the machines.
func (c *Client) Nodes(ctx context.Context) (all []Node, err error) {
	return all, c.call(ctx, "GET", "/nodes", nil, nil, &all)
}

// Projects lists what projects have and have had.
func (c *Client) Projects(ctx context.Context) (all []Project, err error) {
	return all, c.call(ctx, "GET", "/projects", nil, nil, &all)
}

// SetQuota bounds a project.
func (c *Client) SetQuota(ctx context.Context, project string, q Quota) (p Project, err error) {
	return p, c.call(ctx, "PUT", "/projects/"+url.PathEscape(project)+"/quota", nil, q, &p)
}

// Down ends the server, with now the jobs as well.
func (c *Client) Down(ctx context.Context, now bool) (a About, err error) {
	once := map[string]string{keyHeader: ""} // who has ended it need not wait for it to be back
	return a, c.call(ctx, "POST", "/down", once, map[string]bool{"now": now}, &a)
}

// Following is what one wants to hear of a job.
type Following struct {
	Quiet bool // its states alone
	Rank  int  // -2 are all
	Since time.Time
	State func(Job)
	Line  func(Line)
	Lost  func(error) // the server is away; it is called again and again until patience ends
}

// Follow hears of a job until it has ended, and answers it. A server that is started anew is followed further, from the
// line where the last one was.
func (c *Client) Follow(ctx context.Context, id int64, f Following) (Job, error) {
	cursor, since := "", time.Time{}
	for {
		j, err := c.follow(ctx, id, &f, &cursor, func() { since = time.Time{} })
		var gone *NoServer
		var fault *Fault
		switch {
		case err == nil:
			return j, nil
		case ctx.Err() != nil:
			return j, ctx.Err()
		case errors.As(err, &fault) && fault.Status != http.StatusServiceUnavailable,
			errors.As(err, &gone) && gone.Distrusted():
			return j, err
		case since.IsZero() && errors.Is(err, errSilent):
			since = time.Now().Add(-c.silence())
		case since.IsZero():
			since = time.Now()
		}
		if f.Lost != nil && time.Since(since) <= c.patience() {
			f.Lost(err)
		}
		for wait := true; wait; wait = errors.Is(err, errSilent) && !c.lives(ctx, c.silence()/3) {
			switch {
			case time.Since(since) <= c.patience():
			case errors.As(err, &gone):
				return j, gone
			default:
				return j, &NoServer{c.URL, err}
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
				return j, ctx.Err()
			}
		}
	}
}

func (c *Client) follow(ctx context.Context, id int64, f *Following, cursor *string, there func()) (j Job, err error) {
	q := url.Values{"rank": {strconv.Itoa(f.Rank)}, "quiet": {strconv.FormatBool(f.Quiet)}}
	if *cursor != "" {
		q.Set("cursor", *cursor)
	}
	if !f.Since.IsZero() {
		q.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	r, err := c.send(ctx, "GET", fmt.Sprintf("/jobs/%d/follow?%s", id, q.Encode()), map[string]string{"Accept": "text/event-stream"}, nil)
	if err != nil {
		return j, err
	}
	defer r.Body.Close()
	there()
	in := bufio.NewReaderSize(r.Body, 1<<16)
	name, at := "", ""
	for {
		text, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			var rest []byte
			text = bytes.Clone(text)
			rest, err = in.ReadBytes('\n')
			text = append(text, rest...)
		}
		if err != nil {
			return j, err
		}
		switch field, value, _ := bytes.Cut(bytes.TrimSuffix(text, []byte("\n")), []byte(": ")); string(field) {
		case "id":
			at = string(value)
		case "event":
			if string(value) != name {
				name = string(value)
			}
		case "data":
			switch name {
			case "line":
				var l Line
				if err := readLine(value, &l); err != nil {
					return j, err
				}
				if f.Line != nil {
					f.Line(l)
				}
				*cursor = at
			case "state", "end":
				j = Job{}
				if err := json.Unmarshal(value, &j); err != nil {
					return j, err
				}
				if name == "end" {
					return j, nil
				}
				if f.State != nil {
					f.State(j)
				}
			}
		}
	}
}

// Lines hears what a job has written so far.
func (c *Client) Lines(ctx context.Context, id int64, f Following, each func(Line)) error {
	q := url.Values{"rank": {strconv.Itoa(f.Rank)}}
	if !f.Since.IsZero() {
		q.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	for {
		var page struct {
			Lines []Line `json:"lines"`
			Next  string `json:"next"`
			More  bool   `json:"more"`
		}
		if err := c.call(ctx, "GET", fmt.Sprintf("/jobs/%d/logs?%s", id, q.Encode()), nil, nil, &page); err != nil {
			return err
		}
		for _, l := range page.Lines {
			each(l)
		}
		if !page.More {
			return nil
		}
		q.Set("cursor", page.Next)
	}
}
