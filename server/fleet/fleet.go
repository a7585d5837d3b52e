// Package fleet is the back end of all of a server's nodes: the machine that the server is on, and those that have
// dialled in. To what is above it there is what it can hold, and gangs that start, are watched and are killed.
//
// A node that is silent counts as away: nothing new starts there, and what runs there is waited for. After the
// patience it is lost, and with it what ran there. Goroutines: those of its callers, one a node that hears it, and
// one that looks for silent ones. Close joins the latter.
package fleet

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"hora/job/schedule"
	"hora/server/backend"
	"hora/server/client"
	"hora/server/node"
)

type key struct {
	job     int64
	attempt int
}

func keyOf(r *backend.Ref) key { return key{r.Job, r.Attempt} }

// Config is what a fleet is made of.
type Config struct {
	Here     *node.Local
	Key      []byte // from which the secrets of gangs come
	Patience time.Duration
	Beat     time.Duration
}

// Fleet is open until Close.
type Fleet struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	began  time.Time
	lists  time.Duration // how long a node may take to list files: listsWithin

	mu      sync.Mutex // guards what follows; never held over I/O
	members map[string]*member
	kills   map[key]client.Outcome
	runs    map[key]*run
	changed chan struct{} // closed and renewed when nodes come or go
}

// member is a node that has dialled in and is not lost.
type member struct {
	hello node.Hello
	link  *link     // nil while it is away
	seen  time.Time // when it went
	cut   bool      // it may come back with another token only
	known bool      // only from an earlier server: who comes under its name first is it
}

// place is a node that runs attempts: this machine, or one at the other end of a link.
type place interface {
	Start(g node.Gang) error
	Watch(ctx context.Context, job int64, attempt int, from uint64, take func([]node.Record) error) error
	Taken(job int64, attempt int, n uint64) error
	Quote(job int64, attempt int, lines []backend.Line) error
	Kill(job int64, attempt int, why client.Outcome) error
	Forget(job int64, attempt int) error
	Output(ctx context.Context, job int64, attempt int, path string) (io.ReadCloser, error)
	Outputs(ctx context.Context, job int64, attempt int) ([]string, error)
	Says(job int64, attempt int) string
}

// machine is the one that this server is on. Its files are as near as the server's own: nobody waits for less of them.
type machine struct{ *node.Local }

func (m machine) Output(_ context.Context, job int64, attempt int, path string) (io.ReadCloser, error) {
	return m.Local.Output(job, attempt, path)
}

func (m machine) Outputs(_ context.Context, job int64, attempt int) ([]string, error) {
	return m.Local.Outputs(job, attempt)
}

// errAway is for a call that did not reach its node.
var errAway = errors.New("the node is away")

// listsWithin is how long a node that is there may take to say which files it has in outputs/: its disk may hang.
const listsWithin = 5 * time.Minute

// New makes a fleet.
func New(cfg Config) *Fleet {
	f := &Fleet{cfg: cfg, began: time.Now(), members: map[string]*member{}, changed: make(chan struct{})}
	f.lists = listsWithin
	f.kills, f.runs = map[key]client.Outcome{}, map[key]*run{}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.wg.Go(f.tend)
	return f
}

// Close leaves all nodes to themselves; jobs go on.
func (f *Fleet) Close() {
	f.cancel()
	f.mu.Lock()
	for _, m := range f.members {
		if m.link != nil {
			m.link.close()
		}
	}
	f.mu.Unlock()
	f.wg.Wait()
}

// begin runs what Close waits for, and reports false once that has been called.
func (f *Fleet) begin(do func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		return false
	}
	f.wg.Go(do)
	return true
}

// tend drops those that were silent for too long.
func (f *Fleet) tend() {
	tick := time.NewTicker(min(f.cfg.Patience/4, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-f.ctx.Done():
			return
		}
		f.mu.Lock()
		for name, m := range f.members {
			if m.link == nil && time.Since(m.seen) > f.cfg.Patience {
				delete(f.members, name)
				f.wake()
			}
		}
		f.mu.Unlock()
	}
}

// Expect counts a node that an earlier server had as away, until it comes or there is no more patience.
func (f *Fleet) Expect(n schedule.Node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.members[n.Name] == nil {
		h := node.Hello{Name: n.Name, Pool: n.Pool, Slots: n.Slots, Memory: n.Memory, GPUs: n.GPUs, Spreads: !n.Alone}
		f.members[n.Name] = &member{hello: h, seen: time.Now(), known: true}
		f.wake()
	}
}

// wake tells those who wait that nodes have come or gone; with the lock.
func (f *Fleet) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// Capacity says what there is: nodes that are away are closed.
func (f *Fleet) Capacity() (all []schedule.Node, changed <-chan struct{}) {
	all = slices.Clone(f.cfg.Here.Nodes)
	f.mu.Lock()
	defer f.mu.Unlock()
	names := make([]string, 0, len(f.members))
	for name := range f.members {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		m := f.members[name]
		h := &m.hello
		n := schedule.Node{Name: name, Pool: h.Pool, Slots: h.Slots, Memory: h.Memory, GPUs: h.GPUs}
		n.Closed, n.Alone = m.link == nil, !h.Spreads
		all = append(all, n)
	}
	return all, f.changed
}

