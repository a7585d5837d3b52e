package server

import (
	"slices"
	"strings"

	"hora/server/client"
)

// A pool may be for jobs of some projects alone. Jobs that share a node can read each other's secrets, so no other job
// comes in by any way: each goes by Submit, which asks here; and a pool that has others' jobs is not closed to them.

// projectLongest bounds a project's name.
const projectLongest = 200

// checkProjects refuses what names no project, and puts them in order.
func checkProjects(p *client.Pool) error {
	for _, name := range p.Projects {
		if name == "" || name == everyProject || len(name) > projectLongest {
			return refuse(422, "projects: %.60q is no project: name each whose jobs may go to the pool, or leave projects out for everybody's", name)
		}
	}
	slices.Sort(p.Projects)
	p.Projects = slices.Compact(p.Projects)
	return nil
}

// opens says whether jobs of a project may go to a pool.
func (s *Server) opens(pool, project string) (yes bool) {
	return s.do(func() {
		p := s.pools[pool]
		yes = p == nil || isFor(&p.Pool, project)
	}) == nil && yes
}

func isFor(p *client.Pool, project string) bool {
	return len(p.Projects) == 0 || slices.Contains(p.Projects, project)
}

// closed refuses a job that a pool is not for.
func (s *Server) closed(pool, project string) error {
	var whose []string
	open := []string{nameOfDefault}
	if err := s.do(func() {
		for name, p := range s.pools {
			if name == pool {
				whose = p.Projects
			} else if !p.removed && isFor(&p.Pool, project) {
				open = append(open, name)
			}
		}
	}); err != nil {
		return err
	}
	slices.Sort(open[1:])
	return refuse(403, "pool %s is for jobs of %s alone, and this one is of project %s: take one of %s", pool, projectsText(whose), project, strings.Join(open, ", "))
}

// strangersIn refuses to close a pool to jobs that are in it; in the loop.
func (s *Server) strangersIn(p *client.Pool) error {
	for _, l := range s.live {
		if d := &l.job.Document; d.Pool == p.Name && !isFor(p, d.Project) {
			return refuse(409, "job %d of project %s is in pool %s, which is to be for jobs of %s alone: cancel it, or wait for its end", l.job.ID, d.Project, p.Name, projectsText(p.Projects))
		}
	}
	return nil
}

// projectsText names projects in words.
func projectsText(all []string) string {
	if len(all) == 1 {
		return "project " + all[0]
	}
	return "projects " + strings.Join(all, ", ")
}
