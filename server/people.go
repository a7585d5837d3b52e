package server

import (
	"context"
	"database/sql"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"hora/server/client"
	"hora/server/store"
)

// UserPath is what calls about one user have in common.
type UserPath struct {
	User string `path:"user" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._@-]*$" patternDescription:"a user's name: write it with letters, digits and . _ @ -, a letter or digit first, as in ana"`
}

// peopleCalls are those about who may do what, and who did.
func (a *api) peopleCalls() {
	huma.Register(a, a.operation("me", "GET", "/me", "whom the server takes the caller for", anybody()),
		func(ctx context.Context, _ *struct{}) (*answer[client.Me], error) {
			return answered(a.me(ctx), nil)
		})
	huma.Register(a, a.operation("users", "GET", "/users", "list the users, with their roles in the caller's projects", somewhere(admin)),
		func(ctx context.Context, _ *struct{}) (*answer[[]client.User], error) {
			all, err := a.users(ctx)
			return answered(filled(all), err)
		})
	huma.Register(a, a.operation("set-role", "PUT", "/users/{user}/roles", "give a user a role; one who is not there yet is added", named(admin)), func(ctx context.Context, in *struct {
		UserPath
		Body client.Role
	},
	) (*answer[client.User], error) {
		return answered(a.setRole(ctx, in.User, in.Body))
	})
	huma.Register(a, a.operation("drop-role", "DELETE", "/users/{user}/roles/{project}", "take a user's role away", named(admin)), func(ctx context.Context, in *struct {
		UserPath
		Project string `path:"project" minLength:"1" maxLength:"200" doc:"a project, or * for the role in all of them"`
	},
	) (*struct{}, error) {
		_, err := a.setRole(ctx, in.User, client.Role{Project: in.Project})
		return nil, fault(err)
	})
	huma.Register(a, a.operation("remove-user", "DELETE", "/users/{user}", "forget a user, with roles, tokens and sessions", everywhere(admin)),
		func(ctx context.Context, in *UserPath) (*struct{}, error) {
			return nil, fault(a.drop(ctx, func(tx *sql.Tx) (bool, error) { return store.DropUser(tx, in.User) },
				refuse(404, "there is no user %s: hora user list has those that there are", in.User)))
		})
	a.tokenCalls()
	a.auditCalls()
}

func (a *api) tokenCalls() {
	huma.Register(a, a.operation("tokens", "GET", "/tokens", "list the caller's tokens; an administrator of all projects sees everybody's", anybody()),
		func(ctx context.Context, _ *struct{}) (*answer[[]client.Pass], error) {
			w := caller(ctx)
			if w.job != 0 {
				return nil, fault(a.allowedJob(ctx, w, admin, 0))
			}
			all, err := a.store.Passes(ctx, w.name)
			if w.all < admin { // one that may do less than its user sees no others' either
				all = slices.DeleteFunc(all, func(p client.Pass) bool { return p.User != w.name })
			} else if w.name != "" {
				all, err = a.store.Passes(ctx, "")
			}
			return answered(filled(all), err)
		})
	post := a.operation("new-token", "POST", "/tokens", "make a token; the answer has it, this once", anybody())
	post.DefaultStatus = http.StatusCreated
	huma.Register(a, post, func(ctx context.Context, in *struct{ Body client.NewPass }) (*answer[client.Pass], error) {
		return answered(a.newPass(ctx, in.Body))
	})
	huma.Register(a, a.operation("revoke-token", "DELETE", "/tokens/{id}", "take a token back, with the browsers' sessions that it let in", anybody()), func(ctx context.Context, in *struct {
		ID int64 `path:"id" minimum:"1" doc:"number of the token"`
	},
	) (*struct{}, error) {
		w := caller(ctx)
		if w.job != 0 {
			return nil, fault(a.allowedJob(ctx, w, admin, 0))
		}
		user := w.name
		if w.all >= admin {
			user = ""
		} else if user == "" {
			return nil, fault(allowed(w, admin, everyProject))
		}
		return nil, fault(a.revoke(ctx, in.ID, user))
	})
}

