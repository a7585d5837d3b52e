package fleet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"hora/server/backend"
	"hora/server/client"
	"hora/server/node"
)

// link is the way to a node that has dialled in: calls go over further connections, which the node opens when it is
// asked to.
type link struct {
	name    string
	session string
	beat    time.Duration
	conn    net.Conn
	http    *http.Client
	ended   chan struct{}
	once    sync.Once

	mu    sync.Mutex // guards what follows, and writes to conn
	next  int
	asked map[string]chan net.Conn
	ahead map[string]bool // environments that the node was told to make ahead
}

// sayWithin bounds a word to a node.
const sayWithin = 5 * time.Second

// Upgraded is the protocol's name in HTTP with which nodes come.
func (*Fleet) Upgraded() string { return node.Upgraded }

// Enter takes in a node whose connection has proved its token, and hears it until it goes.
func (f *Fleet) Enter(conn net.Conn, in *bufio.Reader, gate backend.Gate) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	words := json.NewDecoder(in)
	var h node.Hello
	if words.Decode(&h) != nil {
		return
	}
	w := node.Welcome{Session: random(), Beat: f.cfg.Beat.Seconds(), Patience: f.cfg.Patience.Seconds()}
	refuse := func(err error) { _ = json.NewEncoder(conn).Encode(node.Welcome{Error: err.Error()}) }
	if h.Protocol != node.Protocol {
		refuse(fmt.Errorf("the server speaks version %d of what nodes say, and node %s (hora %s) version %d: install the same hora on both", node.Protocol, h.Name, h.Version, h.Protocol))
		return
	}
	who := backend.Comer{Name: h.Name, Pool: h.Pool, Instance: h.Instance, Slots: h.Slots}
	if err := gate.Check(&who); err != nil {
		if here := f.ours(h.Name); here != nil { // whatever else is against it: waiting does not help
			err = here
		}
		refuse(err)
		return
	}
	l := &link{name: h.Name, session: w.Session, beat: f.cfg.Beat, conn: conn}
	l.ended, l.asked = make(chan struct{}), map[string]chan net.Conn{}
	l.http = &http.Client{Transport: &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx) },
		MaxIdleConnsPerHost: 8,
	}}
	if err := f.seat(&h, l); err != nil {
		refuse(err)
		return
	}
	defer f.leave(l)
	var err error
	if w.Token, err = gate.Token(&who); err != nil {
		refuse(err)
		return
	}
	w.Warning = f.Shared(h.Name)
	for _, id := range h.Attempts {
		if !gate.Lives(h.Name, id) {
			w.Drop = append(w.Drop, id)
		}
	}
	if json.NewEncoder(conn).Encode(w) != nil {
		return
	}
	f.open(l)
	_ = conn.SetWriteDeadline(time.Time{})
	lives := f.begin(func() { // signs of life
		tick := time.NewTicker(l.beat)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.say(node.Word{})
			case <-l.ended:
				return
			}
		}
	})
	for lives {
		_ = conn.SetReadDeadline(time.Now().Add(4 * l.beat))
		var word node.Word
		if words.Decode(&word) != nil {
			return
		}
		if word.Beat > 0 {
			l.say(node.Word{Ack: word.Beat})
		}
	}
}

// ours refuses a node that has the name of the server's own machine.
func (f *Fleet) ours(name string) error {
	for _, n := range f.cfg.Here.Nodes {
		if n.Name == name {
			return fmt.Errorf("node %s is the server's own machine, which has pool %s already: a node beside it takes another --name", name, n.Pool)
		}
	}
	return nil
}

// seat keeps a node's name for it; it is not told of before its link is open.
func (f *Fleet) seat(h *node.Hello, l *link) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		return errors.New("the server is ending: come again when it is back")
	}
	if err := f.ours(h.Name); err != nil {
		return err
	}
	m := f.members[h.Name]
	switch {
	case m != nil && !m.known && m.hello.Instance != h.Instance:
		return fmt.Errorf("there is a node %s already, in pool %s: give this one another --name, or end that one first", h.Name, m.hello.Pool)
	case m != nil && m.link != nil: // the same node: its old connection is broken, and this side has not seen it
		m.link.close()
	}
	f.members[h.Name] = &member{hello: *h, seen: time.Now()}
	return nil
}

// open lets calls go over a link.
func (f *Fleet) open(l *link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil { // Close has closed the links that there were
		l.close()
		return
	}
	m := f.members[l.name]
	switch {
	case m == nil:
	case m.cut:
		l.close()
	default:
		m.link = l
		f.wake()
	}
}

// leave notes that a node is away.
func (f *Fleet) leave(l *link) {
	l.close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[l.name]; m != nil && m.link == l {
		m.link, m.seen = nil, time.Now()
		f.wake()
	}
}

// Extra hands a further connection of a node to who asked for it.
func (f *Fleet) Extra(session, id string, conn net.Conn) {
	f.mu.Lock()
	var l *link
	for _, m := range f.members {
		if m.link != nil && m.link.session == session {
			l = m.link
		}
	}
	f.mu.Unlock()
	if l == nil {
		conn.Close()
		return
	}
	l.mu.Lock()
	c := l.asked[id]
	delete(l.asked, id)
	l.mu.Unlock()
	if c == nil {
		conn.Close()
		return
	}
	c <- conn
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.ended)
		l.conn.Close()
		l.http.CloseIdleConnections()
	})
}

func (l *link) say(w node.Word) {
	b, err := json.Marshal(w)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.conn.SetWriteDeadline(time.Now().Add(sayWithin))
	if _, err := l.conn.Write(append(b, '\n')); err != nil {
		l.conn.Close() // who reads it sees that
	}
}

