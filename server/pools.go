package server

import (
	"context"
	"fmt"
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
