package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"hora/server/backend"
	"hora/server/client"
)

// Protocol is what a node and a server say to each other: both must speak the same.
const Protocol = 1

// Hello is what a node says when it comes.
type Hello struct {
	Protocol int        `json:"protocol"`
	Version  string     `json:"version"`
	Name     string     `json:"name"`
	Pool     string     `json:"pool"`
	Instance string     `json:"instance"` // of its folder
	Slots    int        `json:"slots"`
	Memory   int64      `json:"memory"`
	GPUs     int        `json:"gpus"`
	Attempts [][2]int64 `json:"attempts,omitempty"` // what it has folders of
	Spreads  bool       `json:"spreads,omitempty"`  // elastic jobs here may have other nodes too
	Machine  string     `json:"machine,omitempty"`  // the same of nodes that see the same devices
	Devices  []string   `json:"devices,omitempty"`  // what its jobs are dealt
}

// Welcome is the server's answer.
type Welcome struct {
	Error    string     `json:"error,omitempty"`
	Warning  string     `json:"warning,omitempty"` // what the node's owner should know
	Session  string     `json:"session,omitempty"`
	Token    string     `json:"token,omitempty"`    // the node's own, for when it comes back
	Beat     float64    `json:"beat,omitempty"`     // seconds between signs of life
	Patience float64    `json:"patience,omitempty"` // seconds of silence after which the node is lost, and its jobs run elsewhere
	Drop     [][2]int64 `json:"drop,omitempty"`     // attempts that go on no more
}

// Word is what both say from then on, a line each; an empty one is a sign of life.
type Word struct {
	Dial string `json:"dial,omitempty"` // the node is to open another connection of this number
	End  bool   `json:"end,omitempty"`  // the node is to end
	Beat uint64 `json:"beat,omitempty"` // the node's signs of life are numbered,
	Ack  uint64 `json:"ack,omitempty"`  // and the server says which it has heard
}

// Upgraded is the protocol's name in HTTP.
const Upgraded = "hora-node"

// Member is a machine that offers itself to a server.
type Member struct {
	Hello
	Local  *Local
	Server func() (string, error) // its address, looked up each time
	Named  string                 // what has the address: a flag, a variable
	Token  string                 // with which it may join
	Dir    string                 // where its own token is kept
	Alone  time.Duration          // it ends when it has had no server and no job for so long; 0 never
	Say    func(text string)

	lease lease
}

// errEnd is for a node that was told to end.
var errEnd = errors.New("the server has ended this node")

// firstPause is how long a node waits before it tries again for the first time.
const firstPause = 200 * time.Millisecond

// Join stays with the server until the context ends, the server refuses the node, or ends it. Jobs go on in any case.
func (m *Member) Join(ctx context.Context) error {
	pause, silent, joined, told := firstPause, time.Now(), false, false
	m.lease.recall(m.Dir)
	m.Local.Left = m.lease.left
	for {
		begin := time.Now()
		err := m.once(ctx, func() { pause, joined, told = firstPause, true, false })
		var fault *client.Fault
		var gone *client.NoServer
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errEnd):
			m.Say(fmt.Sprintf("the server has ended node %s: pool %s was removed, or does not need it any more", m.Name, m.Pool))
			return nil
		case errors.As(err, &fault) && fault.Status != http.StatusServiceUnavailable &&
			(fault.Status != http.StatusConflict || !joined):
			return err
		case errors.As(err, &gone) && gone.Distrusted() && !joined && m.Alone == 0:
			return m.distrusts(gone)
		}
		if errors.Is(err, syscall.ECONNREFUSED) { // nobody is there who would give this node up
			m.renew(begin)
		}
		first := pause == firstPause
		if joined && first {
			silent = time.Now()
		}
		switch {
		case told || joined && first && broken(err): // it is said where the server does not answer then
		case joined:
			m.Say(fmt.Sprintf("the server is away (%s): jobs go on, and this node tries again until it is back%s", client.Plain(err), m.lease.warning()))
			told = true
		default:
			m.Say(fmt.Sprintf("%v; this node tries again until it answers", err))
			told = true
		}
		if _, gone := os.Stat(m.Dir); gone != nil {
			return fmt.Errorf("this node's folder %s is gone: start it anew", m.Dir)
		}
		if m.Alone > 0 && time.Since(silent) > m.Alone && len(m.Local.Attempts()) == 0 {
			return fmt.Errorf("the server has been away for %v, and no job is here: start it again when the server is back", m.Alone)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, m.lease.rest())
	}
}

