package rendezvous

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"hora/internal/secret"
	"hora/internal/wire"
)

const (
	beatEvery  = time.Second
	firstPause = 500 * time.Microsecond // between attempts to dial: ranks that start together are that close
	cancelWait = 500 * time.Millisecond // how long a withdrawn request waits to hear what it waited for
)

// ErrClosed says that this side closed the client.
var ErrClosed = errors.New("rendezvous client is closed")

// Client is a worker's connection to the coordinator. All methods may be called from any goroutine.
type Client struct {
	dial   dialer // to come back by; nil when the way is not known
	secret secret.Secret
	me     Hello
	wg     sync.WaitGroup

	mu      sync.Mutex // guards what follows; held for map and field access only
	conn    net.Conn   // the present one; only the reading goroutine changes it
	out     *outbox
	window  time.Duration // how long to try to come back; 0 does not
	cost    []byte        // the last word of Recovered: nobody answers it, so whoever comes back says it again
	last    uint64
	pending map[uint64]asked
	err     error         // why no further request can be answered
	ended   chan struct{} // closed when err is set
}

// dialer makes a connection to the coordinator.
type dialer func(ctx context.Context) (net.Conn, error)

// asked is a request that has not been answered.
type asked struct {
	answer  chan answer // capacity 1
	message []byte
}

// Dial connects to the coordinator at addr ("host:port"), proves the secret and says hello. It retries refused
// connections until ctx ends, since workers may start before their coordinator listens.
func Dial(ctx context.Context, addr string, s secret.Secret, me Hello) (*Client, error) {
	return dialBy(ctx, addr, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}, s, me)
}

// dialBy does what Dial does, to a coordinator whose address is only for errors.
func dialBy(ctx context.Context, addr string, dial dialer, s secret.Secret, me Hello) (*Client, error) {
	began := time.Now()
	for {
		conn, err := dial(ctx)
		if err == nil {
			var c *Client
			if c, err = dialConn(ctx, conn, s, me, dial); err == nil {
				return c, nil
			}
			err = fmt.Errorf("join coordinator at %s: %w", addr, err)
		} else {
			err = fmt.Errorf("reach coordinator at %s: %w; check that the launcher runs and that no firewall is between", addr, err)
		}
		if !mayPass(err) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(nextPause(time.Since(began))):
		}
	}
}

// nextPause returns the pause after a wait: whoever waits long finds the coordinator a
// thirtieth of that late, and the attempts stay few.
func nextPause(waited time.Duration) time.Duration {
	return min(max(firstPause, waited/32), 250*time.Millisecond)
}

// mayPass reports whether a later attempt to dial may fare better. A wrong proof may: the port can be another job's
// for a while. A coordinator that names a reason to refuse, or another version, does not change its mind.
func mayPass(err error) bool {
	var refused *secret.RefusedError
	var version *secret.VersionError
	var dns *net.DNSError
	switch {
	case errors.As(err, &refused), errors.As(err, &version), errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &dns):
		return dns.Temporary()
	}
	return true
}

// DialConn makes a client of a connection that is already there; it owns conn, also when it fails.
func DialConn(ctx context.Context, conn net.Conn, s secret.Secret, me Hello) (*Client, error) {
	return dialConn(ctx, conn, s, me, nil)
}

// dialConn does, of a connection that dial has made; a coordinator that is started again will be there too.
func dialConn(ctx context.Context, conn net.Conn, s secret.Secret, me Hello, dial dialer) (*Client, error) {
	var name [16]byte
	rand.Read(name[:])
	me.session = hex.EncodeToString(name[:])
	c := &Client{
		dial: dial, secret: s, conn: conn, out: newOutbox(), me: me, pending: map[uint64]asked{},
		ended: make(chan struct{}),
	}
	if err := c.prove(ctx, conn); err != nil {
		return nil, err
	}
	c.out.put(me.message())
	c.wg.Add(1)
	go c.write(conn, c.out)
	rd := bufio.NewReaderSize(conn, 4096)
	if err := c.welcomed(ctx, conn, rd); err != nil {
		conn.Close()
		c.out.close()
		c.wg.Wait()
		return nil, err
	}
	c.wg.Add(1)
	go c.read(rd)
	return c, nil
}

