package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"hora/job"
	"hora/server/client"
	"hora/server/store"
	"hora/server/web"
)

// Settings is what the HTTP interface needs beside the server.
type Settings struct {
	Version   string
	Token     string         // who has it may do everything
	Address   string         // where nodes beyond this machine come to, with the authority's fingerprint
	Authority []byte         // certificate of the server's own authority, in PEM
	Down      func(now bool) // ends the program
}

type api struct {
	*Server
	Settings
	huma.API
	inside  http.Handler // for nodes, which have proved a token of theirs
	table   [][3]string  // the operations, their paths and who may call them
	refused refusals
	turns   turns
}

// Handler is the HTTP interface, under /api/v1, and the pages.
func (s *Server) Handler(set Settings) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", s.metrics(set.Version))
	config := huma.DefaultConfig("hora", set.Version)
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "/api/v1/openapi", "", ""
	config.Formats = formats()
	config.CreateHooks = nil // no $schema beside each answer
	config.Info.Description = "Jobs of hora: submit, queue, follow. Errors say what to do next. A call that changes something may carry an Idempotency-Key: sent again with the same key it changes nothing, and answers what it answered then."
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}}
	config.Security = []map[string][]string{{"token": {}}}
	a := &api{Server: s, Settings: set, API: humago.New(mux, config), inside: mux}
	a.OpenAPI().Components.Schemas.RegisterTypeAlias(reflect.TypeFor[job.Spec](), reflect.TypeFor[specSchema]())
	a.jobs()
	a.results()
	a.rest()
	a.poolCalls()
	a.keepCalls()
	a.peopleCalls()
	a.secretCalls()
	web.Register(mux, view{s})
	return patient(bodyPatience, a.machines(a.guard(mux)))
}

// fault turns errors into answers.
func fault(err error) error {
	var r *refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &r):
		return huma.NewError(r.status, r.text)
	case errors.Is(err, store.ErrFull):
		return huma.NewError(http.StatusInsufficientStorage, err.Error())
	case errors.Is(err, errEnding), errors.Is(err, store.ErrClosed):
		return huma.NewError(http.StatusServiceUnavailable, errEnding.Error())
	case errors.Is(err, context.Canceled): // who called has left
		return huma.NewError(http.StatusServiceUnavailable, "the call was broken off before it was done: send it again")
	}
	return huma.NewError(http.StatusInternalServerError, err.Error())
}

// specSchema stands for job.Spec, which reads and checks itself.
type specSchema struct{}

// Schema says where the fields are told of.
func (specSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeObject, AdditionalProperties: true,
		Description: "a job file of hora run: hora run --schema prints its JSON Schema",
		Examples:    []any{map[string]any{"command": []string{"python", "train.py"}, "np": 2}},
	}
}

type answer[T any] struct{ Body T }

func answered[T any](v T, err error) (*answer[T], error) {
	if err != nil {
		return nil, fault(err)
	}
	return &answer[T]{v}, nil
}

// JobPath is what calls about one job have in common; the HTTP library sees exported names only.
type JobPath struct {
	ID int64 `path:"id" minimum:"1" doc:"number of the job"`
}

// unnamed refuses a job that names no project where its sender may submit in others, with those.
func unnamed(w *who, otherwise error) error {
	var all []string
	for project, r := range w.in {
		if r >= member {
			all = append(all, project)
		}
	}
	if len(all) == 0 {
		return otherwise
	}
	slices.Sort(all)
	return refuse(http.StatusForbidden, "a job that names no project is of project %s, where %s is no member: write --project %s (over HTTP the field project)", defaultProject, w.label(), strings.Join(all, " or --project "))
}

