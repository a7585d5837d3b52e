package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"hora/job/schedule"
	"hora/server/backend"
	"hora/server/client"
	"hora/server/store"
)

// Makes is how nodes come to be and end, by a pool's provider. A node that was made dials in by itself.
type Makes interface {
	Create(p *client.Pool, name, token string) error
	Delete(p *client.Pool, name string) error
	List(p *client.Pool) ([]string, error)
}

// pool is what the loop knows of one.
type pool struct {
	client.Pool
	starting map[string]time.Time  // nodes that were made, or are listed, and have not come yet, since when
	making   map[string]bool       // those of them whose command is at it
	strange  map[string]bool       // those that the server has not had made, and the listed ones that it has given up
	foreign  map[string]bool       // those of these that the list alone has named: their tokens are another server's
	there    map[string]bool       // its nodes
	fresh    map[string]bool       // those of them that were made for one job
	idle     map[string]time.Time  // the others without a job, since when
	ending   map[string]*departure // nodes whose machines are being ended
	number   int                   // of the last node that was made
	failed   error                 // why the last one was not
	after    time.Time             // nothing is made before this, after a failure
	stalled  bool                  // the schedule knows of that, and keeps nothing free for who needs more nodes
	told     string                // why, as the schedule has it
	awaits   string                // what else it is told of why none is made
	listed   time.Time             // when it was last asked which nodes there are
	unknown  bool                  // that has not been answered yet
	spare    int                   // nodes that may still come
	old      map[string]bool       // nodes that another provider has made, before the pool was changed
	removed  bool                  // it is being removed
}

// comesWithin is how long a node that was made may take to come.
func comesWithin(p *client.Pool) time.Duration {
	if p.Within > 0 {
		return seconds(p.Within)
	}
	return 10 * time.Minute
}

// nameOfDefault is the pool of the server's own machine.
const nameOfDefault = "default"

func (s *Server) openPools(ctx context.Context) error {
	if !s.hasNodes() { // the folder's pools are for a server that has
		s.count()
		return nil
	}
	all, err := s.store.Pools(ctx)
	if err != nil {
		return err
	}
	made, err := s.store.Made(ctx, "")
	if err != nil {
		return err
	}
	if s.copied, err = s.store.Copied(ctx); err != nil {
		return err
	}
	for i := range all {
		p := newPool(&all[i])
		p.retiring(made)
		for _, m := range made { // they come back, or are ended: no others are made in their place meanwhile
			if m.Pool.Name == p.Name && (p.old[m.Node] || p.Provider == "command") {
				p.starting[m.Node] = time.Now()
				if m.Copied {
					p.strange[m.Node] = true
				}
			}
		}
		p.unknown = p.List != ""
		s.pools[p.Name] = p
		if p.Provider != "local" {
			continue
		}
		names, err := s.makes.List(&p.Pool)
		if err != nil {
			return fmt.Errorf("list the nodes of pool %s: %w", p.Name, err)
		}
		for _, name := range names {
			p.starting[name] = time.Now()
		}
	}
	if err := s.expectJoined(ctx); err != nil {
		return err
	}
	s.count()
	return nil
}

// expect counts the nodes of a job that an earlier server started as coming: no others are made in their place.
func (s *Server) expect(j *client.Job, a *client.Attempt) {
	p := s.pools[j.Document.Pool]
	if p == nil || p.Provider == "static" {
		return
	}
	for _, x := range a.Shares {
		if _, there := s.nodes[x.Node]; !there && backend.Holds(x) {
			if p.Provider == "command" && p.starting[x.Node].IsZero() { // nobody knows what has made it
				p.strange[x.Node] = true
			}
			p.starting[x.Node] = time.Now()
		}
	}
}

func newPool(p *client.Pool) *pool {
	return &pool{
		Pool: *p, starting: map[string]time.Time{}, ending: map[string]*departure{},
		making: map[string]bool{}, strange: map[string]bool{}, foreign: map[string]bool{},
		there: map[string]bool{}, fresh: map[string]bool{}, idle: map[string]time.Time{},
	}
}