// welcomed waits until the coordinator has heard the hello. One that proved itself while strangers pushed it out has
// not been heard, and dials again; later on the end of the connection is the coordinator's end.
func (c *Client) welcomed(ctx context.Context, conn net.Conn, rd io.Reader) error {
	deadline, ok := ctx.Deadline()
	if limit := time.Now().Add(welcomeTimeout); !ok || deadline.After(limit) {
		deadline = limit
	}
	if err := conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	kind, body, err := wire.ReadMessage(rd, nil, maxMessage)
	if err != nil {
		return fmt.Errorf("the coordinator %s before it had heard this worker", broken(err))
	}
	if kind != kindWelcome {
		return fmt.Errorf("the coordinator answered the hello with a message of kind %d", kind)
	}
	if err := c.takeWelcome(body); err != nil {
		return err
	}
	return conn.SetReadDeadline(time.Time{})
}

func (c *Client) takeWelcome(body []byte) error {
	d := wire.NewDecoder(body)
	window := time.Duration(d.I64())
	if err := d.Done(); err != nil {
		return err
	}
	c.mu.Lock()
	c.window = window
	c.mu.Unlock()
	return nil
}

// prove opens a connection; it closes conn when ctx ends.
func (c *Client) prove(ctx context.Context, conn net.Conn) error {
	deadline, ok := ctx.Deadline()
	if limit := time.Now().Add(proofTimeout); !ok || deadline.After(limit) {
		deadline = limit
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	id := secret.Identity{Purpose: Purpose, Job: c.me.Job, Rank: c.me.Rank, Peer: secret.Anyone, Host: c.me.Host}
	_, err := secret.Client(conn, c.secret, id, deadline)
	return err
}

// write runs a connection's writing goroutine.
func (c *Client) write(conn net.Conn, out *outbox) {
	defer c.wg.Done()
	beat := c.me.Beat
	if beat <= 0 {
		beat = beatEvery
	}
	pulse := message(kindBeat, 0, nil)
	err := out.run(conn, beat, func() []byte {
		if c.me.Progress == nil {
			return pulse
		}
		return progressMessage(c.me.Progress())
	})
	if err != nil {
		conn.Close() // the reader then ends and says why
	}
}

// read runs the client's reading goroutine.
func (c *Client) read(rd *bufio.Reader) {
	defer c.wg.Done()
	for {
		err := c.listen(rd)
		if !c.comeBack() {
			c.fail(fmt.Errorf("the coordinator %s; the launcher has ended or cannot be reached", broken(err)))
			return
		}
		rd = bufio.NewReaderSize(c.conn, 4096)
	}
}

// listen hears the coordinator until the connection breaks.
func (c *Client) listen(rd io.Reader) error {
	for {
		kind, body, err := wire.ReadMessage(rd, nil, maxMessage)
		if err != nil {
			return err
		}
		switch kind {
		case kindNotice:
			n, err := decodeNotice(body)
			if err != nil {
				return err
			}
			if n.Kind == NoticeCut { // it came back too late
				c.fail(errors.New(n.Reason))
				return ErrClosed
			}
			if c.me.OnNotice != nil {
				c.me.OnNotice(n)
			}
		case kindWelcome:
			if err := c.takeWelcome(body); err != nil {
				return err
			}
		default:
			id, a, err := decodeAnswer(kind, body)
			if err != nil {
				return err
			}
			c.deliver(id, a)
		}
	}
}

func (c *Client) deliver(id uint64, a answer) {
	c.mu.Lock()
	ch := c.pending[id].answer
	delete(c.pending, id)
	c.mu.Unlock()
	if ch != nil {
		ch <- a
	}
}

// put queues a message on the present connection.
func (c *Client) put(m []byte) bool {
	c.mu.Lock()
	out := c.out
	c.mu.Unlock()
	return out.put(m)
}

// fail ends every request, once.
func (c *Client) fail(err error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
		close(c.ended)
	}
	conn, out := c.conn, c.out
	c.mu.Unlock()
	conn.Close()
	out.close()
	if first && !errors.Is(err, ErrClosed) && c.me.OnNotice != nil {
		c.me.OnNotice(Notice{Kind: NoticeCut, Rank: -1, Reason: err.Error()})
	}
}

