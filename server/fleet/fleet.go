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
	"hora/server/client"
	"hora/server/node"
)

// Ref names an attempt and where it is: its pool, and the nodes there, the one that keeps it first.
type Ref struct {
	Job     int64
	Attempt int
	Pool    string
	Nodes   []string
}

type key struct {
	job     int64
	attempt int
}

func (r *Ref) key() key { return key{r.Job, r.Attempt} }

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

	mu      sync.Mutex // guards what follows; never held over I/O
	members map[string]*member
	kills   map[key]client.Outcome
	changed chan struct{} // closed and renewed when nodes come or go
}

// member is a node that has dialled in and is not lost.
type member struct {
	hello node.Hello
	link  *link     // nil while it is away
	seen  time.Time // when it went
}

// place is a node that runs attempts: this machine, or one at the other end of a link.
type place interface {
	Start(g node.Gang) error
	Watch(ctx context.Context, job int64, attempt int, from uint64, take func([]node.Record) error) error
	Quote(job int64, attempt int, lines []node.Line) error
	Kill(job int64, attempt int, why client.Outcome) error
	Forget(job int64, attempt int) error
	Output(job int64, attempt int, path string) (io.ReadCloser, error)
	Outputs(job int64, attempt int) ([]string, error)
	Says(job int64, attempt int) string
}

// errAway is for a call that did not reach its node.
var errAway = errors.New("the node is away")

// New makes a fleet.
func New(cfg Config) *Fleet {
	f := &Fleet{cfg: cfg, began: time.Now(), members: map[string]*member{}, kills: map[key]client.Outcome{}}
	f.changed = make(chan struct{})
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

// wake tells those who wait that nodes have come or gone; with the lock.
func (f *Fleet) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// Changed is closed when nodes have come or gone since it was asked for.
func (f *Fleet) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// Capacity says what there is: nodes that are away are closed.
func (f *Fleet) Capacity() []schedule.Node {
	all := slices.Clone(f.cfg.Here.Nodes)
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
	return all
}

// at is the way to a node of a pool, and, where there is none now, since when. One of another pool that has its name is
// not it: it is told nothing of the pool's jobs.
func (f *Fleet) at(pool, name string) (p place, since time.Time, changed <-chan struct{}) {
	if slices.ContainsFunc(f.cfg.Here.Nodes, func(n schedule.Node) bool { return n.Name == name }) || name == "" {
		return f.cfg.Here, time.Time{}, nil
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
			return &Lost{name, f.cfg.Patience}
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

// Lost is a node that was silent for too long.
type Lost struct {
	Node     string
	Patience time.Duration
}

func (l *Lost) Error() string {
	return fmt.Sprintf("node %s was lost: nothing was heard of it for %v", l.Node, l.Patience)
}

// Is says that with the node what it kept is lost.
func (l *Lost) Is(err error) bool { return err == node.ErrLost }

// Start starts a gang: on its first node, which tells the others when it awaits them.
func (f *Fleet) Start(g node.Gang) error {
	f.forgive(key{g.Job, g.Attempt})
	return f.Tell(f.ctx, g)
}

// Tell tells a gang that runs its shares; one that does not is started, where nobody has ended it.
func (f *Fleet) Tell(ctx context.Context, g node.Gang) error {
	if len(g.Shares) > 1 || elastic(&g) && f.spreads(g.Shares[0].Node) {
		p := f.part(&g, 0)
		g.Part = &p
	}
	return f.reach(ctx, g.Document.Pool, g.Shares[0].Node, func(p place) error { return p.Start(g) })
}

func (f *Fleet) forgive(k key) {
	f.mu.Lock()
	delete(f.kills, k)
	f.mu.Unlock()
}

// JobToken is what an attempt of a job proves to be itself with: the same whenever it is asked for, and kept nowhere.
func (f *Fleet) JobToken(job int64, attempt int) string {
	h := hmac.New(sha256.New, f.cfg.Key)
	fmt.Fprintf(h, "token %d.%d", job, attempt)
	return fmt.Sprintf("job-%d-%d-%s", job, attempt, hex.EncodeToString(h.Sum(nil)))
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

// Watch hands over what happens after a record.
func (f *Fleet) Watch(ctx context.Context, g node.Gang, from uint64, take func([]node.Record) error) error {
	k := key{g.Job, g.Attempt}
	outer := take
	take = func(all []node.Record) error {
		if err := outer(all); err != nil {
			return err
		}
		from = all[len(all)-1].N
		return nil
	}
	return f.reach(ctx, g.Document.Pool, g.Shares[0].Node, func(p place) error {
		f.mu.Lock()
		why := f.kills[k]
		f.mu.Unlock()
		if why != "" {
			_ = p.Kill(g.Job, g.Attempt, why)
		}
		return p.Watch(ctx, g.Job, g.Attempt, from, take)
	})
}

// Kill ends a gang for a reason. A node that is away hears it when it is back.
func (f *Fleet) Kill(r Ref, why client.Outcome) error {
	f.mu.Lock()
	if f.kills[r.key()] == "" {
		f.kills[r.key()] = why
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

// Forget removes what is left of an attempt that has ended. What is left on a node that is away is removed when it is
// back.
func (f *Fleet) Forget(r Ref) error {
	f.forgive(r.key())
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

// Output opens a file of outputs/ on the node that keeps an attempt.
func (f *Fleet) Output(r Ref, path string) (io.ReadCloser, error) {
	p, _, _ := f.at(r.Pool, first(r.Nodes))
	if p == nil {
		return nil, errAway
	}
	return p.Output(r.Job, r.Attempt, path)
}

// Outputs lists the files of outputs/ there.
func (f *Fleet) Outputs(r Ref) ([]string, error) {
	p, _, _ := f.at(r.Pool, first(r.Nodes))
	if p == nil {
		return nil, errAway
	}
	return p.Outputs(r.Job, r.Attempt)
}

// Says is the last of what the keeper of an attempt wrote about itself.
func (f *Fleet) Says(r Ref) string {
	if p, _, _ := f.at(r.Pool, first(r.Nodes)); p != nil {
		return p.Says(r.Job, r.Attempt)
	}
	return ""
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

// There says whether a node of a pool is with us now.
func (f *Fleet) There(pool, name string) bool {
	p, _, _ := f.at(pool, name)
	return p != nil
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

func random() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