// count tells the schedule which nodes there are and may come, and answers what is to be done about those that are
// lost, and what is closed when there are others; in the loop, whenever nodes or pools have changed.
func (s *Server) count() (todo []func(), anew <-chan struct{}) {
	now := map[string]schedule.Node{}
	var changed []string
	all, anew := s.back.Capacity()
	for _, n := range all {
		s.parts.looked++
		if p := s.pools[n.Pool]; p != nil && p.Provider != "static" {
			n.For = madeFor(n.Name)
		}
		now[n.Name] = n
		if s.nodes[n.Name] != n {
			changed = append(changed, n.Name)
			s.machine.SetNode(n)
			s.dirty = true
		}
		if p := s.pools[n.Pool]; p != nil {
			delete(p.starting, n.Name)
			delete(p.strange, n.Name)
			delete(p.foreign, n.Name)
		}
	}
	for name, n := range s.nodes {
		if _, there := now[name]; there {
			continue
		}
		s.machine.RemoveNode(name)
		s.went(name, n.Pool)
		s.dirty = true
		if p := s.pools[n.Pool]; p != nil { // or its machine stays for good
			todo = append(todo, s.endsIf(p, name, func(by *client.Pool) bool { return by.Provider == "command" }))
		}
	}
	before := s.nodes
	s.nodes = now
	for _, name := range changed {
		if was, had := before[name]; had && was.Pool != now[name].Pool {
			s.went(name, was.Pool)
		}
		s.came(name)
	}
	s.spare()
	return todo, anew
}

// spare tells the schedule which nodes may come; in the loop.
func (s *Server) spare() {
	for name, p := range s.pools {
		if spare := max(0, p.Max-len(p.there)-p.stuck()); spare != p.spare {
			p.spare = spare
			s.dirty = true
		}
		like := schedule.Node{Slots: p.Node.Cores, Memory: p.Node.Memory, GPUs: p.Node.GPUs}
		s.machine.SetSpare(name, p.spare, p.Max, like)
	}
}

// tendPools makes and ends nodes, when nodes come or go, after decisions, and each second.
func (s *Server) tendPools() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var changed <-chan struct{}
	for anew, unwritten := true, false; ; {
		var todo []func()
		var joined map[string]store.Node
		if s.do(func() {
			if anew {
				todo, changed = s.count()
			}
			if anew || unwritten {
				joined = s.joinedNow()
			}
			for _, p := range s.pools {
				todo = append(todo, s.tend(p)...)
			}
		}) != nil {
			return
		}
		for _, f := range todo {
			s.wg.Go(f)
		}
		if len(todo) > 0 {
			s.news.wake(0)
		}
		if joined != nil {
			unwritten = !s.keepJoined(joined)
		}
		anew = false
		select {
		case <-changed:
			anew = true
			s.news.wake(0)
		case <-s.wants:
		case <-tick.C: // for the time that nodes are idle
		case <-s.ctx.Done():
			return
		}
	}
}

// tend says what is to be done for one pool; in the loop.
func (s *Server) tend(p *pool) (todo []func()) {
	if p.removed {
		return nil
	}
	todo = append(s.retire(p), s.endAgain(p)...)
	if p.Provider == "static" {
		return todo
	}
	now := time.Now()
	todo = append(todo, s.list(p, now)...)
	for name, since := range p.starting {
		if !p.making[name] && now.Sub(since) > comesWithin(&p.Pool) {
			if delete(p.starting, name); p.strange[name] {
				todo = append(todo, s.forgo(p, name))
				continue
			}
			s.hosts.End(name)
			todo = append(todo, s.ends(p, name))
			p.failed, p.after = fmt.Errorf("node %s was made and has not come in %v", name, comesWithin(&p.Pool)), now.Add(time.Minute)
		}
	}
	if awaited := p.awaited(); awaited != p.awaits {
		p.awaits = awaited
		s.machine.Await(p.Name, awaited)
		s.dirty = true
	}
	failed := brief(p.failed)
	if stalled := now.Before(p.after); stalled != p.stalled || failed != p.told {
		p.stalled, p.told = stalled, failed
		s.machine.Stall(p.Name, s.now().Add(p.after.Sub(now)), failed)
		s.dirty = true
	}
	if now.After(p.after) && !p.unknown {
		// What waits, and so many idle ones beside that.
		todo = append(todo, s.makeFresh(p)...)
		make := max(s.machine.Wants(p.Name), p.Min-len(p.idle)) - p.startingFor(0)
		make = min(make, p.Max-len(p.there)-len(p.starting)-p.stuck())
		for range make {
			todo = append(todo, s.create(p, 0))
		}
	}
	todo = append(todo, s.endFresh(p)...)
	if s.machine.Waiting() > 0 && s.machine.Wants(p.Name) > 0 {
		return todo
	}
	for len(p.idle) > p.Min {
		name := s.longestIdle(p)
		if now.Sub(p.idle[name]) <= seconds(p.Idle) {
			break
		}
		todo = append(todo, s.endNode(p, name))
	}
	return todo
}

