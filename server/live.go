package server

import (
	"cmp"
	"context"
	"slices"

	"hora/job"
	"hora/server/client"
	"hora/server/web"
)

// waiting is what tells where a job of those that wait stands, as far as that can be had of a hundred thousand at once.
type waiting struct {
	id       int64
	held     bool
	priority int
}

// Live answers all that runs, and the first of those that wait by priority and age. A reader without a role
// in a job's project does not see it.
func (v view) Live(ctx context.Context, most int) (web.Standing, error) {
	w := caller(ctx)
	if w.job != 0 {
		all, err := v.own(ctx, w.job)
		st := web.Standing{Waits: map[string]int{}}
		for _, j := range all {
			if j.State == job.Running || j.State == job.Preparing {
				st.Running = append(st.Running, j)
			}
		}
		return st, err
	}
	return v.standing(w.projects(), most)
}

// standing reads the live jobs of some projects, or of all with nil.
func (s *Server) standing(projects []string, most int) (web.Standing, error) {
	st := web.Standing{Waits: map[string]int{}}
	var all []waiting
	if err := s.do(func() {
		for id, l := range s.live {
			d := &l.job.Document
			switch {
			case projects != nil && !slices.Contains(projects, d.Project):
			case l.state() == job.Queued || l.job.State == job.Paused:
				all = append(all, waiting{id, l.job.State == job.Paused, *d.Priority})
				if l.job.State != job.Paused {
					st.Waits[d.Pool]++
				}
			default:
				st.Running = append(st.Running, s.seen(l))
			}
		}
	}); err != nil {
		return st, err
	}
	slices.SortFunc(st.Running, func(a, b client.Job) int { return cmp.Compare(b.ID, a.ID) })
	st.Count = len(all)
	slices.SortFunc(all, func(a, b waiting) int { // outside of the loop, which has others to serve
		if a.held != b.held {
			return map[bool]int{false: -1, true: 1}[a.held]
		}
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.id, b.id))
	})
	err := s.some(min(len(all), most), func(i int) {
		if l := s.live[all[i].id]; l != nil {
			st.Waiting = append(st.Waiting, s.seen(l))
		}
	})
	return st, err
}