func (a *api) auditCalls() {
	huma.Register(a, a.operation("audit", "GET", "/audit", "who did what, the newest first", everywhere(admin)), func(ctx context.Context, in *struct {
		Cursor string `query:"cursor" pattern:"^[1-9][0-9]{0,17}$" patternDescription:"a cursor: give next of the answer before, or leave it out" doc:"next of the answer before"`
		Limit  int    `query:"limit" default:"100" minimum:"1" maximum:"1000"`
	},
	) (*answer[client.Deeds], error) {
		below, _ := strconv.ParseInt(in.Cursor, 10, 64)
		all, err := a.store.Deeds(ctx, below, in.Limit)
		d := client.Deeds{Deeds: filled(all)}
		if len(all) == in.Limit && all[len(all)-1].ID > 1 {
			d.Next = strconv.FormatInt(all[len(all)-1].ID, 10)
		}
		return answered(d, err)
	})
	huma.Register(a, a.operation("check-audit", "GET", "/audit/check", "follow the chain of those records, so many at once; the last hash tells all of them", everywhere(admin)), func(ctx context.Context, in *struct {
		Cursor string `query:"cursor" pattern:"^[1-9][0-9]{0,17}$" patternDescription:"a cursor: give next of the answer before, or leave it out" doc:"next of the answer before"`
		Limit  int    `query:"limit" default:"10000" minimum:"1" maximum:"100000"`
	},
	) (*answer[client.Chain], error) {
		after, _ := strconv.ParseInt(in.Cursor, 10, 64)
		return answered(a.store.CheckDeeds(ctx, after, in.Limit))
	})
}

// me is whom the server takes a caller for.
func (s *Server) me(ctx context.Context) client.Me {
	w := caller(ctx)
	m := client.Me{User: w.name, Owner: w.owner, Job: w.job, Expires: w.pass.Expires}
	if w.all > noRole {
		m.Roles = append(m.Roles, client.Role{Project: everyProject, Role: w.all.String()})
	}
	for project, r := range w.in {
		if r > w.all {
			m.Roles = append(m.Roles, client.Role{Project: project, Role: r.String()})
		}
	}
	slices.SortFunc(m.Roles, func(a, b client.Role) int {
		if a.Project < b.Project {
			return -1
		}
		return 1
	})
	return m
}

// users lists them with the roles that the caller may give.
func (s *Server) users(ctx context.Context) ([]client.User, error) {
	w := caller(ctx)
	all, err := s.store.Users(ctx)
	if w.all >= admin {
		return all, err
	}
	for i := range all {
		all[i].Roles = slices.DeleteFunc(all[i].Roles, func(r client.Role) bool { return !w.may(admin, r.Project) })
	}
	return slices.DeleteFunc(all, func(u client.User) bool { return len(u.Roles) == 0 && u.Name != w.name }), err
}

// setRole gives a role or, where it is empty, takes it away.
func (s *Server) setRole(ctx context.Context, user string, r client.Role) (client.User, error) {
	if err := s.projectRole(ctx, admin, r.Project); err != nil {
		return client.User{}, err
	}
	all, err := s.store.Users(ctx)
	if err != nil {
		return client.User{}, err
	}
	is := func(u client.User) bool { return u.Name == user }
	has := func(have client.Role) bool { return have.Project == r.Project }
	if i := slices.IndexFunc(all, is); r.Role == "" && (i < 0 || !slices.ContainsFunc(all[i].Roles, has)) {
		return client.User{}, refuse(404, "%s has no role in %s: hora user list has what there is", user, r.Project)
	}
	remark(ctx, "%s in %s", r.Role, r.Project)
	if err := s.store.Do(ctx, func(tx *sql.Tx) error {
		return store.SetRole(tx, user, r.Project, r.Role, s.now())
	}); err != nil {
		return client.User{}, err
	}
	if all, err = s.store.Users(ctx); err != nil {
		return client.User{}, err
	}
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i], nil
	}
	return client.User{Name: user}, nil
}