// brief is the beginning of why a node was not made, for the reasons of those who wait for one.
func brief(err error) string {
	if err == nil {
		return ""
	}
	why, _, cut := strings.Cut(strings.TrimSpace(without(err)), "\n")
	if r := []rune(why); len(r) > 120 {
		why, cut = string(r[:120]), true
	}
	if cut {
		why += " ..."
	}
	return why
}

// longestIdle is the node of a pool that has waited for work the longest; in the loop.
func (s *Server) longestIdle(p *pool) (longest string) {
	for name, since := range p.idle {
		s.parts.looked++
		if c := since.Compare(p.idle[longest]); longest == "" || c < 0 || c == 0 && name < longest {
			longest = name
		}
	}
	return longest
}

// endNode ends a node without work; in the loop, and what it answers outside.
func (s *Server) endNode(p *pool, name string) func() {
	s.machine.RemoveNode(name)
	delete(s.nodes, name)
	s.went(name, p.Name)
	s.hosts.End(name)
	return s.ends(p, name)
}

// listEvery is how often a pool of commands is asked which nodes there are.
const listEvery = time.Minute

// list asks a pool of commands which nodes there are. Those that the server has not heard of may still come; in the
// loop, and what it answers outside.
func (s *Server) list(p *pool, now time.Time) []func() {
	if p.List == "" || now.Sub(p.listed) < listEvery {
		return nil
	}
	p.listed = now
	spec := p.Pool
	return []func(){func() {
		all, err := s.makes.List(&spec)
		if err != nil {
			s.log.Warn("list the nodes of a pool", "pool", spec.Name, "error", without(err))
		}
		var gone, strange []string
		_ = s.do(func() {
			if p.unknown = false; err == nil {
				gone, strange = p.goneBut(all), p.unlisted(all)
			}
			for _, name := range all {
				ours := NamesNode(p.Name, name) && len(name) <= 200
				_, there := s.nodes[name]
				if ours && !there && p.starting[name].IsZero() && p.ending[name] == nil && !p.strange[name] {
					p.starting[name], p.strange[name], p.foreign[name] = now, true, true // or it would be known
				}
			}
		})
		for _, name := range gone {
			s.forgetMade(&spec, name)
		}
		for _, name := range strange {
			s.forgetCopied(&spec, name)
		}
	}}
}

// create makes one more node, for one job or for everybody; in the loop, and what it answers outside.
func (s *Server) create(p *pool, owner int64) func() {
	if p.number == 0 && s.copied && p.Provider == "command" {
		p.number = apart()
	}
	name := ""
	for taken := true; taken; {
		p.number++
		name = nodeName(p.Name, p.number, owner)
		_, there := s.nodes[name]
		taken = there || !p.starting[name].IsZero() || p.ending[name] != nil || p.strange[name]
	}
	p.starting[name], p.making[name] = time.Now(), true
	delete(p.foreign, name)
	spec := p.Pool
	return func() {
		taken, there, err := s.make(&spec, name)
		removed := false // the pool, meanwhile
		_ = s.do(func() {
			delete(p.making, name)
			if taken {
				p.strange[name] = true
				return
			}
			if p.failed = err; err != nil {
				p.after = time.Now().Add(10 * time.Second)
			}
			if !there {
				delete(p.starting, name)
			}
			removed = s.pools[spec.Name] != p // and maybe made anew
		})
		if removed && there {
			s.endMade(&spec, name)
		}
		if err != nil && s.ctx.Err() == nil {
			s.log.Warn("make a node", "pool", spec.Name, "node", name, "error", without(err))
		}
	}
}

// make makes a node, and says whether another server's machine is called so, and whether one may be there now. It is
// written down before that this server makes it: the next one knows of it, whenever this one ends.
func (s *Server) make(p *client.Pool, name string) (taken, there bool, err error) {
	if s.isListed(p, name) {
		return true, false, nil
	}
	t, err := s.token(s.ctx, store.Token{
		Scope: store.ScopeJoin, Pool: p.Name, Node: name, Expires: time.Now().Add(comesWithin(p)),
	})
	if err == nil {
		m := &store.Made{Node: name, Pool: *p}
		err = s.store.Do(s.ctx, func(tx *sql.Tx) error { return store.SetMade(tx, m) })
	}
	if err != nil {
		return false, false, err
	}
	if err = s.makes.Create(p, name, t); err == nil {
		return false, true, nil
	}
	if f := (*CommandFault)(nil); errors.As(err, &f) && f.Late {
		return false, true, err
	}
	here := false // it came, and something after that went wrong: it is ours to end
	_ = s.do(func() { _, here = s.nodes[name] })
	if here {
		return false, true, err
	}
	s.forgetMade(p, name) // a machine of that name is another's
	return false, false, err
}

