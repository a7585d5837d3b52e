package fleet

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"hora/server/backend"
	"hora/server/client"
	"hora/server/node"
)

// run is a gang that this server has started or watches: what its first node says and what others have of it come
// together here. The other nodes are joined to it as soon as it says where agents are awaited; what ends of them is
// told to who watches, who says by starting the gang anew how it goes on.
type run struct {
	f    *Fleet
	id   key
	ctx  context.Context // until it has ended, or the fleet has
	over context.CancelFunc
	turn chan struct{}                // has who hands something over in it
	take func([]backend.Record) error // the turn's; nil while nobody watches
	wg   sync.WaitGroup               // of what begin has begun

	mu     sync.Mutex                 // guards what follows
	gang   *backend.Gang              // as it was declared last, where it has other nodes or may have
	lock   []string                   // the releases that its first node's environment has, which the others take too
	hub    []string                   // where they are awaited
	joined map[string]int             // nodes that take part, and the number of their coming from 1
	parted map[string]*backend.Parted // what has ended last of each
	closed bool
}

// runOf is the run of an attempt.
func (f *Fleet) runOf(k key) *run {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.runs[k]
	if r == nil {
		r = &run{f: f, id: k, turn: make(chan struct{}, 1)}
		r.joined, r.parted = map[string]int{}, map[string]*backend.Parted{}
		r.ctx, r.over = context.WithCancel(f.ctx)
		f.runs[k] = r
	}
	return r
}

// begin does something beside; with the lock.
func (r *run) begin(do func()) {
	if r.closed {
		return
	}
	r.wg.Add(1)
	if !r.f.begin(func() { defer r.wg.Done(); do() }) {
		r.wg.Done()
	}
}

// end returns when nothing is done for the gang any more.
func (r *run) end() {
	r.over()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.wg.Wait()
}

// wait takes the turn.
func (r *run) wait(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ref names the gang, by what is known of it; with the lock.
func (r *run) ref() *backend.Ref {
	ref := r.gang.Ref()
	return &ref
}

// declare notes what a gang is to be, and sees to what it leaves. What a node has in outputs/ that it has left, or that
// takes part anew, is told of.
func (r *run) declare(g *backend.Gang) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.gang
	if r.gang = g; was == nil {
		return
	}
	for _, now := range g.Shares[1:] {
		at := slices.IndexFunc(was.Shares, func(s client.Share) bool { return s.Node == now.Node })
		if at < 1 {
			continue
		}
		before := was.Shares[at]
		anew, left := now.Coming > before.Coming, backend.Holds(before) && !backend.Holds(now)
		if of := hadBy(r.ref(), now.Node); anew || left {
			r.begin(func() { r.tell(func() []backend.Record { return r.f.files(r.ctx, of) }) })
		}
		if p := r.parted[now.Node]; left && anew && p != nil && p.Coming == before.Coming {
			r.quote(p)
		}
	}
}

// quote has the gang's output say what a part wrote last that it goes on without; with the lock.
func (r *run) quote(p *backend.Parted) {
	lines, ref := p.Quoted(time.Now()), r.ref()
	if lines == nil {
		return
	}
	r.begin(func() { // where it does not come there the job's story says the rest
		_ = r.f.reach(r.ctx, ref.Pool, first(ref.Nodes), func(at place) error {
			return at.Quote(ref.Job, ref.Attempt, lines)
		})
	})
}

// join has those nodes take part that may have slots, once for each of their comings, where it is known where.
func (r *run) join() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.f.mu.Lock()
	ends := r.f.kills[r.id] != ""
	r.f.mu.Unlock()
	if r.hub == nil || r.gang == nil || ends {
		return
	}
	g, hub := toldTo(r.gang), r.hub
	if g.Document.Environment != nil && r.lock != nil {
		with := *g.Document.Environment
		with.Lock = r.lock
		g.Document.Environment = &with
	}
	for i := 1; i < len(g.Shares); i++ {
		name, coming := g.Shares[i].Node, 0
		for _, s := range r.gang.Shares {
			if s.Node == name {
				coming = s.Coming
			}
		}
		if r.joined[name] != coming+1 {
			r.joined[name] = coming + 1
			r.begin(func() { r.follow(g, i, coming, hub) })
		}
	}
}

// partedAfter is how long the end of a part is not told of: where the job has ended too, it is no news.
const partedAfter = 3 * time.Second

