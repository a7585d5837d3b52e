package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/job"
	"hora/job/schedule"
	"hora/server"
	"hora/server/backend"
	"hora/server/client"
	"hora/server/store"
)

// cluster is where pods run, which has zones instead of nodes, and no agents, keepers or folders. It goes on when a
// server ends. What its gangs do the tests say.
type cluster struct {
	t       *testing.T
	mu      sync.Mutex            // guards what follows
	changed chan struct{}         // closed and renewed whenever anything has
	zones   map[string]int        // how many pods each may have
	gangs   map[[2]int64]*podGang // by job and attempt, until nothing more is wanted of them
	refuses error                 // what starts end with
	pulls   string                // why no pod of what is started comes, where none does
	starts  map[[2]int64]int      // calls, of each gang
	over    map[[2]int64]bool     // of these nothing more is wanted
	kills   map[[2]int64][]client.Outcome
}

func newCluster(t *testing.T, zones map[string]int) *cluster {
	return &cluster{
		t: t, changed: make(chan struct{}), zones: zones, gangs: map[[2]int64]*podGang{}, starts: map[[2]int64]int{},
		over: map[[2]int64]bool{}, kills: map[[2]int64][]client.Outcome{},
	}
}

// podGang is one that runs.
type podGang struct {
	c     *cluster
	is    backend.Gang     // as it was declared last
	said  []backend.Record // with numbers
	seen  []backend.Record // beside them, and not taken yet
	left  []backend.Record // what zones other than the first have when it ends
	seats map[string]int
	lines uint64
	lost  bool
	gone  *backend.Record // what stands for those that are kept no more
}

// with does something with all that there is, and wakes who waits for what comes of it.
func (c *cluster) with(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
	close(c.changed)
	c.changed = make(chan struct{})
}

// soon bounds every wait.
const soon = 60 * time.Second

// until waits until it is so.
func (c *cluster) until(what string, so func() bool) {
	c.t.Helper()
	late := time.After(soon)
	for {
		c.mu.Lock()
		is, changed := so(), c.changed
		c.mu.Unlock()
		if is {
			return
		}
		select {
		case <-changed:
		case <-late:
			c.t.Fatalf("not so after %v: %s", soon, what)
		}
	}
}

// gang waits until an attempt runs.
func (c *cluster) gang(id int64, attempt int) (g *podGang) {
	c.t.Helper()
	c.until(fmt.Sprintf("attempt %d of job %d runs", attempt, id), func() bool {
		g = c.gangs[[2]int64{id, int64(attempt)}]
		return g != nil
	})
	return g
}

// forgotten waits until nothing more is wanted of an attempt.
func (c *cluster) forgotten(id int64, attempt int) {
	c.t.Helper()
	c.until(fmt.Sprintf("attempt %d of job %d is over", attempt, id), func() bool { return c.over[[2]int64{id, int64(attempt)}] })
}

// record has something come of the gang; with the lock.
func (g *podGang) record(r backend.Record) {
	r.N, r.At = uint64(len(g.said))+1, time.Now().UTC()
	g.said = append(g.said, r)
}

func (g *podGang) say(rank int, text string) {
	g.c.with(func() {
		g.lines++
		g.record(backend.Record{Lines: []backend.Line{{N: g.lines, At: time.Now().UTC(), Rank: rank, Text: text}}})
	})
}

func reportOf(rank int, step int64, loss float64) *backend.Report {
	return &backend.Report{Rank: rank, Step: step, Metrics: map[string]backend.Value{"loss": backend.Value(loss)}}
}

func fileOf(path, content string) *backend.Artifact {
	open := func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }
	return &backend.Artifact{Path: path, Open: open}
}

func (g *podGang) tell(r backend.Record) { g.c.with(func() { g.record(r) }) }

// see has the cluster see something of the gang.
func (g *podGang) see(r backend.Record) {
	g.c.with(func() {
		r.At = time.Now().UTC()
		g.seen = append(g.seen, r)
	})
}

// commits has an elastic gang follow what it was told last, and say so.
func (g *podGang) commits() {
	g.c.with(func() {
		g.seats = map[string]int{}
		for _, s := range backend.Slots(g.is.Shares) {
			g.seats[s.Node] = s.Slots
		}
		g.stands()
	})
}

func (g *podGang) stands() {
	st := &backend.Stands{Shares: backend.Slots(g.is.Shares), Seats: maps.Clone(g.seats)}
	g.record(backend.Record{Stands: st})
}

func (g *podGang) exit(code int) {
	outcome := client.Success
	if code != 0 {
		outcome = client.Failure
	}
	g.tell(backend.Record{Exit: &backend.Exit{Code: code, Outcome: string(outcome)}})
}

// pods is the cluster as one server reaches it.
type pods struct {
	*cluster
	ctx   context.Context
	close context.CancelFunc
}

func (c *cluster) reach() *pods {
	p := &pods{cluster: c}
	p.ctx, p.close = context.WithCancel(context.Background())
	return p
}

func (p *pods) Close() { p.close() }

func (p *pods) Capacity() (all []schedule.Node, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, zone := range slices.Sorted(maps.Keys(p.zones)) {
		all = append(all, schedule.Node{Name: zone, Pool: "default", Slots: p.zones[zone]})
	}
	return all, p.changed
}

func (p *pods) Start(_ context.Context, is backend.Gang) (err error) {
	id := [2]int64{is.Job, int64(is.Attempt)}
	p.with(func() {
		p.starts[id]++
		switch g := p.gangs[id]; {
		case p.refuses != nil:
			err = p.refuses
		case g != nil:
			if g.is = is; is.Document.Spec.MinNP > 0 {
				g.stands()
			}
		case p.pulls == "":
			g = &podGang{c: p.cluster, is: is}
			p.gangs[id] = g
			g.record(backend.Record{Begun: true})
		}
	})
	return err
}