// tied is a connection that ends with the link.
type tied struct {
	net.Conn
	stop func() bool
}

func (t *tied) Close() error {
	t.stop()
	return t.Conn.Close()
}

// dial asks the node for a connection.
func (l *link) dial(ctx context.Context) (net.Conn, error) {
	c := make(chan net.Conn, 1)
	l.mu.Lock()
	l.next++
	id := strconv.Itoa(l.next)
	l.asked[id] = c
	l.mu.Unlock()
	l.say(node.Word{Dial: id})
	var err error
	select {
	case conn := <-c:
		ended, cancel := context.WithCancel(context.Background())
		go func() {
			select {
			case <-l.ended:
				conn.Close()
			case <-ended.Done():
			}
		}()
		return &tied{conn, func() bool { cancel(); return true }}, nil
	case <-l.ended:
		err = errAway
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(15 * time.Second):
		err = errAway
	}
	l.mu.Lock()
	_, waits := l.asked[id]
	delete(l.asked, id)
	l.mu.Unlock()
	if !waits {
		(<-c).Close()
	}
	return nil, err
}

// call sends a request; any failure on the way is errAway, and is tried again by who may.
func (l *link) call(ctx context.Context, method, path string, q url.Values, body any) (*http.Response, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://node"+path+"?"+q.Encode(), in)
	if err != nil {
		return nil, err
	}
	answer, err := l.http.Do(r)
	switch {
	case ctx.Err() != nil:
		if err == nil {
			answer.Body.Close()
		}
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errAway, err)
	case answer.StatusCode == http.StatusOK:
		return answer, nil
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<16))
	if answer.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("%w on node %s", os.ErrNotExist, l.name)
	}
	return nil, errors.New(strings.TrimSpace(string(text)))
}

// aheadMost bounds how many environments are remembered that a node was told of.
const aheadMost = 1000

// fresh says whether the node was not told yet to make an environment ahead, and notes that it is.
func (l *link) fresh(e *client.Environment) bool {
	b, err := json.Marshal(e)
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ahead == nil || len(l.ahead) >= aheadMost {
		l.ahead = map[string]bool{}
	}
	told := l.ahead[string(b)]
	l.ahead[string(b)] = true
	return !told
}

// callWithin bounds a call that does one thing.
const callWithin = 10 * time.Minute

func (l *link) do(path string, q url.Values, body any) error {
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	r, err := l.call(ctx, "POST", path, q, body)
	if err == nil {
		r.Body.Close()
	}
	return err
}

func which(job int64, attempt int) url.Values {
	return url.Values{"job": {strconv.FormatInt(job, 10)}, "attempt": {strconv.Itoa(attempt)}}
}

func (l *link) Start(g node.Gang) error { return l.do("/start", nil, g) }

func (l *link) Kill(job int64, attempt int, why client.Outcome) error {
	q := which(job, attempt)
	q.Set("why", string(why))
	return l.do("/kill", q, nil)
}

// Taken does nothing on a node of a release that removes nothing.
func (l *link) Taken(job int64, attempt int, n uint64) error {
	q := which(job, attempt)
	q.Set("n", strconv.FormatUint(n, 10))
	return l.do("/taken", q, nil)
}

// Quote does nothing on a node of a release that does not know how: the job's story says the rest.
func (l *link) Quote(job int64, attempt int, lines []backend.Line) error {
	if err := l.do("/quote", which(job, attempt), lines); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (l *link) Forget(job int64, attempt int) error { return l.do("/forget", which(job, attempt), nil) }

func (l *link) Output(ctx context.Context, job int64, attempt int, path string) (io.ReadCloser, error) {
	q := which(job, attempt)
	q.Set("path", path)
	r, err := l.call(ctx, "GET", "/output", q, nil)
	if err != nil {
		return nil, err
	}
	return r.Body, nil
}

func (l *link) Outputs(ctx context.Context, job int64, attempt int) (all []string, err error) {
	r, err := l.call(ctx, "GET", "/outputs", which(job, attempt), nil)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	return all, json.NewDecoder(r.Body).Decode(&all)
}

func (l *link) Says(job int64, attempt int) string {
	ctx, cancel := context.WithTimeout(context.Background(), sayWithin)
	defer cancel()
	r, err := l.call(ctx, "GET", "/says", which(job, attempt), nil)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	return string(b)
}

// recordsAtOnce bounds a batch.
const recordsAtOnce = 512

func (l *link) Watch(ctx context.Context, job int64, attempt int, from uint64, take func([]node.Record) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := which(job, attempt)
	q.Set("from", strconv.FormatUint(from, 10))
	r, err := l.call(ctx, "GET", "/watch", q, nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	lines := make(chan node.Followed, recordsAtOnce)
	go func() {
		defer close(lines)
		in := json.NewDecoder(r.Body)
		for {
			var one node.Followed
			if in.Decode(&one) != nil {
				return
			}
			select {
			case lines <- one:
			case <-ctx.Done():
				return
			}
		}
	}()
	for one := range lines {
		var batch []node.Record
		var end *node.Followed
		for more := true; more; {
			if one.Record == nil {
				end = &one
				break
			}
			batch = append(batch, *one.Record)
			if more = len(batch) < recordsAtOnce; !more {
				break
			}
			select {
			case one, more = <-lines:
			default:
				more = false
			}
		}
		if len(batch) > 0 {
			if err := take(batch); err != nil {
				return err
			}
			if batch[len(batch)-1].Exit != nil {
				return nil
			}
		}
		switch {
		case end == nil:
		case end.Kind == "lost":
			return backend.ErrLost
		case end.Kind == "unbegun":
			return node.ErrUnbegun
		default:
			return errors.New(end.Error)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errAway
}
