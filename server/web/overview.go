package web

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"hora/job"
	"hora/server/client"
)

// refusal is what a page's caller did wrong.
type refusal struct{ text string }

func (r refusal) Error() string { return r.text }

// Status is what HTTP calls it.
func (refusal) Status() int { return http.StatusUnprocessableEntity }

// nowhere is an address that leads to nothing.
type nowhere string

func (n nowhere) Error() string { return string(n) }

// Status is what HTTP calls it.
func (nowhere) Status() int { return http.StatusNotFound }

// comparedMost is how many jobs a page puts beside each other.
const comparedMost = 50

// curves reads some jobs and their curves, several at a time: a thousand blocks of points a job may have to be read.
// The more jobs there are, the fewer points each curve has.
func (p *pages) curves(ctx context.Context, ids []string) ([]client.Job, [][]client.Metric, error) {
	jobs, all, errs := make([]client.Job, len(ids)), make([][]client.Metric, len(ids)), make([]error, len(ids))
	points := min(200, 4000/len(ids))
	var wg sync.WaitGroup
	turn := make(chan struct{}, 2*runtime.GOMAXPROCS(0))
	for i, text := range ids {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil || id < 1 {
			errs[i] = refusal{fmt.Sprintf("%.40q is no number of a job: the queue has those that there are", text)}
			break
		}
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			if jobs[i], errs[i] = p.Job(ctx, id); errs[i] == nil {
				all[i], errs[i] = p.Curves(ctx, id, points)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, nil, err
		}
	}
	return jobs, all, nil
}

// compare shows jobs beside each other: what client.Compare answers, and their curves.
func (p *pages) compare(w http.ResponseWriter, r *http.Request) error {
	ids := r.URL.Query()["job"]
	if len(ids) < 2 || len(ids) > comparedMost {
		ticked := fmt.Sprintf("%d jobs were", len(ids))
		switch len(ids) {
		case 0:
			ticked = "no job was"
		case 1:
			ticked = "1 job was"
		}
		return refusal{fmt.Sprintf("%s ticked: go back and tick 2 to %d", ticked, comparedMost)}
	}
	type row struct {
		Name  string
		Cells []string
	}
	v := struct {
		Jobs    []client.Job
		Ran     []string
		Rows    []row
		Metrics []client.Metric // the lowest rank's of each job, whose number is its rank here
	}{}
	jobs, all, err := p.curves(r.Context(), ids)
	if err != nil {
		return err
	}
	v.Jobs = jobs
	for i, metrics := range all {
		seen := ""
		for _, m := range metrics { // by name, and then by rank
			if m.Name != seen {
				seen, m.Rank = m.Name, int(jobs[i].ID)
				v.Metrics = append(v.Metrics, m)
			}
		}
	}
	slices.SortStableFunc(v.Metrics, func(a, b client.Metric) int {
		if a.Name != b.Name && a.Name < b.Name {
			return -1
		}
		if a.Name != b.Name {
			return 1
		}
		return 0
	})
	c, err := client.Compare(v.Jobs, all, time.Now())
	if err != nil {
		return err
	}
	for _, s := range c.Seconds {
		v.Ran = append(v.Ran, fmt.Sprintf("%.1f s", s))
	}
	add := func(name string, n int, cell func(i int) string) {
		one := row{Name: name}
		for i := range n {
			one.Cells = append(one.Cells, cell(i))
		}
		v.Rows = append(v.Rows, one)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Differs)) {
		add(name, len(v.Jobs), func(i int) string { return plainly(c.Differs[name][i]) })
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tags)) {
		add("tag "+name, len(v.Jobs), func(i int) string { return plainly(c.Tags[name][i]) })
	}
	for _, name := range slices.Sorted(maps.Keys(c.Metrics)) {
		add(name, len(v.Jobs), func(i int) string { return curveText(c.Metrics[name][i]) })
	}
	return p.show(w, r, "jobs beside each other", "compare.html", v)
}

func plainly(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		return v
	}
	b, _ := json.Marshal(v) // it came from JSON
	return string(b)
}

func curveText(c *client.Curve) string {
	if c == nil {
		return "-"
	}
	last := client.Worded(c.Last, c.LastIs, short)
	if c.Min == nil || c.Max == nil || c.Last != nil && *c.Min == *c.Max {
		return last
	}
	return fmt.Sprintf("%s (%s to %s)", last, number(*c.Min), number(*c.Max))
}

// drawJobs makes one chart a metric, one curve a job.
func drawJobs(all []client.Metric) []chart {
	charts := draw(all)
	at := 0
	for i := range charts {
		for k := range charts[i].Curves {
			charts[i].Curves[k].Label = fmt.Sprintf("job %d", all[at].Rank)
			at++
		}
	}
	return charts
}

// pooled is a pool with what it has.
type pooled struct {
	Pool    client.Pool
	Nodes   []client.Node
	Slots   int
	Free    int
	Running int
	Waits   int
	Waiting []client.Job // the first of them
}

// pools shows each pool: what it may have, its nodes, and who waits for it.
func (p *pages) pools(w http.ResponseWriter, r *http.Request) error {
	all, err := p.Pools(r.Context())
	if err != nil {
		return err
	}
	nodes, err := p.Nodes()
	if err != nil {
		return err
	}
	live, err := p.Live(r.Context(), 10*pageJobs)
	if err != nil {
		return err
	}
	var v []pooled
	for _, one := range all {
		x := pooled{Pool: one, Waits: live.Waits[one.Name]}
		for _, n := range nodes {
			if n.Pool == one.Name {
				x.Nodes, x.Slots = append(x.Nodes, n), x.Slots+n.Slots
				if !n.Away {
					x.Free += n.Free
				}
			}
		}
		for _, j := range live.Running {
			if j.Document.Pool == one.Name {
				x.Running++
			}
		}
		for _, j := range live.Waiting {
			if j.Document.Pool == one.Name && j.State == job.Queued {
				x.Waiting = append(x.Waiting, j)
			}
		}
		slices.SortStableFunc(x.Waiting, func(a, b client.Job) int { return place(a) - place(b) })
		v = append(v, x)
	}
	return p.show(w, r, "pools", "pools.html", v)
}

// provided is who makes a pool's nodes.
func provided(p client.Pool) string {
	switch {
	case p.Name == "default":
		return "the server's own machine"
	case p.Provider == "local":
		return "processes of the server's machine"
	case p.Provider == "command":
		return "nodes that commands make"
	}
	return "machines that come by themselves"
}

// projects shows what projects have, have had and may have.
func (p *pages) projects(w http.ResponseWriter, r *http.Request) error {
	all, err := p.Projects(r.Context())
	if err != nil {
		return err
	}
	return p.show(w, r, "projects", "projects.html", all)
}

func used(slotSeconds float64) string {
	return time.Duration(slotSeconds * float64(time.Second)).Round(time.Second).String()
}

func quota(q client.Quota) string {
	switch {
	case q.Slots == 0:
		return "none"
	case q.Max == q.Slots:
		return counted(q.Slots, "slot")
	case q.Max > 0:
		return fmt.Sprintf("%s, %d with what it borrows", counted(q.Slots, "slot"), q.Max)
	}
	return counted(q.Slots, "slot") + " and what it borrows"
}