func (p *pods) Kill(r backend.Ref, why client.Outcome) error {
	id := [2]int64{r.Job, int64(r.Attempt)}
	p.with(func() {
		if why == backend.Over {
			p.over[id] = true
			delete(p.gangs, id)
			return
		}
		p.kills[id] = append(p.kills[id], why)
		if g := p.gangs[id]; g != nil {
			g.record(backend.Record{Exit: &backend.Exit{Code: 143, Outcome: string(why)}})
		}
	})
	return nil
}

func (p *pods) Watch(ctx context.Context, r backend.Ref, from uint64, take func([]backend.Record) error) error {
	id := [2]int64{r.Job, int64(r.Attempt)}
	for {
		p.mu.Lock()
		g, changed := p.gangs[id], p.changed
		if g == nil {
			says := p.pulls
			p.mu.Unlock()
			return &backend.Unbegun{Says: says}
		}
		var said []backend.Record
		if g.gone != nil && from < g.gone.N {
			said, from = append(said, *g.gone), g.gone.N
		}
		upTo, seen := uint64(len(g.said)), slices.Clone(g.seen)
		said = append(said, g.said[from:]...)
		if g.lost {
			end := &backend.Exit{Code: backend.ExitHost, Outcome: string(client.Lost), Text: "its pods were evicted"}
			said = append(said, backend.Record{At: time.Now(), Exit: end})
		}
		end := slices.IndexFunc(said, func(r backend.Record) bool { return r.Exit != nil })
		if end >= 0 {
			said = slices.Insert(said[:end+1], end, g.left...)
		}
		p.mu.Unlock()
		if all := append(seen, said...); len(all) > 0 {
			if err := take(all); err != nil {
				return err
			}
			if end >= 0 {
				return nil
			}
			from = upTo
			p.mu.Lock()
			g.seen = g.seen[len(seen):]
			p.mu.Unlock()
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-p.ctx.Done():
			return errors.New("the cluster is left")
		}
	}
}

// site is a server on a cluster, and who calls it.
type site struct {
	t      *testing.T
	dir    string
	c      *cluster
	store  *store.Store
	client *client.Client
	url    string
	close  func()
}

func newSite(t *testing.T, c *cluster) *site {
	s := &site{t: t, dir: t.TempDir(), c: c}
	s.up()
	t.Cleanup(func() { s.close() })
	return s
}

// up has a server take the folder up.
func (s *site) up() {
	s.t.Helper()
	st, err := store.Open(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	is, err := server.New(s.t.Context(), st, s.c.reach(), nil, []byte("tokens"), log)
	if err != nil {
		s.t.Fatal(err)
	}
	web := httptest.NewServer(is.Handler(server.Settings{Version: "test", Token: "owner"}))
	s.store, s.url, s.client = st, web.URL, client.New(web.URL, "owner")
	s.close = sync.OnceFunc(func() {
		is.Close()
		web.CloseClientConnections()
		web.Close()
		_ = st.Close()
	})
}

// submit makes a job of a program with so many processes, of which an elastic one needs the least at least.
func (s *site) submit(np, least int) int64 {
	s.t.Helper()
	d := client.Document{Spec: job.Spec{Command: []string{"train"}, NP: np, MinNP: least}}
	j, err := s.client.Submit(s.t.Context(), d, client.Key())
	if err != nil {
		s.t.Fatal(err)
	}
	return j.ID
}

func (s *site) job(id int64) client.Job {
	s.t.Helper()
	j, err := s.client.Job(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return j
}

// ends waits for a job's end.
func (s *site) ends(id int64, as job.State) client.Job {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), soon)
	defer cancel()
	j, err := s.client.Follow(ctx, id, client.Following{Quiet: true})
	if err != nil {
		s.t.Fatal(err)
	}
	if j = s.job(id); j.State != as {
		s.t.Fatalf("job %d is %s, and not %s: %s; %q", id, j.State, as, j.Text, s.story(id))
	}
	return j
}

// becomes waits until the server says so.
func (s *site) becomes(what string, so func() bool) {
	s.t.Helper()
	for end := time.Now().Add(soon); !so(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not so after %v: %s", soon, what)
		}
	}
}

// wrote is what a job has written.
func (s *site) wrote(id int64) string {
	s.t.Helper()
	text := ""
	err := s.client.Lines(s.t.Context(), id, client.Following{Rank: -2}, func(l client.Line) {
		text += fmt.Sprintf("%d.%d [%d] %s\n", l.Attempt, l.Number, l.Rank, l.Text)
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

// story is what happened to a job.
func (s *site) story(id int64) string {
	s.t.Helper()
	all, err := s.client.Happenings(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	text := ""
	for _, h := range all {
		text += h.Kind + ": " + h.Text + "\n"
	}
	return text
}

// kept is what came back of a job, by path.
func (s *site) kept(id int64) map[string]string {
	s.t.Helper()
	all, err := s.client.Artifacts(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	is := map[string]string{}
	for _, a := range all {
		r, err := s.client.Get(s.t.Context(), a.Hash)
		if err != nil {
			s.t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			s.t.Fatal(err)
		}
		is[a.Path] = string(b)
	}
	return is
}

// lasts are the last numbers that ranks reported of their loss.
func (s *site) lasts(id int64) map[int]float64 {
	s.t.Helper()
	all, err := s.client.Metrics(s.t.Context(), id, "loss", 0)
	if err != nil {
		s.t.Fatal(err)
	}
	is := map[int]float64{}
	for _, m := range all {
		is[m.Rank] = m.Last
	}
	return is
}
