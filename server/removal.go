package server

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"hora/server/client"
	"hora/server/store"
)

// A pool is removed for good before any of its nodes is ended, and nothing of the rest needs who asked for it. Which
// nodes are still to be ended stands in the store until they are: a server that is started anew goes on with them.

// RemovePool removes a pool that no job uses; its nodes end. It answers when each of them was ended, or was tried to
// be, or who asked has left.
func (s *Server) RemovePool(ctx context.Context, name string) error {
	was, nodes, err := s.dropPool(ctx, name)
	if err != nil {
		return err
	}
	made, err := s.store.Made(context.WithoutCancel(ctx), name)
	if err != nil {
		return err
	}
	for _, m := range made {
		nodes = append(nodes, m.Node)
	}
	slices.Sort(nodes)
	var left []store.Made
	for _, n := range slices.Compact(nodes) {
		left = append(left, store.Made{Node: n, Pool: was})
	}
	tried := make(chan struct{})
	s.wg.Go(func() { s.endAll(left, tried) })
	select {
	case <-tried:
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return nil
}

// dropPool forgets a pool, and answers what it was and which nodes it had. No job is taken meanwhile, which would wait
// there for ever.
func (s *Server) dropPool(ctx context.Context, name string) (was client.Pool, nodes []string, err error) {
	s.placing.Lock()
	defer s.placing.Unlock()
	var bad error
	var p *pool
	if err := s.do(func() {
		if p = s.pools[name]; p == nil || p.removed {
			bad = refuse(404, "there is no pool %s that was added: hora pool list lists those that there are", name)
			return
		}
		for _, l := range s.live {
			if l.job.Document.Pool == name {
				bad = refuse(409, "job %d is in pool %s: cancel it, or wait for its end", l.job.ID, name)
				return
			}
		}
		p.removed = true // no job comes into it, and no node is made
		s.machine.Await(name, "")
		nodes = s.nodesOf(p)
	}); err != nil || bad != nil {
		return was, nil, errors.Join(bad, err)
	}
	was = p.Pool
	if err := s.store.Do(ctx, func(tx *sql.Tx) error { return store.DropPool(tx, &was, nodes) }); err != nil {
		_ = s.do(func() { p.removed = false })
		return was, nil, err
	}
	if err := s.do(func() {
		nodes = append(nodes, s.nodesOf(p)...) // some may have come meanwhile
		delete(s.pools, name)
		todo, _ := s.count()
		for _, end := range todo {
			s.wg.Go(end)
		}
	}); err != nil {
		return was, nil, err
	}
	return was, nodes, nil
}

// nodesOf are the nodes of a pool that are there, and those that may come; in the loop.
func (s *Server) nodesOf(p *pool) []string {
	nodes := slices.Collect(maps.Keys(p.old))
	if p.Provider != "static" { // they may be machines that cost something, and are let in no more
		for name := range p.starting {
			if !p.strange[name] {
				nodes = append(nodes, name)
			}
		}
		nodes = slices.AppendSeq(nodes, maps.Keys(p.ending))
	}
	for _, n := range s.capacity() {
		if n.Pool == p.Name {
			nodes = append(nodes, n.Name)
		}
	}
	return nodes
}

// endAll ends nodes of pools that were removed, until they are gone or the server ends; tried is closed when each was
// tried once.
func (s *Server) endAll(left []store.Made, tried chan struct{}) {
	for first := true; len(left) > 0; first = false {
		left = slices.DeleteFunc(left, func(m store.Made) bool {
			if s.ctx.Err() != nil {
				return false
			}
			s.hosts.End(m.Node)
			if s.deleted(&m.Pool, m.Node) != nil {
				return false
			}
			_ = s.do(func() {
				if p := s.pools[m.Pool.Name]; p != nil { // another one by now
					delete(p.ending, m.Node)
				}
			})
			return true
		})
		if first {
			close(tried)
			tried = nil
		}
		if len(left) == 0 {
			return
		}
		select {
		case <-time.After(endsAgain):
		case <-s.ctx.Done():
			return
		}
	}
	if tried != nil {
		close(tried)
	}
}

// removedBefore are the nodes of pools that an earlier server has removed, and that are still to be ended.
func (s *Server) removedBefore(ctx context.Context) ([]store.Made, error) {
	made, err := s.store.Made(ctx, "")
	return slices.DeleteFunc(made, func(m store.Made) bool { return s.pools[m.Pool.Name] != nil }), err
}

// keptNames are the nodes of a pool of this name that are still being ended: no other is called so meanwhile.
func keptNames(p *client.Pool, made []store.Made) map[string]*departure {
	all := map[string]*departure{}
	for _, m := range made {
		if m.Pool.Name == p.Name {
			all[m.Node] = &departure{tried: true} // by who removed the pool before
		}
	}
	return all
}
