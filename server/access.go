package server

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"hora/server/store"
)

// role is how much somebody may do in a project; each includes those before it.
type role int

const (
	noRole role = iota
	viewer      // reads
	writer      // what a job's own token is beside: it adds files, numbers and tags
	member      // submits, and cancels, pauses and orders jobs
	admin       // gives roles
)

var roleNames = map[role]string{viewer: "viewer", member: "member", admin: "admin"}

// String is what users call it: whoever asks for a writer is told of members.
func (r role) String() string {
	if r == writer {
		return "member"
	}
	return roleNames[r]
}

func roleOf(name string) role {
	for r, n := range roleNames {
		if n == name {
			return r
		}
	}
	return noRole
}

// everyProject stands for all of them where a role is given.
const everyProject = "*"

// who is whose call it is.
type who struct {
	owner   bool            // has the server's own token, or a session that was made from it
	name    string          // the user's; "" for who has the server's own token
	all     role            // in every project
	in      map[string]role // in projects
	job     int64           // nothing but this job, where it is not 0,
	most    role            // and no more there than this
	pass    store.Pass      // what let them in, but for the server's own token
	hash    string          // of what let them in
	session bool
}

// label is what records and jobs say of whose call it was.
func (w *who) label() string {
	switch {
	case w.name == "" && w.job != 0:
		return fmt.Sprintf("job %d", w.job)
	case w.name == "":
		return "owner"
	case w.job != 0:
		return fmt.Sprintf("%s's job %d", w.name, w.job)
	}
	return w.name
}

func (w *who) may(r role, project string) bool { return w.all >= r || w.in[project] >= r }

func (w *who) mayJob(r role, id int64, project string) bool {
	if w.job != 0 {
		return id == w.job && r <= w.most
	}
	return w.may(r, project)
}

// somewhere says whether there is a project where they may.
func (w *who) somewhere(r role) bool {
	for _, have := range w.in {
		if have >= r {
			return true
		}
	}
	return w.all >= r || w.job != 0 && r <= w.most
}

// projects are those that they see; nil for all of them.
func (w *who) projects() []string {
	if w.all >= viewer {
		return nil
	}
	all := []string{}
	for project := range w.in {
		all = append(all, project)
	}
	return all
}

// admit makes of a pass what its holder may: the user's roles as they are now, and no more than the pass itself.
func admit(p store.Pass, hash string) *who {
	w := &who{name: p.User, pass: p, hash: hash, session: p.Parent != "", in: map[string]role{}}
	most := roleOf(p.Role)
	if p.Role == "" {
		most = admin
	}
	if p.User == "" {
		w.all = most
		w.owner = p.Role == "" && p.Project == ""
	}
	for _, r := range p.Roles {
		if have := min(roleOf(r.Role), most); r.Project == everyProject {
			w.all = have
		} else {
			w.in[r.Project] = have
		}
	}
	if p.Project != "" {
		w.in = map[string]role{p.Project: max(w.all, w.in[p.Project])}
		w.all = noRole
	}
	return w
}

// resolve finds whose token it is; nil where it is nobody's. An error says why somebody's lets nobody in.
func (a *api) resolve(ctx context.Context, text string) (*who, error) {
	if a.isOwner(text) {
		return &who{owner: true, all: admin, hash: store.HashOf(text)}, nil
	}
	if strings.HasPrefix(text, "job-") {
		if w, err := a.running(text); w != nil || err != nil {
			return w, err
		}
	}
	p, found, err := a.store.Pass(ctx, text, store.HashOf(a.Token))
	switch {
	case err != nil:
		return nil, refuse(http.StatusServiceUnavailable, "the server cannot look the token up now: try again")
	case !found:
		return nil, nil
	case !p.Expires.IsZero() && time.Now().After(p.Expires):
		w := admit(p, "")
		w.job = p.Job // for whoever reads of it
		return w, refuse(http.StatusUnauthorized, "the token has expired on %s UTC: ask for a new one, which hora token new prints", p.Expires.Format(time.DateTime))
	}
	w := admit(p, store.HashOf(text))
	if p.Job != 0 {
		return w, a.forJob(ctx, w, p.Job)
	}
	return w, nil
}

