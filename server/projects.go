package server

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"hora/job"
	"hora/job/schedule"
	"hora/server/client"
	"hora/server/store"
)

// Projects lists what projects have and have had: those that have used something, wait, run or are bounded.
func (s *Server) Projects(ctx context.Context) ([]client.Project, error) {
	used, err := s.store.Projects(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]*client.Project{}
	of := func(name string) *client.Project {
		if all[name] == nil {
			all[name] = &client.Project{Name: name}
		}
		return all[name]
	}
	for _, p := range used {
		of(p.Name)
	}
	err = s.do(func() {
		for name, q := range s.quotas {
			of(name).Quota = q
		}
		for _, l := range s.live {
			p := of(l.job.Document.Project)
			if l.job.State == job.Queued {
				p.Waiting++
			}
			if l.attempt != nil {
				for _, x := range l.attempt.Shares {
					p.Running += max(x.Slots, x.Held)
				}
			}
		}
		for _, p := range all {
			p.Used = s.machine.Used(p.Name, s.now())
		}
	})
	out := []client.Project{}
	for _, p := range all {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b client.Project) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

// SetQuota bounds a project from the next decision on; what runs goes on.
func (s *Server) SetQuota(ctx context.Context, name string, q client.Quota) (client.Project, error) {
	if q.Max > 0 && q.Max < q.Slots {
		return client.Project{}, refuse(422, "max %d is below slots %d: max counts what the project borrows as well", q.Max, q.Slots)
	}
	if q.Max > 0 && q.Slots == 0 {
		return client.Project{}, refuse(422, "max counts a project's own slots and those that it borrows, and this one has none of its own: give slots %d too for no more than %d", q.Max, q.Max)
	}
	if err := s.store.Do(ctx, func(tx *sql.Tx) error { return store.SetQuota(tx, name, q) }); err != nil {
		return client.Project{}, err
	}
	if err := s.do(func() {
		s.quotas[name] = q
		s.machine.SetQuota(name, schedule.Quota(q))
		s.dirty = true
	}); err != nil {
		return client.Project{}, err
	}
	s.news.wake(0)
	all, err := s.Projects(ctx)
	i := slices.IndexFunc(all, func(p client.Project) bool { return p.Name == name })
	if err != nil || i < 0 {
		return client.Project{Name: name}, err
	}
	return all[i], nil
}
