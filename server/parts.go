package server

import (
	"slices"
	"time"

	"hora/server/backend"
	"hora/server/client"
)

// A server may have thousands of nodes and a hundred thousand jobs, and asks of nodes each second whether anybody has a
// part there. So what has parts on a node is kept by node, and which nodes of a pool have none, since when; both change
// with a job that begins, ends, or has other nodes, and with a node that comes or goes. Nothing here goes through jobs.

// parts are the jobs whose attempts have slots on each node. The loop owns them.
type parts struct {
	on     map[string]map[int64]*live
	looked int // at jobs and nodes, so far: what tests hold it to
}

// reshare notes what the attempt of a job has from now on; in the loop.
func (s *Server) reshare(l *live, all []client.Share) {
	l.attempt.Shares = all
	s.seat(l)
}

// seat notes on which nodes a job has parts now; in the loop, or before there is one.
func (s *Server) seat(l *live) {
	was := l.seated
	l.seated = nil
	if l.attempt != nil {
		for _, x := range l.attempt.Shares {
			if s.parts.looked++; backend.Holds(x) {
				l.seated = append(l.seated, x.Node)
			}
		}
	}
	for _, name := range was {
		if delete(s.parts.on[name], l.job.ID); len(s.parts.on[name]) == 0 {
			delete(s.parts.on, name)
		}
		if !slices.Contains(l.seated, name) {
			for _, other := range s.parts.on[name] {
				s.parts.looked++
				other.beside = s.now()
			}
		}
	}
	for _, name := range l.seated {
		if s.parts.on == nil {
			s.parts.on = map[string]map[int64]*live{}
		}
		if s.parts.on[name] == nil {
			s.parts.on[name] = map[int64]*live{}
		}
		s.parts.on[name][l.job.ID] = l
		s.rests(name)
	}
	for _, name := range was {
		s.rests(name)
	}
}

// busy says whether an attempt has a part on a node; in the loop.
func (s *Server) busy(name string) bool { return len(s.parts.on[name]) > 0 }

// rests notes whether a node of a pool waits for work that anybody may give it; in the loop.
func (s *Server) rests(name string) {
	s.parts.looked++
	n, there := s.nodes[name]
	p := s.pools[n.Pool]
	switch {
	case !there || p == nil:
	case n.For != 0 || s.busy(name):
		delete(p.idle, name)
	case p.idle[name].IsZero():
		p.idle[name] = time.Now()
	}
}

// came notes a node of a pool; in the loop.
func (s *Server) came(name string) {
	n := s.nodes[name]
	p := s.pools[n.Pool]
	if p == nil {
		return
	}
	p.there[name] = true
	if e := p.ending[name]; e != nil && !e.tried {
		delete(p.ending, name) // it has come back before it could be ended
	}
	if delete(p.fresh, name); n.For != 0 {
		p.fresh[name] = true
	}
	s.rests(name)
}

// went forgets one; in the loop.
func (s *Server) went(name, pool string) {
	if p := s.pools[pool]; p != nil {
		delete(p.there, name)
		delete(p.fresh, name)
		delete(p.idle, name)
	}
}
