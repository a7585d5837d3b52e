// Package web has the server's pages: the queue with its reasons, one job with its story, its output and its metrics,
// the machines. They are plain HTML that can be read without a script; a script of a few lines shows new lines as they
// come.
//
// It shows what its Source answers and knows nothing else: no state is a page's alone. It starts no goroutine.
package web

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"hora/job"
	"hora/server/client"
)

// Source is what pages show, and what their buttons do.
type Source interface {
	Live(ctx context.Context, most int) (Standing, error)
	Jobs(ctx context.Context, states []job.State, project string, below int64, limit int) ([]client.Job, error)
	Job(ctx context.Context, id int64) (client.Job, error)
	Story(ctx context.Context, id int64) ([]client.Happening, error)
	Tail(ctx context.Context, id int64, lines int) (tail []client.Line, cursor string, err error)
	Curves(ctx context.Context, id int64, points int) ([]client.Metric, error)
	Results(ctx context.Context, id int64) ([]client.Artifact, error)
	Code(ctx context.Context, j *client.Job) (*Code, error)
	CodeFile(ctx context.Context, id int64, path string) (f CodeFile, content []byte, cut bool, err error)
	Nodes() ([]client.Node, error)
	Pools(ctx context.Context) ([]client.Pool, error)
	Projects(ctx context.Context) ([]client.Project, error)
	Deeds(ctx context.Context, below int64, limit int) ([]client.Deed, error)
	Chain(ctx context.Context, after int64, limit int) (client.Chain, error)
	Cancel(ctx context.Context, id int64) (client.Job, error)
	Pause(ctx context.Context, id int64) (client.Job, error)
	Resume(ctx context.Context, id int64) (client.Job, error)
	Orders(ctx context.Context, j *client.Job) bool // whether the caller may press a job's buttons
	Administers(ctx context.Context) bool           // whether the caller sees who did what
}

//go:embed files
var files embed.FS

// Standing is what has not ended.
type Standing struct {
	Running []client.Job
	Waiting []client.Job   // the first of those that wait or are paused
	Count   int            // of all of those
	Waits   map[string]int // how many wait, by pool
}

type pages struct {
	Source
	all *template.Template
}

// templates are those of all pages.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"title": func(j client.Job) string { return j.Title() }, "standing": standing, "slots": slots, "clock": clock, "ago": ago, "chart": draw,
		"compared": drawJobs, "provided": provided, "used": used, "quota": quota,
		"command": func(j client.Job) string { return strings.Join(j.Document.Spec.Command, " ") },
		"bytes":   size, "lasts": lasts, "counted": counted, "number": number, "changed": changed,
		"release": func(line string) string { name, _, _ := strings.Cut(line, " --hash"); return name },
	}).ParseFS(files, "files/*.html"))
})

// Register adds the pages to a server's routes.
func Register(mux *http.ServeMux, s Source) {
	p := &pages{s, templates()}
	static, _ := fs.Sub(files, "files")
	mux.Handle("GET /static/", headers(http.StripPrefix("/static/", http.FileServerFS(static))))
	mux.Handle("GET /favicon.ico", headers(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent) // there is none, which is no error
	})))
	for pattern, to := range map[string]string{
		"GET /jobs": "/", "GET /machines": "/nodes", "GET /sign-in": "/", "GET /nodes/{name}": "/nodes#", "GET /pools/{name}": "/pools#",
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, to+url.PathEscape(r.PathValue("name")), http.StatusSeeOther)
		})
	}
	for pattern, f := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /{$}": p.queue, "GET /jobs/{id}": p.job, "GET /jobs/{id}/code/{path...}": p.file, "GET /nodes": p.nodes,
		"GET /pools": p.pools, "GET /projects": p.projects, "GET /compare": p.compare, "GET /audit": p.audit,
		"POST /jobs/{id}/{what}": p.do,
	} {
		mux.Handle(pattern, headers(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := f(w, r); err != nil {
				p.fault(w, r, err)
			}
		})))
	}
}

// headers keep scripts, frames and forms of others out.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin") // with none, forms from a plain http address do not say where they are from
		next.ServeHTTP(w, r)
	})
}

// head is what a page begins with.
type head struct {
	Title string
	Audit bool // the caller sees who did what
}

// write makes a page of its head and what it shows.
func (p *pages) write(b *bytes.Buffer, h head, name string, v any) error {
	if err := p.all.ExecuteTemplate(b, "head", h); err != nil {
		return err
	}
	return p.all.ExecuteTemplate(b, name, v)
}

func (p *pages) show(w http.ResponseWriter, r *http.Request, title, name string, v any) error {
	var b bytes.Buffer // a page is whole or it is an error
	if err := p.write(&b, head{title, p.Administers(r.Context())}, name, v); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(b.Bytes())
	return nil
}

