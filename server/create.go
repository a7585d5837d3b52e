package server

import (
	"database/sql"
	"errors"
	"time"

	"hora/server/client"
	"hora/server/store"
)

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
