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

	"hora/server/backend"
	"hora/server/client"
	"hora/server/store"
)

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