// ask sends a request and waits for its answer; fill appends what follows the id.
func (c *Client) ask(ctx context.Context, kind uint8, hint int, fill func(b []byte) []byte) (answer, error) {
	ch := make(chan answer, 1)
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return answer{}, c.err
	}
	c.last++
	id := c.last
	m := message(kind, 16+hint, func(b []byte) []byte {
		b = wire.AppendU64(b, id)
		if fill != nil {
			b = fill(b)
		}
		return b
	})
	c.pending[id] = asked{ch, m}
	out, comesBack := c.out, c.window > 0
	c.mu.Unlock()
	if !out.put(m) && !comesBack { // else it is asked again over the next connection
		c.deliver(id, answer{kind: kindFail, reason: "too much waits to be sent to the coordinator"})
	}
	select {
	case a := <-ch:
		return a, a.failure()
	case <-c.ended:
		return answer{}, c.err
	case <-ctx.Done():
	}
	// Withdraw the request; its last answer says what it waited for.
	c.put(message(kindCancel, 16, func(b []byte) []byte { return wire.AppendU64(b, id) }))
	t := time.NewTimer(cancelWait)
	defer t.Stop()
	select {
	case a := <-ch:
		if a.kind != kindFail {
			return a, nil // it came in the same instant
		}
		return answer{}, &waitError{ctx.Err(), a.reason}
	case <-c.ended:
	case <-t.C:
	}
	c.mu.Lock()
	delete(c.pending, id)
	c.mu.Unlock()
	return answer{}, ctx.Err()
}

// waitError is the end of a wait, by its context: what was waited for until then.
type waitError struct {
	cause error
	what  string
}

func (e *waitError) Error() string { return e.what }
func (e *waitError) Unwrap() error { return e.cause }

func (a *answer) failure() error {
	if a.kind == kindFail {
		return &JoinError{Reason: a.reason, Final: a.final}
	}
	return nil
}

// Join offers m as a member and blocks until the next epoch is complete. m.Rank -1 stands for the rank said in the
// Hello. After a loss, survivors call Join again on the same Client.
func (c *Client) Join(ctx context.Context, m Member) (Epoch, error) {
	if m.Host == "" {
		m.Host = c.me.Host
	}
	a, err := c.ask(ctx, kindJoin, 256, func(b []byte) []byte { return appendMember(b, &m) })
	if err != nil {
		return Epoch{}, wrap("join job", err)
	}
	return a.epoch, nil
}

// Members fetches members of the present epoch that Epoch.Members does not have.
func (c *Client) Members(ctx context.Context, ranks ...int) ([]Member, error) {
	a, err := c.ask(ctx, kindMembers, 8*len(ranks), func(b []byte) []byte { return wire.AppendInts(b, ranks) })
	return a.members, wrap("list members", err)
}

// Put stores a value; it wakes every Get that waits for key. Values stay until Delete or the end of the job.
func (c *Client) Put(ctx context.Context, key string, value []byte) error {
	if err := checkKey(key, len(value)); err != nil {
		return err
	}
	_, err := c.ask(ctx, kindPut, len(key)+len(value), func(b []byte) []byte {
		return wire.AppendBytes(wire.AppendString(b, key), value)
	})
	return wrap("put "+key, err)
}

