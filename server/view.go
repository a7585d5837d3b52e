package server

import (
	"context"
	"net/http"
	"slices"

	"hora/job"
	"hora/server/client"
	"hora/server/web"
)

// view is the server as a caller may see it, and touch it: what the pages stand on. Nodes and pools are everybody's.
type view struct{ *Server }

// Jobs lists jobs of the projects that the caller sees.
func (v view) Jobs(
	ctx context.Context, states []job.State, project string, below int64, limit int,
) ([]client.Job, error) {
	w := caller(ctx)
	if w.job != 0 {
		all, err := v.own(ctx, w.job)
		return slices.DeleteFunc(all, func(j client.Job) bool {
			return below != 0 && j.ID >= below || len(states) > 0 && !slices.Contains(states, j.State) ||
				project != "" && j.Document.Project != project
		}), err
	}
	in := w.projects()
	if project != "" {
		if err := allowed(w, viewer, project); err != nil {
			return nil, err
		}
		in = []string{project}
	}
	return v.Server.Jobs(ctx, states, in, below, limit)
}

// own is the one job that a token is for.
func (v view) own(ctx context.Context, id int64) ([]client.Job, error) {
	j, err := v.Server.Job(ctx, id)
	return []client.Job{j}, err
}

// Projects lists the projects that the caller sees.
func (v view) Projects(ctx context.Context) ([]client.Project, error) {
	all, err := v.Server.Projects(ctx)
	w := caller(ctx)
	return slices.DeleteFunc(all, func(p client.Project) bool { return !w.may(viewer, p.Name) }), err
}

func (v view) allowed(ctx context.Context, r role, id int64) error {
	return v.allowedJob(ctx, caller(ctx), r, id)
}

// Job answers a job that the caller sees.
func (v view) Job(ctx context.Context, id int64) (client.Job, error) {
	if err := v.allowed(ctx, viewer, id); err != nil {
		return client.Job{}, err
	}
	return v.Server.Job(ctx, id)
}

// Story is what has happened to it.
func (v view) Story(ctx context.Context, id int64) ([]client.Happening, error) {
	if err := v.allowed(ctx, viewer, id); err != nil {
		return nil, err
	}
	return v.Server.Story(ctx, id)
}

// Tail answers its last lines.
func (v view) Tail(ctx context.Context, id int64, lines int) ([]client.Line, string, error) {
	if err := v.allowed(ctx, viewer, id); err != nil {
		return nil, "", err
	}
	return v.Server.Tail(ctx, id, lines)
}

// Curves answers its metrics.
func (v view) Curves(ctx context.Context, id int64, points int) ([]client.Metric, error) {
	if err := v.allowed(ctx, viewer, id); err != nil {
		return nil, err
	}
	return v.Server.Curves(ctx, id, points)
}

// Results answers what came back of its outputs/.
func (v view) Results(ctx context.Context, id int64) ([]client.Artifact, error) {
	if err := v.allowed(ctx, viewer, id); err != nil {
		return nil, err
	}
	return v.Server.Results(ctx, id)
}

// Code is the folder that went along with a job that the caller sees.
func (v view) Code(ctx context.Context, j *client.Job) (*web.Code, error) {
	if err := v.allowed(ctx, viewer, j.ID); err != nil {
		return nil, err
	}
	return v.Server.Code(j)
}

// CodeFile opens the beginning of one of its files.
func (v view) CodeFile(
	ctx context.Context, id int64, path string,
) (f web.CodeFile, content []byte, cut bool, err error) {
	j, err := v.Job(ctx, id)
	if err != nil {
		return f, nil, false, err
	}
	return v.Server.CodeFile(&j, path)
}

// Cancel ends a job of the caller's.
func (v view) Cancel(ctx context.Context, id int64) (client.Job, error) {
	return v.press(ctx, id, v.Server.Cancel)
}

// Pause has it wait.
func (v view) Pause(ctx context.Context, id int64) (client.Job, error) {
	return v.press(ctx, id, v.Server.Pause)
}

// Resume lets it go on.
func (v view) Resume(ctx context.Context, id int64) (client.Job, error) {
	return v.press(ctx, id, v.Server.Resume)
}

// Orders says whether the caller may cancel, pause and resume a job.
func (v view) Orders(ctx context.Context, j *client.Job) bool {
	return caller(ctx).mayJob(member, j.ID, j.Document.Project)
}

// Administers says whether the caller is an administrator of all projects.
func (v view) Administers(ctx context.Context) bool { return caller(ctx).all >= admin }

// press is a page's button, which leads back to the job.
func (v view) press(
	ctx context.Context, id int64, f func(context.Context, int64) (client.Job, error),
) (client.Job, error) {
	if err := v.allowed(ctx, member, id); err != nil {
		return client.Job{}, err
	}
	if d := deedOf(ctx); d != nil {
		d.Status = http.StatusSeeOther
	}
	return f(ctx, id)
}

// Deeds lists who did what, for administrators.
func (v view) Deeds(ctx context.Context, below int64, limit int) ([]client.Deed, error) {
	if err := allowed(caller(ctx), admin, everyProject); err != nil {
		return nil, err
	}
	return v.store.Deeds(ctx, below, limit)
}

// Chain is what a check of some of those records has found.
func (v view) Chain(ctx context.Context, after int64, limit int) (client.Chain, error) {
	if err := allowed(caller(ctx), admin, everyProject); err != nil {
		return client.Chain{}, err
	}
	return v.store.CheckDeeds(ctx, after, limit)
}