// remaining tells of what ranks on a node that was lost and is back said before, which goes when what the node has of
// the gang is made anew.
func (r *run) remaining(of had) {
	gone := (*backend.Lost)(nil)
	r.mu.Lock()
	was := r.parted[of.node]
	r.mu.Unlock()
	if was == nil || !errors.As(was.Err, &gone) {
		return
	}
	within, cancel := context.WithTimeout(r.ctx, reportsWithin)
	left, _ := r.f.reports(within, of) // what does not come is as lost as the node was
	cancel()
	_ = r.heard(left)
}

// follow has a node take part, and tells of what its ranks say and of its end.
func (r *run) follow(g node.Gang, i, coming int, hub []string) {
	r.remaining(had{g.Document.Pool, g.Shares[i].Node, g.Job, g.Attempt})
	p := r.f.partOf(r.ctx, g, i, coming, hub, r.heard)
	select {
	case <-time.After(partedAfter):
	case <-r.ctx.Done():
		return
	}
	r.mu.Lock()
	r.parted[p.Node] = p
	r.mu.Unlock()
	r.tell(func() []backend.Record { return []backend.Record{{At: time.Now().UTC(), Parted: p}} })
}

// tell hands something over beside what the first node says, when somebody watches, and again where it was not taken.
func (r *run) tell(what func() []backend.Record) {
	for {
		all := what()
		if len(all) == 0 || r.wait(r.ctx) != nil {
			return
		}
		taken := r.ctx.Err() != nil || r.take != nil && r.take(all) == nil // what has ended is told of no more
		<-r.turn
		if taken {
			return
		}
		select {
		case <-time.After(time.Second):
		case <-r.ctx.Done():
			return
		}
	}
}

// heard hands over what ranks on another node than the first have said, and returns when it is taken.
func (r *run) heard(all []backend.Record) error {
	if len(all) > 0 {
		r.tell(func() []backend.Record { return all })
	}
	return r.ctx.Err()
}

// Watch hands over what comes of a gang after a record.
func (f *Fleet) Watch(ctx context.Context, w backend.Ref, from uint64, take func([]backend.Record) error) error {
	r := f.runOf(keyOf(&w))
	if err := r.wait(ctx); err != nil {
		return err
	}
	r.take = take
	<-r.turn
	defer func() {
		r.turn <- struct{}{}
		r.take = nil
		<-r.turn
	}()
	err := f.reach(ctx, w.Pool, first(w.Nodes), func(p place) error {
		f.mu.Lock()
		why := f.kills[r.id]
		f.mu.Unlock()
		if why != "" {
			_ = p.Kill(w.Job, w.Attempt, why)
		}
		return p.Watch(ctx, w.Job, w.Attempt, from, said(p, w.Job, w.Attempt, func(all []node.Record) error {
			if err := r.hand(ctx, &w, all); err != nil {
				return err
			}
			from = all[len(all)-1].N
			return nil
		}))
	})
	gone := (*backend.Lost)(nil)
	switch unbegun := errors.Is(err, node.ErrUnbegun); {
	case unbegun && from == 0:
		return &backend.Unbegun{Says: f.says(hadBy(&w, first(w.Nodes)))}
	case unbegun: // the records of another one would be taken for those of the one that was
		return r.lost(ctx, &w, "nothing is left of it on its node")
	case errors.As(err, &gone):
		return r.lost(ctx, &w, err.Error())
	case errors.Is(err, backend.ErrLost):
		return r.lost(ctx, &w, "the process that kept it was killed")
	}
	return err
}

// saidAfter is how far apart a node is told what has been taken.
const saidAfter = time.Second

// said tells a node what has been taken, so that it need not keep it. A word that does not come to it is none: the next
// one says more.
func said(p place, job int64, attempt int, take func([]node.Record) error) func([]node.Record) error {
	last := time.Time{} // at once: from then on it removes what has been taken
	return func(all []node.Record) error {
		if err := take(all); err != nil {
			return err
		}
		if n := len(all); all[n-1].Exit == nil && time.Since(last) >= saidAfter {
			_ = p.Taken(job, attempt, all[n-1].N)
			last = time.Now()
		}
		return nil
	}
}

