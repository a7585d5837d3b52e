package server

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"hora/server/client"
	"hora/server/store"
)

// A pool may be changed while it has nodes. What has made a node ends it: the commands, or the provider, that the pool
// had then. Nodes of another provider than the pool's are ended as soon as they have no job.

// retiring notes the nodes of another provider; in the loop, or before there is one.
func (p *pool) retiring(made []store.Made) {
	p.old = map[string]bool{}
	for _, m := range made {
		if m.Pool.Name == p.Name && m.Pool.Provider != p.Provider {
			p.old[m.Node] = true
		}
	}
}

// retire ends those without a job; in the loop, and what it answers outside.
func (s *Server) retire(p *pool) (todo []func()) {
	for name := range p.old {
		_, there := s.nodes[name]
		since, coming := p.starting[name]
		switch {
		case coming && (p.making[name] || time.Since(since) < comesWithin(&p.Pool)), there && s.busy(name):
			continue
		case there:
			todo = append(todo, s.endNode(p, name))
		default:
			delete(p.starting, name)
			s.hosts.End(name)
			todo = append(todo, s.ends(p, name))
		}
		delete(p.old, name)
	}
	return todo
}

// madeBy is the pool that made a node, as it was then, and whether this server had it made, or it has come; now's where
// nobody knows.
func (s *Server) madeBy(now *client.Pool, name string) (by *client.Pool, ours bool, err error) {
	all, err := s.store.Made(context.WithoutCancel(s.ctx), now.Name)
	if err != nil {
		return now, false, fmt.Errorf("look up what has made it: %w", err)
	}
	if i := slices.IndexFunc(all, func(m store.Made) bool { return m.Node == name }); i >= 0 {
		return &all[i].Pool, !all[i].Copied, nil
	}
	return now, false, nil
}

// deleted sees to it that a node is gone that has ended, or is to, and says why it is not. A machine that is not this
// server's is left alone.
func (s *Server) deleted(now *client.Pool, name string) error {
	p, ours, err := s.madeBy(now, name)
	switch {
	case err != nil:
	case p.Provider == "static": // its machine is nobody's to end
		return nil
	case p.Provider == "command" && !ours:
		s.forgetCopied(p, name)
		return nil
	default:
		if err = s.makes.Delete(p, name); err != nil && s.gone(p, name) {
			err = nil
		}
	}
	if err != nil {
		s.log.Warn("end a node", "pool", p.Name, "node", name, "error", without(err))
		return err
	}
	s.forgetMade(p, name)
	return nil
}

// gone says whether the list of what has made a node answers without naming it, nothing at all among it: a machine
// that is not there cannot be ended, and need not be. Of a pool that was removed nobody else asks.
func (s *Server) gone(p *client.Pool, name string) bool {
	if p.List == "" {
		return false
	}
	there, err := s.makes.List(p)
	return err == nil && !slices.Contains(there, name)
}

// forgetMade notes that a node is gone, or has never been.
func (s *Server) forgetMade(p *client.Pool, name string) {
	gone := func(tx *sql.Tx) error { return store.DropMade(tx, p.Name, name) }
	if err := s.store.Do(context.WithoutCancel(s.ctx), gone); err != nil && s.ctx.Err() == nil {
		s.log.Warn("note that a node is gone", "pool", p.Name, "node", name, "error", err)
	}
}
