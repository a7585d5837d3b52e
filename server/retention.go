package server

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"hora/server/client"
	"hora/server/snapshot"
	"hora/server/store"
)

// How often what is kept no longer is looked for: a tenth of the shortest time that something is kept, within these.
const (
	expireOften  = time.Second
	expireSeldom = time.Hour
)

// sweepEvery is how often content is looked for that nothing names, when nothing was removed; sweepAfter is how long
// such content stays.
const (
	sweepEvery = 24 * time.Hour
	sweepAfter = 24 * time.Hour
)

// tendRetention removes what is kept no longer, while the clock can be trusted.
func (s *Server) tendRetention() {
	swept, told := time.Time{}, time.Time{}
	for {
		now := s.now() // what was looked at is what is gone by
		until, err := s.store.Look(s.ctx, now)
		switch {
		case err != nil:
		case until.IsZero():
			swept, err = s.expire(now, swept)
		case !until.Equal(told):
			told = until
			s.log.Warn("the clock went more than three days at once: nothing is removed for its age until it has run evenly for a day; set it right where it is wrong",
				"until", until.UTC())
		}
		if s.ctx.Err() != nil {
			return
		}
		if err != nil {
			s.log.Warn("remove what is kept no longer", "error", err)
		}
		wait := expireSeldom
		all, err := s.store.Retentions(s.ctx)
		for _, r := range all {
			for _, seconds := range []int64{r.Jobs, r.Logs, r.Metrics, r.Artifacts} {
				if seconds > 0 {
					wait = min(wait, max(time.Duration(seconds)*time.Second/10, expireOften))
				}
			}
		}
		if err != nil {
			wait = time.Minute
		}
		select {
		case <-time.After(wait):
		case <-s.expires:
		case <-s.ctx.Done():
			return
		}
	}
}

// expire removes what is kept no longer, and content that nothing names; it answers when that was last looked for.
func (s *Server) expire(now, swept time.Time) (time.Time, error) {
	n, err := s.store.Expire(s.ctx, now)
	if n > 0 {
		s.log.Info("removed what is kept no longer", "jobs", n)
	}
	if err == nil && (n > 0 || time.Since(swept) > sweepEvery) {
		swept = time.Now()
		_, err = s.store.Sweep(s.ctx, swept.Add(-sweepAfter), FolderParts)
	}
	return swept, errors.Join(err, s.store.ExpireKeys(s.ctx, now), s.store.ExpirePasses(s.ctx, now))
}

// keptLeast is the shortest time that somebody may say: below it stands a unit that was forgotten.
const keptLeast = time.Hour

// FolderParts are the hashes that the list of a folder's files names.
func FolderParts(list []byte) (all []string, err error) {
	m, err := snapshot.Decode(list)
	if err != nil {
		return nil, err
	}
	for _, f := range m.Files {
		if f.Hash != "" {
			all = append(all, f.Hash)
		}
	}
	return all, nil
}

// Retentions lists how long what is kept; what holds for all others comes first, with an empty project.
func (s *Server) Retentions(ctx context.Context) ([]client.Retention, error) {
	return s.store.Retentions(ctx)
}

// SetRetention says how long a project's things are kept, or those of all others.
func (s *Server) SetRetention(ctx context.Context, project string, r client.Retention) (client.Retention, error) {
	r.Project, r.Removes = project, nil
	for _, k := range []struct {
		name    string
		seconds int64
	}{{"jobs", r.Jobs}, {"logs", r.Logs}, {"metrics", r.Metrics}, {"artifacts", r.Artifacts}} {
		if d := time.Duration(k.seconds) * time.Second; d > 0 && d < keptLeast {
			return r, refuse(422, "%s for %v: what is removed does not come back, so nothing below an hour is taken: give 1h, which is 3600 seconds, or more, or leave it out, which is for ever", k.name, d)
		}
	}
	if r.Jobs > 0 && max(r.Logs, r.Metrics, r.Artifacts) > r.Jobs {
		return r, refuse(422, "jobs are kept for %v, and what they left for longer: it goes with them: lower it, or raise jobs", time.Duration(r.Jobs)*time.Second)
	}
	if err := s.store.Do(ctx, func(tx *sql.Tx) (err error) {
		if err = store.SetRetention(tx, &r); err == nil {
			r.Removes, err = store.Outlived(tx, project, s.now())
		}
		return err
	}); err != nil {
		return r, err
	}
	select {
	case s.expires <- struct{}{}:
	default:
	}
	return r, nil
}