func checkKey(key string, n int) error {
	if len(key) > maxKey || n > maxValue {
		return fmt.Errorf("put key of %d bytes with %d bytes of value: at most %d and %d are kept; put a large object in parts or in a file", len(key), n, maxKey, maxValue)
	}
	return nil
}

// Get returns the value of key and waits for it until ctx ends.
func (c *Client) Get(ctx context.Context, key string) ([]byte, error) {
	a, err := c.ask(ctx, kindGet, len(key), func(b []byte) []byte { return wire.AppendString(b, key) })
	return a.value, wrap("get "+key, err)
}

// Lookup returns the value of key if there is one.
func (c *Client) Lookup(ctx context.Context, key string) ([]byte, bool, error) {
	a, err := c.ask(ctx, kindLookup, len(key), func(b []byte) []byte { return wire.AppendString(b, key) })
	return a.value, a.found, wrap("look up "+key, err)
}

// Add adds delta to the decimal integer stored at key (0 when absent) and returns the sum.
func (c *Client) Add(ctx context.Context, key string, delta int64) (int64, error) {
	a, err := c.ask(ctx, kindAdd, len(key), func(b []byte) []byte {
		return wire.AppendI64(wire.AppendString(b, key), delta)
	})
	return a.number, wrap("add to "+key, err)
}

// Delete removes key and says whether it was there.
func (c *Client) Delete(ctx context.Context, key string) (bool, error) {
	a, err := c.ask(ctx, kindDelete, len(key), func(b []byte) []byte { return wire.AppendString(b, key) })
	return a.number == 1, wrap("delete "+key, err)
}

// Leave takes the worker out of its epoch on purpose: nobody will report it as lost. It may Join again.
func (c *Client) Leave(ctx context.Context) error {
	_, err := c.ask(ctx, kindLeave, 0, nil)
	return wrap("leave job", err)
}

// Finish says that this worker's work is done, and waits until every member of the epoch has said so. It is false when
// the epoch ended before that: Join again then, the work may have to be done in part again.
func (c *Client) Finish(ctx context.Context) (bool, error) {
	a, err := c.ask(ctx, kindFinish, 0, nil)
	return a.number == 1, wrap("finish job", err)
}

// Drain takes the worker out of the job on purpose before the work is done: the epoch ends, and the worker is replaced
// or the others go on without it.
func (c *Client) Drain(ctx context.Context, reason string) error {
	_, err := c.ask(ctx, kindDrain, len(reason), func(b []byte) []byte { return wire.AppendString(b, reason) })
	return wrap("leave job", err)
}

// Recovered tells the coordinator, for the job's report, what a loss cost. It does not wait for an answer.
func (c *Client) Recovered(r Recovery) {
	m := message(kindRecovered, 32, func(b []byte) []byte {
		b = wire.AppendU64(wire.AppendU64(b, 0), r.Epoch)
		return wire.AppendI64(wire.AppendI64(b, int64(r.Took)), int64(r.Steps))
	})
	c.mu.Lock()
	c.cost = m
	c.mu.Unlock()
	c.put(m)
}

// Refused tells the coordinator of connections that this worker's listeners have refused, and does not wait for an
// answer. It is false when there is no connection to tell it over.
func (c *Client) Refused(r secret.Refused) bool { return c.put(refusedMessage(r)) }

// Close ends the connection and joins the client's goroutines. Without Leave before, the worker counts as lost.
func (c *Client) Close() error {
	c.fail(ErrClosed)
	c.wg.Wait()
	return nil
}

func wrap(what string, err error) error {
	var j *JoinError
	if err == nil || errors.As(err, &j) && what == "join job" {
		return err
	}
	if errors.As(err, &j) {
		return fmt.Errorf("%s: %s", what, j.Reason)
	}
	return fmt.Errorf("%s: %w", what, err)
}