// endMade ends a node whose pool was removed while it was being made, and maybe tried to end it before it was there.
func (s *Server) endMade(p *client.Pool, name string) {
	m := store.Made{Node: name, Pool: *p}
	if err := s.store.Do(s.ctx, func(tx *sql.Tx) error { return store.SetMade(tx, &m) }); err != nil {
		s.log.Warn("note that a node was made", "pool", p.Name, "node", name, "error", err)
	}
	s.endAll([]store.Made{m}, make(chan struct{}))
}

// token makes a token and keeps its hash.
func (s *Server) token(ctx context.Context, t store.Token) (string, error) {
	text := client.Key() + client.Key()
	t.Made = s.now()
	return text, s.store.Do(ctx, func(tx *sql.Tx) error { return store.AddToken(tx, text, t) })
}

// JoinToken makes a token with which machines may come into a pool for some time.
func (s *Server) JoinToken(ctx context.Context, name, address string, valid time.Duration) (client.JoinToken, error) {
	t := client.JoinToken{Pool: name, Server: address, Expires: time.Now().Add(valid).UTC()}
	if !s.hasNodes() {
		return t, refuse(422, noNodesText)
	}
	all, err := s.Pools(ctx)
	if err != nil {
		return t, err
	}
	i := slices.IndexFunc(all, func(p client.Pool) bool { return p.Name == name })
	if i >= 0 && all[i].Provider == "local" {
		return t, refuse(http.StatusNotFound, "the nodes of pool %s are processes that the server makes itself, so no machine joins it: hora pool list has the pools, and hora pool add NAME makes one for machines", name)
	}
	if i < 0 {
		return t, refuse(http.StatusNotFound, "there is no pool %s that machines may join: hora pool add %s --provider static makes one", name, name)
	}
	t.Token, err = s.token(ctx, store.Token{Scope: store.ScopeJoin, Pool: name, Expires: t.Expires})
	return t, err
}

// AddPool adds a pool, or changes one.
func (s *Server) AddPool(ctx context.Context, p client.Pool) (client.Pool, error) {
	p.Ready, p.Starting, p.Warning = 0, 0, ""
	switch made := p.Provider != "static"; {
	case !s.hasNodes():
		return p, refuse(422, noNodesText)
	case p.Name == nameOfDefault:
		return p, refuse(422, "pool default is the server's own machine: give the pool another name")
	case !made && (p.Min > 0 || p.Max > 0 || p.Idle > 0 || p.Within > 0 || p.Node != client.NodeSize{}):
		return p, refuse(422, "the nodes of a static pool come by themselves and say what they have: leave min, max, idle, within and node out, or take --provider local or command")
	case made && p.Max < 1:
		return p, refuse(422, "max %d: a pool whose nodes are made needs room for one at least: give --max", p.Max)
	case p.Min > p.Max:
		return p, refuse(422, "min %d is above max %d: lower it, or raise max", p.Min, p.Max)
	case made && p.Node.Cores < 1:
		return p, refuse(422, "node: say how many cores each node has, as in --node cores=2,memory=8GiB")
	case p.Provider == "command" && (p.Create == "" || p.Delete == ""):
		return p, refuse(422, "a pool of commands needs the commands that make and end a node: give --create and --delete")
	case p.Provider != "command" && p.Create+p.Delete+p.List != "":
		return p, refuse(422, "create, delete and list are for --provider command: leave them out")
	}
	if err := checkProjects(&p); err != nil {
		return p, err
	}
	s.placing.Lock()
	defer s.placing.Unlock()
	if p.Provider != "static" && p.Idle == 0 {
		p.Idle = (20 * time.Minute).Seconds()
	}
	var bad error
	var was []string // for whose jobs it is now
	if err := s.do(func() {
		if old := s.pools[p.Name]; old != nil {
			was = old.Projects
			if old.removed {
				bad = refuse(409, "pool %s is just being removed: call again in a moment", p.Name)
			}
		}
		if bad == nil {
			bad = s.strangersIn(&p)
		}
	}); err != nil || bad != nil {
		return p, errors.Join(bad, err)
	}
	if err := s.store.Do(ctx, func(tx *sql.Tx) error { return store.SetPool(tx, &p) }); err != nil {
		return p, err
	}
	made, err := s.store.Made(ctx, p.Name)
	if err != nil {
		return p, err
	}
	err = s.do(func() {
		if old := s.pools[p.Name]; old != nil {
			old.Pool = p
			old.retiring(made)
		} else {
			s.pools[p.Name] = newPool(&p)
			s.pools[p.Name].ending = keptNames(&p, made)
			s.pools[p.Name].unknown = p.List != "" // its list may name some that are another's
			for name, n := range s.nodes {
				if n.Pool == p.Name {
					s.came(name)
				}
			}
		}
		todo, _ := s.count()
		for _, end := range todo {
			s.wg.Go(end)
		}
		p.Warning = s.odd(s.pools[p.Name], error.Error)
		if p.Warning == "" && len(was) > 0 && len(p.Projects) == 0 {
			p.Warning = fmt.Sprintf("it was for jobs of %s alone, and is everybody's now: give --project again where that is not meant", projectsText(was))
		}
	})
	return p, err
}

