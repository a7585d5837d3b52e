package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"hora/job"
	"hora/server/client"
	"hora/server/store"
	"hora/storage/credentials"
)

// SecretPath is what calls about one secret have in common.
type SecretPath struct {
	Project string `path:"name" minLength:"1" maxLength:"200" doc:"a project"`
	Secret  string `path:"secret" maxLength:"100" pattern:"^[A-Za-z_][A-Za-z0-9_.-]*$" patternDescription:"a secret's name: write it with letters, digits and _ . -, a letter or _ first, as in HF_TOKEN"`
}

// secretMost is how long a secret may be: it is a file in memory wherever its jobs run.
const secretMost = 64 << 10

func (a *api) secretCalls() {
	huma.Register(a, a.operation("secrets", "GET", "/projects/{name}/secrets", "list a project's secrets by name", inProject(member)), func(ctx context.Context, in *struct {
		Project string `path:"name" minLength:"1" maxLength:"200"`
	},
	) (*answer[[]client.Secret], error) {
		all, err := a.store.Secrets(ctx, in.Project)
		return answered(filled(all), err)
	})
	huma.Register(a, a.operation("set-secret", "PUT", "/projects/{name}/secrets/{secret}", "set a secret; it is kept encrypted, and nothing but the project's jobs gets it", inProject(member)), func(ctx context.Context, in *struct {
		SecretPath
		Body struct {
			Value []byte `json:"value" doc:"in base64"`
		}
	},
	) (*answer[client.Secret], error) {
		x := client.Secret{Project: in.Project, Name: in.Secret, By: caller(ctx).label(), Set: a.now().UTC()}
		switch {
		case len(in.Body.Value) == 0:
			return nil, fault(refuse(422, "secret %s is empty: give it a value", in.Secret))
		case len(in.Body.Value) > secretMost:
			return nil, fault(refuse(422, "secret %s has %d bytes, and one may have %d: put what is larger into the folder that goes along, encrypted", in.Secret, len(in.Body.Value), secretMost))
		}
		return answered(x, a.store.SetSecret(ctx, x, in.Body.Value, x.Set))
	})
	huma.Register(a, a.operation("remove-secret", "DELETE", "/projects/{name}/secrets/{secret}", "forget a secret; jobs that run keep it", inProject(member)),
		func(ctx context.Context, in *SecretPath) (*struct{}, error) {
			err := a.drop(ctx, func(tx *sql.Tx) (bool, error) {
				return store.DropSecret(tx, in.Project, in.Secret)
			}, store.ErrNotFound)
			if errors.Is(err, store.ErrNotFound) {
				err = a.noSecret(ctx, in.Project, in.Secret, fmt.Sprintf("hora secret list --project %s has those that there are", in.Project))
			}
			return nil, fault(err)
		})
}

// noSecret says that there is no such secret, and which may be meant, or else what to do next.
func (s *Server) noSecret(ctx context.Context, project, name, next string) error {
	all, err := s.store.Secrets(ctx, project)
	if err != nil {
		return err
	}
	var names []string
	for _, x := range all {
		names = append(names, x.Name)
	}
	if near := job.Nearest(name, names); near != "" {
		return refuse(404, "project %s has no secret %s: did you mean %s?", project, name, near)
	}
	return refuse(404, "project %s has no secret %s: %s", project, name, next)
}

// checkSecrets refuses a job that names a secret which its project has not.
func (s *Server) checkSecrets(ctx context.Context, d *client.Document) error {
	if len(d.Secrets) == 0 {
		return nil
	}
	all, err := s.store.Secrets(ctx, d.Project)
	if err != nil {
		return err
	}
	for _, name := range d.Secrets {
		if !slices.ContainsFunc(all, func(x client.Secret) bool { return x.Name == name }) {
			err := s.noSecret(ctx, d.Project, name, fmt.Sprintf("hora secret set %s --project %s <FILE sets it", name, d.Project))
			if r := (*refusal)(nil); errors.As(err, &r) {
				r.status = 409
			}
			return err
		}
	}
	return nil
}

// lend takes the keys to storage out of what is submitted, of which the names alone stay.
func (s *Server) lend(ctx context.Context, d *client.Document) (all credentials.Set, with *store.Sealer, err error) {
	if len(d.Credentials) == 0 {
		d.Credentials = nil
		return nil, nil, nil
	}
	all, names := d.Credentials, map[string]string{}
	if err := all.Check(); err != nil {
		return nil, nil, refuse(422, "credentials: %v", err)
	}
	for name := range all {
		names[name] = ""
	}
	d.Credentials = names
	with, err = s.store.Sealer(ctx)
	return all, with, err
}

// secrets opens those that a job names; missing names those that do not open any more, and why.
func (f *follower) secrets() (all map[string][]byte, missing error) {
	d := &f.job.Document
	var wrong []string
	for _, name := range d.Secrets {
		v, err := f.store.Secret(f.ctx, d.Project, name)
		switch {
		case errors.Is(err, store.ErrNoSecret):
			wrong = append(wrong, fmt.Sprintf("secret %s was removed from project %s since: set it again, and submit the job anew", name, d.Project))
		case err != nil:
			wrong = append(wrong, err.Error())
		default:
			if all == nil {
				all = map[string][]byte{}
			}
			all[name] = v
		}
	}
	if wrong != nil {
		missing = errors.New(strings.Join(wrong, "; "))
	}
	return all, missing
}

// lent opens the keys to storage that went along with the job.
func (f *follower) lent() (map[string]string, error) {
	if len(f.job.Document.Credentials) == 0 {
		return nil, nil
	}
	return f.store.Lent(f.ctx, f.job.ID)
}
