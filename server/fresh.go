package server

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A node that is made for one job says so in its name. So a server that was away, and a pool's commands, know it.
var ofOneJob = regexp.MustCompile(`-[0-9]+-job([0-9]+)$`)

func nodeName(pool string, number int, owner int64) string {
	if owner == 0 {
		return fmt.Sprintf("%s-%d", pool, number)
	}
	return fmt.Sprintf("%s-%d-job%d", pool, number, owner)
}

// NamesNode says whether a name is one that a pool gives to its nodes.
func NamesNode(pool, name string) bool {
	number, ours := strings.CutPrefix(name, pool+"-")
	if i := ofOneJob.FindStringIndex(name); i != nil {
		number, ours = strings.CutPrefix(name[:strings.LastIndex(name, "-job")], pool+"-")
	}
	_, err := strconv.ParseUint(number, 10, 63)
	return ours && err == nil
}

// madeFor is the job that a node was made for, 0 for everybody's.
func madeFor(name string) int64 {
	m := ofOneJob.FindStringSubmatch(name)
	if m == nil {
		return 0
	}
	id, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// startingFor counts the nodes that are coming, for one job or for everybody. Another server's come to that one.
func (p *pool) startingFor(owner int64) (n int) {
	for name := range p.starting {
		if madeFor(name) == owner && !p.foreign[name] {
			n++
		}
	}
	return n
}

// makeFresh makes nodes for jobs that wait for some of their own. Those without work make way for them, where the pool
// may have no more; in the loop, and what it answers outside.
func (s *Server) makeFresh(p *pool) (todo []func()) {
	others := 0 // that are coming to jobs that do not wait: those of jobs that do count as wanted until they are there
	for name := range p.starting {
		if owner := madeFor(name); owner != 0 && (s.live[owner] == nil || s.live[owner].attempt != nil) {
			others++
		}
	}
	for _, w := range s.machine.WantsFresh(p.Name, p.Max-len(p.there)-p.stuck()-others+len(p.idle), p.startingFor(0)) {
		for range w.Nodes - p.startingFor(w.ID) {
			if len(p.there)+len(p.starting)+p.stuck() >= p.Max {
				if len(p.idle) == 0 {
					break
				}
				todo = append(todo, s.endNode(p, s.longestIdle(p)))
			}
			todo = append(todo, s.create(p, w.ID))
		}
	}
	return todo
}

// endFresh ends the nodes of jobs that neither wait nor run; in the loop.
func (s *Server) endFresh(p *pool) (todo []func()) {
	for name := range p.fresh {
		if s.parts.looked++; !s.busy(name) && !s.machine.Knows(s.nodes[name].For) {
			todo = append(todo, s.endNode(p, name))
		}
	}
	return todo
}

// poolsThatMake are those that make nodes.
func (s *Server) poolsThatMake() (all []string) {
	_ = s.do(func() {
		for name, p := range s.pools {
			if p.Provider != "static" {
				all = append(all, name)
			}
		}
	})
	return all
}