// hand hands over what the first node has said, and what the others have before its end.
func (r *run) hand(ctx context.Context, w *backend.Ref, all []node.Record) error {
	if err := r.wait(ctx); err != nil {
		return err
	}
	defer func() { <-r.turn }()
	r.mu.Lock()
	several, fixed := r.gang != nil, r.gang != nil && r.gang.Document.Spec.MinNP == 0
	r.mu.Unlock()
	var hub, lock []string
	out := make([]backend.Record, 0, len(all))
	for i := range all {
		n := &all[i]
		one := backend.Record{
			N: n.N, At: n.At, Begun: n.Begun != nil, Ready: n.Ready, Lines: n.Lines, Event: n.Event, Report: n.Report,
			Gone: n.Gone, Exit: n.Exit,
		}
		switch {
		case n.Ready != nil:
			lock = n.Ready.Lock
		case n.Gone != nil:
			if n.Gone.Ready != nil {
				lock = n.Gone.Ready.Lock
			}
			left, err := r.f.left(ctx, w, n.At)
			if err != nil {
				return err
			}
			out = append(out, left...)
		case n.Artifact != nil:
			one.Artifact = r.f.artifact(hadBy(w, first(w.Nodes)), n.Artifact.Path)
		case n.Stands != nil:
			hub = n.Stands.Hub
			if several && !fixed || len(n.Stands.Shares) > 0 {
				one.Stands = &backend.Stands{Shares: n.Stands.Shares, Seats: n.Stands.Seats}
			}
		case n.Event != nil && fixed:
			if addrs := node.Listens(n.Event); addrs != nil {
				hub = addrs
			}
		case n.Exit != nil:
			rest, err := r.rest(ctx, w)
			if err != nil {
				return err
			}
			out = append(out, rest...)
		}
		out = append(out, one)
	}
	if err := r.take(out); err != nil || hub == nil && lock == nil {
		return err
	}
	r.mu.Lock()
	if lock != nil {
		r.lock = lock
	}
	if hub != nil {
		r.hub = hub
	}
	r.mu.Unlock()
	r.join()
	return nil
}

// lost says that nothing keeps a gang any more, with what is left of it.
func (r *run) lost(ctx context.Context, w *backend.Ref, text string) error {
	if err := r.wait(ctx); err != nil {
		return err
	}
	defer func() { <-r.turn }()
	now := time.Now().UTC()
	all, _ := r.f.left(ctx, w, now) // what its node has, where that is there
	rest, err := r.rest(ctx, w)
	if err != nil {
		return err
	}
	end := &backend.Exit{Code: backend.ExitHost, Outcome: string(client.Lost), Text: text}
	return r.take(append(append(all, rest...), backend.Record{At: now, Exit: end}))
}

// left are the files that the first node of a gang has in outputs/.
func (f *Fleet) left(ctx context.Context, w *backend.Ref, at time.Time) (all []backend.Record, err error) {
	of := hadBy(w, first(w.Nodes))
	within, cancel := context.WithTimeout(ctx, f.lists)
	defer cancel()
	paths, err := f.outputs(within, of)
	for _, path := range paths {
		all = append(all, backend.Record{At: at, Artifact: f.artifact(of, path)})
	}
	return all, err
}

// reportsWithin is how long a part of an attempt that has ended may take to end too.
const reportsWithin = 10 * time.Second

// rest is what the ranks on other nodes than the first have reported and left in outputs/, once the gang has ended.
func (r *run) rest(ctx context.Context, w *backend.Ref) (all []backend.Record, err error) {
	r.over()
	nodes := slices.Clone(w.Nodes)
	r.mu.Lock()
	if r.gang != nil { // it may have had others since
		for _, name := range r.ref().Nodes {
			if !slices.Contains(nodes, name) {
				nodes = append(nodes, name)
			}
		}
	}
	r.mu.Unlock()
	for _, name := range nodes[1:] {
		of, now := hadBy(w, name), time.Now().UTC()
		within, cancel := context.WithTimeout(ctx, reportsWithin)
		said, err := r.f.reports(within, of)
		late := within.Err() != nil
		cancel()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil && r.f.listed(name) { // of one that is lost there is what came
			none := &backend.Missing{Reports: true, Late: late, Err: err}
			all = append(all, backend.Record{At: now, From: name, Missing: none})
		}
		all = append(append(all, said...), r.f.files(ctx, of)...)
	}
	return all, nil
}

// files are those that a node has in outputs/; of one that is lost there are none.
func (f *Fleet) files(ctx context.Context, of had) (all []backend.Record) {
	now := time.Now().UTC()
	within, cancel := context.WithTimeout(ctx, f.lists)
	defer cancel()
	paths, err := f.outputs(within, of)
	if err != nil && f.listed(of.node) {
		late := within.Err() != nil && ctx.Err() == nil
		all = append(all, backend.Record{At: now, From: of.node, Missing: &backend.Missing{Late: late, Err: err}})
	}
	for _, path := range paths {
		all = append(all, backend.Record{At: now, From: of.node, Artifact: f.artifact(of, path)})
	}
	return all
}

// listed says whether a node is not lost.
func (f *Fleet) listed(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[name] != nil || f.here(name)
}

var (
	_ backend.Backend = (*Fleet)(nil)
	_ backend.Nodes   = (*Fleet)(nil)
	_ backend.Ahead   = (*Fleet)(nil)
)