// newPass makes a token that may do no more than the caller's own.
func (s *Server) newPass(ctx context.Context, n client.NewPass) (client.Pass, error) {
	w := caller(ctx)
	if w.job != 0 {
		return client.Pass{}, s.allowedJob(ctx, w, admin, 0)
	}
	p := store.Pass{Pass: client.Pass{User: n.User, Role: n.Role, Project: n.Project, Job: n.Job, Label: n.Label}}
	if n.Seconds > 0 {
		p.Expires = s.now().Add(seconds(n.Seconds)).UTC()
	}
	shorter(w, &p)
	if n.User == "" || n.User == w.name {
		p.User = w.name
		if err := narrower(w, &p); err != nil {
			return client.Pass{}, err
		}
	} else if err := s.projectRole(ctx, admin, everyProject); err != nil {
		return client.Pass{}, err
	} else if all, err := s.store.Users(ctx); err != nil {
		return client.Pass{}, err
	} else if !slices.ContainsFunc(all, func(u client.User) bool { return u.Name == n.User }) {
		return client.Pass{}, refuse(404, "there is no user %s: hora user add %s --role member --project P adds one", n.User, n.User)
	}
	if n.Job != 0 {
		if err := s.allowedJob(ctx, w, member, n.Job); err != nil {
			return client.Pass{}, err
		}
		if _, err := s.Job(ctx, n.Job); err != nil {
			return client.Pass{}, err
		}
	}
	remark(ctx, "for %s, %s", orOwner(p.User), rights(&p.Pass))
	text, id, err := s.addPass(ctx, &p)
	p.ID, p.Made, p.Token = id, s.now().UTC(), text
	return p.Pass, err
}

func orOwner(user string) string {
	if user == "" {
		return "owner"
	}
	return user
}

// rights is what a token may do, in words.
func rights(p *client.Pass) string {
	switch {
	case p.Job != 0:
		return "job " + strconv.FormatInt(p.Job, 10) + " alone"
	case p.Role == "" && p.Project == "":
		return "all that the user may"
	case p.Project == "":
		return "as " + p.Role + " at most"
	case p.Role == "":
		return "in " + p.Project + " alone"
	}
	return "as " + p.Role + " at most, in " + p.Project + " alone"
}

// narrower bounds what a new token may do by the one that asks for it.
func narrower(w *who, p *store.Pass) error {
	own := &w.pass
	if own.Project != "" && p.Project != "" && p.Project != own.Project {
		return refuse(http.StatusForbidden, "this token is for project %s alone, and makes none for %s: use another", own.Project, p.Project)
	}
	if p.Role != "" { // who asks for more than they may is told so, and not given less
		may := own.Role == "" || roleOf(p.Role) <= roleOf(own.Role)
		if p.Project != "" {
			may = may && w.may(roleOf(p.Role), p.Project)
		} else {
			may = may && w.somewhere(roleOf(p.Role))
		}
		if !may {
			return refuse(http.StatusForbidden, "no token gives more than its user may, and %s is %s nowhere that this one would be for: ask for less with --role, or leave it out; hora whoami says what there is", orOwner(w.name), p.Role)
		}
	} else {
		p.Role = own.Role
	}
	if own.Project != "" {
		p.Project = own.Project
	}
	return nil
}

// shorter bounds how long a new token lasts by the one that asks for it, whosever it is to be: who has one for an hour
// would else have another for ever.
func shorter(w *who, p *store.Pass) {
	own := &w.pass
	e := own.Expires
	if w.session { // which ends by itself: what it makes lasts as long as what it was made from
		e = own.Until
	}
	if !e.IsZero() && (p.Expires.IsZero() || e.Before(p.Expires)) {
		p.Expires = e
	}
}

// addPass makes and keeps a token or a session.
func (s *Server) addPass(ctx context.Context, p *store.Pass) (text string, id int64, err error) {
	text = client.Key() + client.Key()
	err = s.store.Do(ctx, func(tx *sql.Tx) (err error) {
		id, err = store.AddPass(tx, text, p, time.Now())
		return err
	})
	return text, id, err
}