func (p *pages) fault(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	var coded interface{ Status() int }
	if errors.As(err, &coded) {
		status = coded.Status()
	}
	p.refuse(w, status, p.Administers(r.Context()), err.Error())
}

// refuse shows why a page is not what was asked for.
func (p *pages) refuse(w http.ResponseWriter, status int, audit bool, text string) {
	var b bytes.Buffer
	if err := p.write(&b, head{"that did not work", audit}, "fault.html", text); err != nil {
		http.Error(w, text, status)
		return
	}
	say(w, status, &b)
}

// say answers a page that is not what was asked for.
func say(w http.ResponseWriter, status int, b *bytes.Buffer) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// Refused shows a browser why it does not get a page.
func Refused(w http.ResponseWriter, status int, text string) {
	headers(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		(&pages{all: templates()}).refuse(w, status, false, text)
	})).ServeHTTP(w, nil)
}

// Entrance is what somebody sees who is not let in, or has left: where a token goes.
type Entrance struct {
	Title string
	Text  string
	To    string // where the browser goes from there: a path of the server's
}

// Enter shows it.
func Enter(w http.ResponseWriter, status int, e Entrance) {
	headers(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var b bytes.Buffer
		if err := templates().ExecuteTemplate(&b, "enter.html", e); err != nil {
			http.Error(w, e.Text, status)
			return
		}
		say(w, status, &b)
	})).ServeHTTP(w, nil)
}

// Open says whether a path is for whoever comes: what the page where a token goes is made of.
func Open(path string) bool { return path == "/static/style.css" || path == "/favicon.ico" }

// pageJobs is how many jobs a page lists of each kind.
const pageJobs = 100

func (p *pages) queue(w http.ResponseWriter, r *http.Request) error {
	below, err := older(r)
	if err != nil {
		return err
	}
	v := struct {
		Standing
		Ended []client.Job
		Older int64
	}{}
	if v.Standing, err = p.Live(r.Context(), 5*pageJobs); err != nil {
		return err
	}
	slices.SortStableFunc(v.Waiting, func(a, b client.Job) int { return place(a) - place(b) })
	if v.Ended, err = p.Jobs(
		r.Context(), []job.State{job.Finished, job.Failed, job.Cancelled}, "", below, pageJobs,
	); err != nil {
		return err
	}
	if len(v.Ended) == pageJobs {
		v.Older = v.Ended[pageJobs-1].ID
	}
	return p.show(w, r, "queue", "queue.html", v)
}

// place puts those without one last.
func place(j client.Job) int {
	if j.Reason == nil || j.Reason.Place == 0 {
		return math.MaxInt32
	}
	return j.Reason.Place
}

// older is below which number a page begins; 0 for the newest.
func older(r *http.Request) (int64, error) {
	text := r.URL.Query().Get("below")
	if text == "" {
		return 0, nil
	}
	below, err := strconv.ParseInt(text, 10, 64)
	if err != nil || below < 1 {
		return 0, refusal{fmt.Sprintf("%.40q is no number to go back from: leave below out", text)}
	}
	return below, nil
}

func number64(r *http.Request) (int64, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return 0, nowhere(fmt.Sprintf("%.40q is no number of a job: the queue has those that there are", r.PathValue("id")))
	}
	return id, nil
}

func (p *pages) job(w http.ResponseWriter, r *http.Request) error {
	id, err := number64(r)
	if err != nil {
		return err
	}
	v := struct {
		Job     client.Job
		Story   []client.Happening
		Lines   []client.Line
		Cursor  string
		Metrics []client.Metric
		Results []client.Artifact
		Code    *Code
		Live    bool
		Orders  bool
	}{}
	if v.Job, err = p.Job(r.Context(), id); err != nil {
		return err
	}
	v.Live = !v.Job.State.Ended()
	v.Orders = v.Live && p.Orders(r.Context(), &v.Job)
	v.Story, err = p.Story(r.Context(), id)
	if err == nil {
		v.Lines, v.Cursor, err = p.Tail(r.Context(), id, 500)
	}
	if err == nil {
		v.Metrics, err = p.Curves(r.Context(), id, 300)
	}
	if err == nil {
		v.Results, err = p.Results(r.Context(), id)
	}
	if err == nil {
		v.Code, err = p.Code(r.Context(), &v.Job)
	}
	if err != nil {
		return err
	}
	return p.show(w, r, v.Job.Title(), "job.html", v)
}

func (p *pages) nodes(w http.ResponseWriter, r *http.Request) error {
	all, err := p.Nodes()
	if err != nil {
		return err
	}
	return p.show(w, r, "machines", "nodes.html", all)
}