func (a *api) jobs() {
	post := a.operation("submit", "POST", "/jobs", "submit a job", named(member))
	post.DefaultStatus = http.StatusCreated
	post.MaxBodyBytes = 4 << 20
	huma.Register(a, post, func(ctx context.Context, in *struct {
		Key  string `header:"Idempotency-Key" maxLength:"200" doc:"sent again with the same key, it is the same job"`
		User string `header:"X-Hora-User" maxLength:"200" doc:"who submits"`
		Body client.Document
	},
	) (*answer[client.Job], error) {
		user, project := in.User, in.Body.Project
		if project == "" {
			project = defaultProject
		}
		w := caller(ctx)
		if err := allowed(w, member, project); err != nil {
			if in.Body.Project == "" {
				err = unnamed(w, err)
			}
			return nil, fault(err)
		}
		if w.name != "" {
			user = w.name // what the token says, whatever the caller does
		}
		j, err := a.Submit(ctx, in.Body, user, in.Key)
		if err == nil && !w.may(viewer, j.Document.Project) {
			return nil, fault(refuse(409, "this key was used for another job: take a new one"))
		}
		return answered(j, err)
	})
	huma.Register(a, a.operation("jobs", "GET", "/jobs", "list jobs, the newest first", anybody()), func(ctx context.Context, in *struct {
		State   []job.State `query:"state" enum:"queued,preparing,running,paused,finished,failed,cancelled" doc:"only these states"`
		Project string      `query:"project" minLength:"1" maxLength:"200"`
		Cursor  string      `query:"cursor" pattern:"^[1-9][0-9]{0,17}$" patternDescription:"a cursor: give next of the answer before, or leave it out" doc:"next of the answer before"`
		Limit   int         `query:"limit" default:"100" minimum:"1" maximum:"1000"`
	},
	) (*answer[client.Page], error) {
		below := int64(0)
		if in.Cursor != "" {
			var err error
			if below, err = strconv.ParseInt(in.Cursor, 10, 64); err != nil || below < 1 {
				return nil, fault(refuse(422, "%q is no cursor: give next of the answer before, or none for the newest jobs", in.Cursor))
			}
		}
		all, err := view{a.Server}.Jobs(ctx, in.State, in.Project, below, in.Limit)
		p := client.Page{Jobs: all}
		if all == nil {
			p.Jobs = []client.Job{}
		}
		if len(all) == in.Limit {
			p.Next = strconv.FormatInt(all[len(all)-1].ID, 10)
		}
		return answered(p, err)
	})
	huma.Register(a, a.operation("job", "GET", "/jobs/{id}", "one job, and why it waits", onJob(viewer)),
		func(ctx context.Context, in *JobPath) (*answer[client.Job], error) {
			return answered(a.Job(ctx, in.ID))
		})
	for what, f := range map[string]func(context.Context, int64) (client.Job, error){
		"cancel": a.Cancel, "pause": a.Pause, "resume": a.Resume,
	} {
		huma.Register(a, a.operation(what, "POST", "/jobs/{id}/"+what, what+" a job", onJob(member)),
			func(ctx context.Context, in *JobPath) (*answer[client.Job], error) {
				return answered(f(ctx, in.ID))
			})
	}
	huma.Register(a, a.operation("priority", "POST", "/jobs/{id}/priority", "give a job another priority", onJob(member)), func(ctx context.Context, in *struct {
		JobPath
		Body struct {
			Priority int `json:"priority" minimum:"0" maximum:"100"`
		}
	},
	) (*answer[client.Job], error) {
		return answered(a.Priority(ctx, in.ID, in.Body.Priority))
	})
}