// at is the way to a node of a pool, and, where there is none now, since when. One of another pool that has its name is
// not it: it is told nothing of the pool's jobs.
func (f *Fleet) at(pool, name string) (p place, since time.Time, changed <-chan struct{}) {
	if slices.ContainsFunc(f.cfg.Here.Nodes, func(n schedule.Node) bool { return n.Name == name }) || name == "" {
		return machine{f.cfg.Here}, time.Time{}, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[name]
	switch {
	case m == nil, m.hello.Pool != pool:
		return nil, f.began, f.changed
	case m.link == nil:
		return nil, m.seen, f.changed
	}
	return m.link, time.Time{}, f.changed
}

// reach calls a node, and again when it is back, as long as there is patience. over ends it.
func (f *Fleet) reach(ctx context.Context, pool, name string, call func(place) error) error {
	for {
		p, since, changed := f.at(pool, name)
		if p != nil {
			err := call(p)
			if !errors.Is(err, errAway) {
				return err
			}
			_, since, changed = f.at(pool, name)
			if since.IsZero() {
				since = time.Now()
			}
		}
		left := f.cfg.Patience - time.Since(since)
		if left <= 0 {
			return &backend.Lost{Node: name, Patience: f.cfg.Patience}
		}
		select {
		case <-changed:
		case <-time.After(min(left, time.Second)):
		case <-ctx.Done():
			return ctx.Err()
		case <-f.ctx.Done():
			return context.Canceled
		}
	}
}

// part is what a node has of a gang. The secret is the same whenever it is asked for, by whichever server.
func (f *Fleet) part(g *node.Gang, i int) node.Part {
	h := hmac.New(sha256.New, f.cfg.Key)
	fmt.Fprintf(h, "gang %d.%d", g.Job, g.Attempt)
	p := node.Part{Secret: hex.EncodeToString(h.Sum(nil)), Slots: g.Shares[i].Slots}
	for _, s := range g.Shares {
		p.Total += s.Slots
	}
	if elastic(g) {
		p.Slots, p.Node = max(g.Document.Spec.NP, 1), g.Shares[i].Node
		if i == 0 {
			p.Shares = g.Shares
		}
	}
	return p
}

// Kill ends a gang for a reason. A node that is away hears it when it is back.
func (f *Fleet) Kill(r backend.Ref, why client.Outcome) error {
	if why == backend.Over {
		return f.forget(&r)
	}
	f.mu.Lock()
	if !node.Drains(why) || f.kills[keyOf(&r)] == "" { // whoever is to go on later is not told so who is not
		f.kills[keyOf(&r)] = why
	}
	f.mu.Unlock()
	p, _, _ := f.at(r.Pool, first(r.Nodes))
	if p == nil {
		return nil
	}
	if err := p.Kill(r.Job, r.Attempt, why); !errors.Is(err, errAway) {
		return err
	}
	return nil
}

func first(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

// forget removes what is left of an attempt that has ended, once nothing of it is started any more. What is left on a
// node that is away is removed when it is back.
func (f *Fleet) forget(r *backend.Ref) error {
	f.mu.Lock()
	one := f.runs[keyOf(r)]
	delete(f.runs, keyOf(r))
	delete(f.kills, keyOf(r))
	f.mu.Unlock()
	if one != nil {
		one.end()
	}
	var failed error
	for i, name := range r.Nodes {
		p, _, _ := f.at(r.Pool, name)
		if p == nil {
			continue
		}
		if i > 0 {
			_ = p.Kill(r.Job, r.Attempt, client.Stopped)
		}
		if err := p.Forget(r.Job, r.Attempt); err != nil && !errors.Is(err, errAway) {
			failed = err
		}
	}
	return failed
}

// Ahead has an environment made before a job needs it, on the nodes of a pool that are there, or on one of them.
func (f *Fleet) Ahead(pool, name string, e *client.Environment) {
	for _, n := range f.cfg.Here.Nodes {
		if n.Pool == pool && (name == "" || n.Name == name) {
			f.cfg.Here.Ahead(e)
		}
	}
	f.mu.Lock()
	var links []*link
	for at, m := range f.members {
		if m.link != nil && m.hello.Pool == pool && (name == "" || at == name) {
			links = append(links, m.link)
		}
	}
	f.mu.Unlock()
	for _, l := range links {
		if l.fresh(e) {
			f.begin(func() { _ = l.do("/ahead", nil, e) }) // the job asks again
		}
	}
}

// Instance tells of a node's folder, where the node is there or away and not lost: the same name from another one is
// another node.
func (f *Fleet) Instance(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[name]; m != nil {
		return m.hello.Instance
	}
	return ""
}

// End tells a node to end. It is no part of the capacity any more when this returns, and may not have heard it.
func (f *Fleet) End(name string) {
	f.mu.Lock()
	m := f.members[name]
	delete(f.members, name)
	f.wake()
	f.mu.Unlock()
	if m != nil && m.link != nil {
		f.begin(func() { m.link.say(node.Word{End: true}) })
	}
}

// Cut ends the link of a node that is not let in any more, also of one that is just coming. It counts as away from then
// on, and is lost after the patience as each that is silent: what runs there may go on for so long.
func (f *Fleet) Cut(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[name]
	if m == nil {
		return
	}
	m.cut = true
	if m.link != nil {
		m.link.close()
		m.link, m.seen = nil, time.Now()
	}
	f.wake()
}

func random() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
