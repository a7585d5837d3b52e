package server

import (
	"fmt"
	"regexp"
	"slices"
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

func (p *pool) startingFor(owner int64) (n int) {
	for name := range p.starting {
		if madeFor(name) == owner {
			n++
		}
	}
	return n
}

// makeFresh makes nodes for jobs that wait for some of their own. Those without work make way for them, where the pool
// may have no more. It answers what is to be done, and which nodes are free and there after it; in the loop.
func (s *Server) makeFresh(p *pool, free, there []string) (todo []func(), stillFree, stillThere []string) {
	others := 0 // that are coming, but to jobs that wait: those count as wanted until they are there
	for name := range p.starting {
		if l := s.live[madeFor(name)]; l == nil || l.attempt != nil {
			others++
		}
	}
	for _, w := range s.machine.WantsFresh(p.Name, p.Max-len(there)-others+len(free)) {
		for range w.Nodes - p.startingFor(w.ID) {
			if len(there)+len(p.starting) >= p.Max {
				if len(free) == 0 {
					break
				}
				name := free[0]
				free = free[1:]
				there = slices.DeleteFunc(there, func(x string) bool { return x == name })
				todo = append(todo, s.endNode(p, name))
			}
			todo = append(todo, s.create(p, w.ID))
		}
	}
	return todo, free, there
}

// endFresh ends the nodes of jobs that neither wait nor run; in the loop.
func (s *Server) endFresh(p *pool, there []string) (todo []func()) {
	for _, name := range there {
		if owner := s.nodes[name].For; owner != 0 && !s.busy(name) && !s.machine.Knows(owner) {
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