// forJob narrows a token to one job: to what its user may there now, and to what a job's own token may.
func (a *api) forJob(ctx context.Context, w *who, id int64) error {
	project, found, err := a.store.ProjectOf(ctx, id)
	switch {
	case err != nil:
		return refuse(http.StatusServiceUnavailable, "the server cannot look the token's job up now: try again")
	case !found:
		return refuse(http.StatusForbidden, "this token is for job %d, which is not kept any more: take another token", id)
	case !w.may(viewer, project):
		return refuse(http.StatusForbidden, "this token is for job %d of project %s, and %s has no role there any more: an administrator gives it with hora user add", id, project, w.name)
	}
	w.narrow(id, max(w.all, w.in[project]))
	return nil
}

// narrow leaves somebody one job.
func (w *who) narrow(id int64, most role) {
	w.job, w.most, w.owner = id, min(most, writer), false
	w.all, w.in = noRole, map[string]role{}
}

type whoKey struct{}

// caller is whose call a context is of. What the server does by itself is its owner's.
func caller(ctx context.Context) *who {
	if w, _ := ctx.Value(whoKey{}).(*who); w != nil {
		return w
	}
	return &who{owner: true, all: admin}
}

// access says who may call an operation. Its zero value is none: each is made by one of the functions below.
type access struct {
	text  string
	quiet bool // no record is made of it: it changes nothing that anybody sees
	check func(a *api, ctx context.Context, w *who, param func(string) string) error
}

// unrecorded is for a POST or PUT that changes nothing that anybody sees.
func (c access) unrecorded() access {
	c.quiet = true
	return c
}

// anybody may call it who has a token; the operation says itself what they see.
func anybody() access {
	return access{text: "anybody", check: func(*api, context.Context, *who, func(string) string) error { return nil }}
}

// named is for who has the role in the project that is named in what is sent: the operation asks for it itself.
func named(r role) access {
	c := somewhere(r)
	c.text = r.String() + " of the project that it names"
	return c
}

// somewhere is for who has the role in some project.
func somewhere(r role) access {
	text := r.String() + " of some project"
	if r <= writer {
		text += ", and a job's own token"
	}
	return access{text: text, check: func(_ *api, _ context.Context, w *who, _ func(string) string) error {
		switch {
		case w.somewhere(r):
		case w.job != 0:
			return ofJobAlone(w)
		default:
			return refuse(http.StatusForbidden, "%s is %s in no project, and this asks for one: ask an administrator for a role (hora user add)", w.label(), r)
		}
		return nil
	}}
}

// everywhere is for who has the role in all projects.
func everywhere(r role) access {
	return access{text: r.String() + " of all projects", check: func(_ *api, _ context.Context, w *who, _ func(string) string) error {
		return allowed(w, r, everyProject)
	}}
}

// ofJobAlone refuses what a job's own token does not open.
func ofJobAlone(w *who) error {
	if w.most < writer {
		return refuse(http.StatusForbidden, "this token is for job %d: it reads that job and nothing else since %s is no member of its project any more: an administrator gives the role with hora user add", w.job, w.name)
	}
	return refuse(http.StatusForbidden, "this token is for job %d: it reads that job and adds files, numbers and tags to it, and nothing else; a job that is to do more gets a token as a secret and sets HORA_TOKEN", w.job)
}

// inProject is for who has the role in the project of the path.
func inProject(r role) access {
	check := func(_ *api, _ context.Context, w *who, param func(string) string) error {
		return allowed(w, r, param("name"))
	}
	return access{text: r.String() + " of the project", check: check}
}

// onJob is for who has the role in the project of the job of the path.
func onJob(r role) access {
	text := r.String() + " of the job's project"
	if r <= writer {
		text += ", and the job's own token"
	}
	return access{text: text, check: func(a *api, ctx context.Context, w *who, param func(string) string) error {
		id, err := strconv.ParseInt(param("id"), 10, 64)
		if err != nil {
			return nil // what is wrong with it is said where it is read
		}
		return a.allowedJob(ctx, w, r, id)
	}}
}