func (a *api) results() {
	huma.Register(a, a.operation("happenings", "GET", "/jobs/{id}/happenings", "a job's story", onJob(viewer)),
		func(ctx context.Context, in *JobPath) (*answer[[]client.Happening], error) {
			if _, err := a.Job(ctx, in.ID); err != nil {
				return nil, fault(err)
			}
			all, err := a.store.Happenings(ctx, in.ID)
			return answered(filled(all), err)
		})
	huma.Register(a, a.operation("metrics", "GET", "/jobs/{id}/metrics", "what ranks reported", onJob(viewer)), func(ctx context.Context, in *struct {
		JobPath
		Name   string `query:"name" minLength:"1" maxLength:"500" doc:"only this one"`
		First  int64  `query:"first" doc:"first step"`
		Last   int64  `query:"last" default:"9007199254740991" doc:"last step"`
		Points int    `query:"points" default:"0" minimum:"0" maximum:"100000" doc:"at most so many of each; where there are more one stands for its neighbours"`
	},
	) (*answer[[]client.Metric], error) {
		if _, err := a.Job(ctx, in.ID); err != nil {
			return nil, fault(err)
		}
		all, err := a.store.Metrics(ctx, in.ID, in.Name, in.First, in.Last, in.Points)
		return answered(filled(all), err)
	})
	huma.Register(a, a.operation("artifacts", "GET", "/jobs/{id}/artifacts", "what came back of outputs/", onJob(viewer)),
		func(ctx context.Context, in *JobPath) (*answer[[]client.Artifact], error) {
			if _, err := a.Job(ctx, in.ID); err != nil {
				return nil, fault(err)
			}
			all, err := a.store.Artifacts(ctx, in.ID)
			return answered(filled(all), err)
		})
	huma.Register(a, a.operation("blob", "GET", "/blobs/{hash}", "content by its hash: a file of outputs/ or of the code, or the list of a folder's files", somewhere(viewer)),
		func(ctx context.Context, in *BlobPath) (*huma.StreamResponse, error) {
			f, err := os.Open(a.store.BlobFile(in.Hash))
			if err != nil {
				return nil, fault(refuse(404, "there is no content %s here", in.Hash))
			}
			return &huma.StreamResponse{Body: func(c huma.Context) {
				defer f.Close()
				c.SetHeader("Content-Type", "application/octet-stream")
				c.SetHeader("Content-Disposition", "attachment")
				if _, err := io.Copy(c.BodyWriter(), f); err != nil {
					panic(http.ErrAbortHandler) // so that nobody takes a part for the whole
				}
			}}, nil
		})
	put := a.operation("put-blob", "PUT", "/blobs/{hash}", "keep content under its hash", somewhere(writer).unrecorded())
	put.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{
		"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}}
	huma.Register(a, put, func(ctx context.Context, in *sent) (*struct{}, error) { return nil, fault(a.take(ctx, in)) })
	ask := a.operation("missing-blobs", "POST", "/blobs/missing", "which of these contents are not here", somewhere(writer).unrecorded())
	ask.MaxBodyBytes = 16 << 20 // as many hashes as it takes
	huma.Register(a, ask, func(ctx context.Context, in *struct {
		Body struct {
			Hashes []Hash `json:"hashes" maxItems:"200000"`
		}
	},
	) (*answer[[]string], error) {
		missing := []string{}
		for _, h := range in.Body.Hashes {
			if !a.store.HasBlob(ctx, string(h)) {
				missing = append(missing, string(h))
			}
		}
		return answered(missing, nil)
	})
	a.streams()
	a.additions()
}

// sent is content on its way: it goes to the disk as it comes, whatever its size.
type sent struct {
	BlobPath
	body io.Reader
}

// Resolve keeps the body from being read into memory.
func (s *sent) Resolve(c huma.Context) []error {
	s.body = c.BodyReader()
	return nil
}

// largestBlob bounds content that is sent.
const largestBlob = 1 << 30

func (a *api) take(ctx context.Context, in *sent) error {
	body := &io.LimitedReader{R: in.body, N: largestBlob + 1}
	_, _, err := a.store.TakeBlobAs(ctx, body, in.Hash)
	if body.N == 0 {
		return refuse(http.StatusRequestEntityTooLarge, "content of more than %d MiB is not taken: send it in parts, as files of their own", largestBlob>>20)
	}
	if other := (*store.OtherHash)(nil); errors.As(err, &other) {
		return refuse(http.StatusConflict, "%v", other)
	}
	return cutShort(err)
}

// additions are what may be added to a job at any time.
func (a *api) additions() {
	huma.Register(a, a.operation("attach", "POST", "/jobs/{id}/artifacts", "add a file to what came back: content that is here already", onJob(writer)), func(ctx context.Context, in *struct {
		JobPath
		Body struct {
			Path string `json:"path" minLength:"1" maxLength:"1000" doc:"below outputs/, with slashes"`
			Hash string `json:"hash" pattern:"^[0-9a-f]{64}$" patternDescription:"a hash: give the 64 digits of 0-9 and a-f that stand for the content"`
		}
	},
	) (*answer[client.Artifact], error) {
		return answered(a.Attach(ctx, in.ID, in.Body.Path, in.Body.Hash))
	})
	report := a.operation("report", "POST", "/jobs/{id}/metrics", "add points to what ranks reported", onJob(writer))
	report.MaxBodyBytes = 4 << 20
	huma.Register(a, report, func(ctx context.Context, in *struct {
		JobPath
		Body struct {
			Points []client.Reported `json:"points" minItems:"1" maxItems:"10000"`
		}
	},
	) (*struct{}, error) {
		return nil, fault(a.Report(ctx, in.ID, in.Body.Points))
	})
	huma.Register(a, a.operation("tag", "PATCH", "/jobs/{id}/tags", "give a job tags, and take others from it", onJob(writer)), func(ctx context.Context, in *struct {
		JobPath
		Body struct {
			Set    map[string]string `json:"set,omitempty"`
			Remove []string          `json:"remove,omitempty" maxItems:"1000"`
		}
	},
	) (*answer[client.Job], error) {
		return answered(a.Tag(ctx, in.ID, in.Body.Set, in.Body.Remove))
	})
}

// BlobPath is the same for content.
type BlobPath struct {
	Hash string `path:"hash" pattern:"^[0-9a-f]{64}$" patternDescription:"a hash: give the 64 digits of 0-9 and a-f that stand for the content"`
}

func filled[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

func (a *api) rest() {
	huma.Register(a, a.operation("about", "GET", "/about", "what this server is", anybody()),
		func(context.Context, *struct{}) (*answer[client.About], error) {
			return answered(a.About(a.Version))
		})
	huma.Register(a, a.operation("nodes", "GET", "/nodes", "the machines", anybody()),
		func(context.Context, *struct{}) (*answer[[]client.Node], error) {
			all, err := a.Nodes()
			return answered(filled(all), err)
		})
	huma.Register(a, a.operation("projects", "GET", "/projects", "what projects have and have had", anybody()),
		func(ctx context.Context, _ *struct{}) (*answer[[]client.Project], error) {
			return answered(view{a.Server}.Projects(ctx))
		})
	huma.Register(a, a.operation("quota", "PUT", "/projects/{name}/quota", "bound a project", everywhere(admin)), func(ctx context.Context, in *struct {
		Name string `path:"name" maxLength:"200"`
		Body client.Quota
	},
	) (*answer[client.Project], error) {
		return answered(a.SetQuota(ctx, in.Name, in.Body))
	})
	huma.Register(a, a.operation("down", "POST", "/down", "end the server; jobs go on", everywhere(admin)), func(ctx context.Context, in *struct {
		Body struct {
			Now bool `json:"now,omitempty" doc:"end the jobs first"`
		}
	},
	) (*answer[client.About], error) {
		about, err := a.About(a.Version)
		if err != nil {
			return nil, fault(err)
		}
		if in.Body.Now {
			if about.Left, err = a.CancelAll(ctx); err != nil {
				return nil, fault(err)
			}
		}
		time.AfterFunc(50*time.Millisecond, func() { a.Down(in.Body.Now) }) // the answer goes first
		return answered(about, nil)
	})
}