// EndIdle ends the nodes of this machine's own pools that have no job: those that have go on without a server.
func (s *Server) EndIdle() {
	var names []string
	_ = s.do(func() {
		for _, n := range s.capacity() {
			if p := s.pools[n.Pool]; p != nil && p.Provider == "local" && !s.busy(n.Name) {
				names = append(names, n.Name)
			}
		}
	})
	for _, n := range names {
		s.hosts.End(n)
	}
}

// lives says whether an attempt that a node has goes on there.
func (s *Server) lives(name string, id [2]int64) (yes bool) {
	if s.do(func() {
		l := s.live[id[0]]
		yes = l != nil && l.attempt != nil && int64(l.attempt.Number) == id[1] &&
			slices.ContainsFunc(l.attempt.Shares, func(x client.Share) bool { return x.Node == name })
	}) != nil {
		return true // it is looked at when a server is there
	}
	return yes
}

// admit says whether a node may come with a token.
func (s *Server) admit(t store.Token, h *backend.Comer) error {
	switch {
	case h.Pool != t.Pool:
		return fmt.Errorf("the token is for pool %s and not for %s: hora pool token %s makes one", t.Pool, h.Pool, h.Pool)
	case t.Node != "" && h.Name != t.Node:
		return fmt.Errorf("the token is node %s's and this one is called %s: make another with hora pool token %s", t.Node, h.Name, t.Pool)
	case h.Name == "" || len(h.Name) > 200 || h.Slots < 1 || h.Slots > 1<<16 || strings.ContainsAny(h.Name, " \t\r\n/\\\x00"):
		return fmt.Errorf("node %.60q with %d slots: give it a --name without blanks, and 1 to 65536 --slots", h.Name, h.Slots)
	}
	other, err := s.poolOf(h.Name, h.Pool)
	if err == nil && other != "" {
		err = fmt.Errorf("node %s is one of pool %s, and was there last: give this one another --name, or wait until no job of that pool runs on it", h.Name, other)
	}
	if err == nil && t.Scope == store.ScopeJoin && t.Node == "" && s.keptFor(h) {
		err = fmt.Errorf("node %s has jobs, and comes back from its own folder: give this one another --name, or wait until they have ended or the node is lost", h.Name)
	}
	return err
}

// keptFor says whether jobs run under a node's name, and it is not this node that has them: whoever has a pool's token
// would be told what is theirs.
func (s *Server) keptFor(h *backend.Comer) (kept bool) {
	if s.hosts.Instance(h.Name) == h.Instance {
		return false
	}
	return s.do(func() { kept = len(s.parts.on[h.Name]) > 0 }) != nil || kept
}

// poolOf is another pool than one that a node's name belongs to: jobs of it run there, it has such a node now, or was
// making it; "" where there is none. Whoever comes under that name would be told what is that pool's.
func (s *Server) poolOf(name, pool string) (other string, err error) {
	made, err := s.store.Made(s.ctx, "")
	if err != nil {
		return "", err
	}
	err = s.do(func() {
		for _, l := range s.parts.on[name] {
			if p := l.job.Document.Pool; p != pool {
				other = p
			}
		}
		if n, there := s.nodes[name]; there && !n.Closed && n.Pool != pool {
			other = n.Pool
		}
		for _, m := range made {
			if m.Node == name && m.Pool.Name != pool {
				other = m.Pool.Name
			}
		}
	})
	return other, err
}