// allowed refuses where somebody lacks a role.
func allowed(w *who, r role, project string) error {
	if project == everyProject && w.all >= r || project != everyProject && w.may(r, project) {
		return nil
	}
	where := "project " + project
	if project == everyProject {
		where = "all projects"
	}
	have := "no role"
	if w.job == 0 {
		if name := max(w.all, w.in[project]).String(); name != "" {
			have = "the role " + name
		}
	}
	return refuse(http.StatusForbidden, "this asks for the role %s in %s, and %s has %s there: an administrator gives it with hora user add", r, where, w.label(), have)
}

// allowedJob refuses where somebody lacks a role in a job's project; a job that is not there is found out later.
func (s *Server) allowedJob(ctx context.Context, w *who, r role, id int64) error {
	if w.all >= r {
		return nil
	}
	if w.job != 0 {
		if !w.mayJob(r, id, "") {
			return ofJobAlone(w)
		}
		return nil
	}
	project, found, err := s.store.ProjectOf(ctx, id)
	if err != nil {
		return err
	}
	if !found {
		return nil
	}
	if r == writer {
		r = member
	}
	return allowed(w, r, project)
}

// operation describes a call and says who may make it.
func (a *api) operation(id, method, path, summary string, who access) huma.Operation {
	a.table = append(a.table, [3]string{id, method + " " + path, who.text})
	var params []*huma.Param
	if method != http.MethodGet && !who.quiet && id != "submit" { // which reads it itself
		longest := keyLongest
		params = []*huma.Param{{
			Name: keyHeader, In: "header", Description: "sent again with the same key, it changes nothing and answers the same",
			Schema: &huma.Schema{Type: huma.TypeString, MaxLength: &longest},
		}}
	}
	return huma.Operation{
		Parameters:  params,
		Metadata:    map[string]any{schemasKey: a.OpenAPI().Components.Schemas},
		OperationID: id, Method: method, Path: "/api/v1" + path, Summary: summary, Description: "For: " + who.text + ".",
		BodyReadTimeout: -1, // patient bounds it, and has no deadline stay
		Middlewares: huma.Middlewares{func(c huma.Context, next func(huma.Context)) {
			if d := deedOf(c.Context()); d != nil {
				d.What, d.Status = id, c.Operation().DefaultStatus // it is written down before the call answers
				d.quiet = who.quiet
			}
			if err := who.check(a, c.Context(), caller(c.Context()), c.Param); err != nil {
				fault, _ := fault(err).(huma.StatusError)
				_ = huma.WriteErr(a, c, fault.GetStatus(), fault.Error())
				return
			}
			if text := c.Param("id"); text != "" && !isNumber(text) {
				_ = huma.WriteErr(a, c, http.StatusUnprocessableEntity, noNumber(path, text))
				return
			}
			next(c)
		}},
	}
}

// isNumber says whether a text is the number of something.
func isNumber(text string) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	return err == nil && n > 0
}

// noNumber refuses what is none, where a path asks for that of a job, a token or a webhook.
func noNumber(path, text string) string {
	what, list := "job", "hora jobs --all"
	switch {
	case strings.HasPrefix(path, "/tokens"):
		what, list = "token", "hora token list"
	case strings.HasPrefix(path, "/webhooks"):
		what, list = "webhook", "hora webhook list"
	}
	return fmt.Sprintf("%.60q is no number of a %s: %s has those that there are", text, what, list)
}

// ProjectRole refuses a call whose caller has less than a role in a project.
func (s *Server) projectRole(ctx context.Context, r role, project string) error {
	return allowed(caller(ctx), r, project)
}

// revoke takes a pass back.
func (s *Server) revoke(ctx context.Context, id int64, user string) error {
	return s.drop(ctx, func(tx *sql.Tx) (bool, error) { return store.DropPass(tx, id, user) },
		refuse(http.StatusNotFound, "there is no token %d of yours: hora token list has them", id))
}

// drop takes something out of the store. Where it is not there nothing is written, no record of the call either, and
// missing is answered.
func (s *Server) drop(ctx context.Context, f func(tx *sql.Tx) (found bool, err error), missing error) error {
	return s.store.Do(ctx, func(tx *sql.Tx) error {
		found, err := f(tx)
		if err == nil && !found {
			err = missing
		}
		return err
	})
}