// audit shows who did what, to administrators.
func (p *pages) audit(w http.ResponseWriter, r *http.Request) error {
	below, err := older(r)
	if err != nil {
		return err
	}
	v := struct {
		Chain client.Chain
		Deeds []client.Deed
		Older int64
	}{}
	if v.Deeds, err = p.Deeds(r.Context(), below, pageJobs); err != nil {
		return err
	}
	if n := len(v.Deeds); n > 0 { // those that are shown: all of them may be many
		if v.Chain, err = p.Chain(r.Context(), max(v.Deeds[n-1].ID-1, 0), n); err != nil {
			return err
		}
	}
	if len(v.Deeds) == pageJobs && v.Deeds[pageJobs-1].ID > 1 {
		v.Older = v.Deeds[pageJobs-1].ID
	}
	return p.show(w, r, "audit", "audit.html", v)
}

// do is a button. That the form is ours was seen to before: the cookie alone does not let others' forms in.
func (p *pages) do(w http.ResponseWriter, r *http.Request) error {
	id, err := number64(r)
	if err != nil {
		return err
	}
	switch what := r.PathValue("what"); what {
	case "cancel":
		_, err = p.Cancel(r.Context(), id)
	case "pause":
		_, err = p.Pause(r.Context(), id)
	case "resume":
		_, err = p.Resume(r.Context(), id)
	default:
		err = nowhere(fmt.Sprintf("there is no button %.40q: go back to the job", what))
	}
	if err == nil {
		http.Redirect(w, r, fmt.Sprintf("/jobs/%d", id), http.StatusSeeOther)
	}
	return err
}

// standing is where a job stands, in a sentence.
func standing(j client.Job) string {
	switch {
	case j.Reason != nil && j.State != job.Running:
		return j.Reason.Text
	case j.Stopping:
		return "it was told to end"
	case j.State == job.Preparing:
		return "its environment is made"
	case j.State == job.Running:
		var on []string
		for _, s := range j.Shares {
			on = append(on, fmt.Sprintf("%d on %s", s.Slots, s.Node))
		}
		if j.Reason != nil {
			on = append(on, j.Reason.Text)
		}
		return strings.Join(on, ", ")
	case j.State == job.Finished:
		return "after " + j.Ended.Sub(j.Started).Round(10*time.Millisecond).String()
	}
	return j.Text
}

func slots(j client.Job) int {
	d := j.Document
	return max(d.Spec.NP, d.Nodes*max(d.PerNode, 1), 1)
}

func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

func ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return time.Since(t).Round(time.Second).String()
}

// lasts is a time in seconds as the commands have it.
func lasts(seconds float64) string { return time.Duration(seconds * float64(time.Second)).String() }

// counted is a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

func number(v float64) string { return client.Worded(client.Finite(v), "", short) }

func short(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// chart is a curve as SVG draws it.
type chart struct {
	Name, Low, High string
	Finite          bool // there is a number to draw
	First, Last     int64
	Curves          []curve
}

type curve struct {
	Label  string // whose it is
	Points string
	Class  string
	Final  string
}

const chartWidth, chartHeight = 600, 160

// draw makes one chart a metric, one curve a rank.
func draw(all []client.Metric) (charts []chart) {
	for i := 0; i < len(all); {
		end := i
		for end < len(all) && all[end].Name == all[i].Name {
			end++
		}
		charts = append(charts, drawOne(all[i:end]))
		i = end
	}
	return charts
}

func drawOne(ranks []client.Metric) chart {
	low, high := math.Inf(1), math.Inf(-1)
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for _, m := range ranks {
		for _, p := range m.Points {
			low, high = math.Min(low, p.Value), math.Max(high, p.Value)
			first, last = min(first, p.Step), max(last, p.Step)
		}
	}
	if low > high {
		first, last = 0, 0
	}
	c := chart{Name: ranks[0].Name, Finite: low <= high, Low: number(low), High: number(high), First: first, Last: last}
	for i, m := range ranks {
		var b strings.Builder
		for _, p := range m.Points {
			x, y := 0.5, 0.5
			if last > first {
				x = float64(p.Step-first) / float64(last-first)
			}
			if high > low {
				y = (p.Value - low) / (high - low)
			}
			fmt.Fprintf(&b, "%.1f,%.1f ", x*chartWidth, (1-y)*chartHeight)
		}
		c.Curves = append(c.Curves, curve{
			fmt.Sprintf("rank %d", m.Rank), strings.TrimSpace(b.String()), fmt.Sprintf("c%d", i%6),
			client.Worded(client.Finite(m.Last), m.LastIs, short),
		})
	}
	return c
}