// broken says whether a link was closed, of which who comes again hears why.
func broken(err error) bool {
	var gone *client.NoServer
	var timed net.Error
	return !errors.As(err, &gone) && !(errors.As(err, &timed) && timed.Timeout())
}

// distrusts is why a node does not speak to what answers at an address.
func (m *Member) distrusts(gone *client.NoServer) error {
	named := m.Named
	if named == "" {
		named = "--server"
	}
	return fmt.Errorf("reach the server at %s: %s: %s needs the whole address, with # and the fingerprint after it, as hora pool token %s prints it where you are logged in", gone.URL, client.Plain(gone), named, m.Pool)
}

const ownToken = "token"

// call makes a client with the token that this node has, its own first.
func (m *Member) call(own bool) (*client.Client, bool, error) {
	address, err := m.Server()
	if err != nil {
		return nil, false, err
	}
	if err := client.CheckAddress(address); err != nil {
		return nil, false, &client.Fault{Status: http.StatusBadRequest, Detail: err.Error()}
	}
	if b, err := os.ReadFile(filepath.Join(m.Dir, ownToken)); own && err == nil {
		return client.New(address, strings.TrimSpace(string(b))), true, nil
	}
	return client.New(address, m.Token), false, nil
}

// once is one stay with the server.
func (m *Member) once(ctx context.Context, there func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, own, err := m.call(true)
	if err != nil {
		return err
	}
	conn, in, err := c.Upgrade(ctx, "/node", Upgraded)
	var fault *client.Fault
	// The token may be of another server, or of a pool that was.
	if own && m.Token != "" && errors.As(err, &fault) && fault.Status == http.StatusUnauthorized {
		if c, _, err = m.call(false); err != nil {
			return err
		}
		conn, in, err = c.Upgrade(ctx, "/node", Upgraded)
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	hello := m.Hello
	hello.Protocol, hello.Attempts, hello.Spreads = Protocol, m.Local.Attempts(), true
	hello.Machine, hello.Devices = Machine(), m.Local.Devices()
	sent := time.Now()
	if err := json.NewEncoder(conn).Encode(hello); err != nil {
		return err
	}
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	words := json.NewDecoder(in)
	var w Welcome
	if err := words.Decode(&w); err != nil {
		return fmt.Errorf("hear the server's welcome: %w", err)
	}
	if w.Error != "" {
		return &client.Fault{Status: http.StatusConflict, Detail: w.Error}
	}
	if w.Token != "" {
		if err := os.WriteFile(filepath.Join(m.Dir, ownToken), []byte(w.Token+"\n"), 0o600); err != nil {
			return err
		}
		c = client.New(c.Address(), w.Token)
	}
	for _, a := range w.Drop {
		_ = m.Local.Kill(a[0], int(a[1]), client.Stopped)
		_ = m.Local.Forget(a[0], int(a[1]))
	}
	m.lease.keep(m.Dir, time.Duration(w.Patience*float64(time.Second)))
	m.renew(sent)
	there()
	m.Say(fmt.Sprintf("node %s is in pool %s of %s", m.Name, m.Pool, c.URL))
	if w.Warning != "" {
		m.Say(w.Warning)
	}
	return m.stay(ctx, c, conn, words, &w)
}

// stay serves the server's calls until the connection ends.
func (m *Member) stay(ctx context.Context, c *client.Client, conn net.Conn, words *json.Decoder, w *Welcome) error {
	m.Local.Open = func(hash string) (io.ReadCloser, error) { return c.Get(context.Background(), hash) }
	beat := time.Duration(w.Beat * float64(time.Second))
	door := &door{conns: make(chan net.Conn), closed: make(chan struct{})}
	h := &http.Server{Handler: m.handler(), ReadHeaderTimeout: 10 * time.Second}
	var all sync.WaitGroup
	all.Go(func() { _ = h.Serve(door) })
	ctx, cancel := context.WithCancel(ctx)
	defer all.Wait()
	defer h.Close()
	defer door.Close()
	defer cancel()
	all.Go(func() {
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = conn.SetWriteDeadline(time.Now().Add(3 * beat))
				if _, err := fmt.Fprintf(conn, "{\"beat\":%d}\n", m.lease.beat()); err != nil {
					conn.Close()
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	for {
		_ = conn.SetReadDeadline(time.Now().Add(4 * beat))
		var word Word
		if err := words.Decode(&word); err != nil {
			return err
		}
		switch {
		case word.End:
			return errEnd
		case word.Ack > 0:
			if sent := m.lease.heard(word.Ack); !sent.IsZero() {
				m.renew(sent)
			}
		case word.Dial != "":
			all.Go(func() {
				q := url.Values{"session": {w.Session}, "id": {word.Dial}}
				extra, in, err := c.Upgrade(ctx, "/node/conn?"+q.Encode(), Upgraded)
				if err == nil {
					door.give(&buffered{extra, in})
				}
			})
		}
	}
}

// buffered reads what came with the answer first.
type buffered struct {
	net.Conn
	in *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.in.Read(p) }

// door hands connections that this node has opened to what serves them.
type door struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (d *door) give(c net.Conn) {
	select {
	case d.conns <- c:
	case <-d.closed:
		c.Close()
	}
}

func (d *door) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

func (d *door) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

func (d *door) Addr() net.Addr { return &net.TCPAddr{} }

// Followed is a line of what watching a node answers.
type Followed struct {
	Record *Record `json:"record,omitempty"`
	Error  string  `json:"error,omitempty"` // the last line, where it ends without the last record
	Kind   string  `json:"kind,omitempty"`  // lost, unbegun
}

// which is the attempt that a call is about.
func which(r *http.Request) (job int64, attempt int) {
	job, _ = strconv.ParseInt(r.FormValue("job"), 10, 64)
	attempt, _ = strconv.Atoi(r.FormValue("attempt"))
	return job, attempt
}

func done(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// handler answers the server's calls: the back end's, with the same names.
func (m *Member) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /start", func(w http.ResponseWriter, r *http.Request) {
		var g Gang
		err := json.NewDecoder(r.Body).Decode(&g)
		if err == nil {
			err = m.Local.Start(g)
		}
		done(w, err)
	})
	mux.HandleFunc("POST /kill", func(w http.ResponseWriter, r *http.Request) {
		job, attempt := which(r)
		done(w, m.Local.Kill(job, attempt, client.Outcome(r.FormValue("why"))))
	})
	mux.HandleFunc("POST /taken", func(w http.ResponseWriter, r *http.Request) {
		job, attempt := which(r)
		n, _ := strconv.ParseUint(r.FormValue("n"), 10, 64)
		done(w, m.Local.Taken(job, attempt, n))
	})
	mux.HandleFunc("POST /quote", func(w http.ResponseWriter, r *http.Request) {
		var lines []backend.Line
		err := json.NewDecoder(r.Body).Decode(&lines)
		if err == nil {
			job, attempt := which(r)
			err = m.Local.Quote(job, attempt, lines)
		}
		done(w, err)
	})
	mux.HandleFunc("POST /ahead", func(w http.ResponseWriter, r *http.Request) {
		var e client.Environment
		err := json.NewDecoder(r.Body).Decode(&e)
		if err == nil {
			m.Local.Ahead(&e)
		}
		done(w, err)
	})
	mux.HandleFunc("POST /forget", func(w http.ResponseWriter, r *http.Request) {
		done(w, m.Local.Forget(which(r)))
	})
	mux.HandleFunc("GET /says", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, m.Local.Says(which(r)))
	})
	m.leavings(mux)
	mux.HandleFunc("GET /watch", func(w http.ResponseWriter, r *http.Request) {
		job, attempt := which(r)
		from, _ := strconv.ParseUint(r.FormValue("from"), 10, 64)
		out, flush := json.NewEncoder(w), http.NewResponseController(w)
		err := m.Local.Watch(r.Context(), job, attempt, from, func(all []Record) error {
			for i := range all {
				if err := out.Encode(Followed{Record: &all[i]}); err != nil {
					return err
				}
			}
			return flush.Flush()
		})
		last := Followed{}
		switch {
		case err == nil:
			return
		case errors.Is(err, backend.ErrLost):
			last.Kind = "lost"
		case errors.Is(err, ErrUnbegun):
			last.Kind = "unbegun"
		}
		last.Error = err.Error()
		_ = out.Encode(last)
	})
	return mux
}

// leavings answers those about what an attempt leaves in outputs/.
func (m *Member) leavings(mux *http.ServeMux) {
	mux.HandleFunc("GET /outputs", func(w http.ResponseWriter, r *http.Request) {
		all, err := m.Local.Outputs(which(r))
		if err != nil {
			done(w, err)
			return
		}
		_ = json.NewEncoder(w).Encode(all)
	})
	mux.HandleFunc("GET /output", func(w http.ResponseWriter, r *http.Request) {
		job, attempt := which(r)
		f, err := m.Local.Output(job, attempt, r.FormValue("path"))
		if errors.Is(err, os.ErrNotExist) {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		if err != nil {
			done(w, err)
			return
		}
		defer f.Close()
		if _, err := io.Copy(w, f); err != nil {
			panic(http.ErrAbortHandler) // so that the server does not take a part for the whole
		}
	})
}
