package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hora/event"
	"hora/server/client"
)

// comparison is jobs beside each other; each list has an entry a job, in the order of Jobs.
type comparison struct {
	Jobs    []int64             `json:"jobs"`
	States  []string            `json:"states"`
	Seconds []float64           `json:"seconds"` // of the last attempt; 0 for one that never ran
	Differs map[string][]any    `json:"differs"` // what was asked, where it is not the same; null where a job has none
	Tags    map[string][]any    `json:"tags"`    // likewise
	Metrics map[string][]*curve `json:"metrics"` // of the lowest rank that reported it; null where a job has none
}

// curve is what a metric came to. A number that JSON has no word for is null.
type curve struct {
	Last  *float64 `json:"last"`
	Min   *float64 `json:"min"`
	Max   *float64 `json:"max"`
	Count int64    `json:"count"`
}

func (p *program) compareCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use: "compare ID ID...", Short: "show jobs beside each other: how they ended, what differs in what was asked, their metrics",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError{fmt.Errorf("hora compare takes two jobs or more: hora jobs --all lists them")}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			var jobs []client.Job
			var metrics [][]client.Metric
			for _, arg := range args {
				id, err := jobNumber(arg)
				if err != nil {
					return err
				}
				j, err := s.Job(c.Context(), id)
				if err != nil {
					return err
				}
				all, err := s.Metrics(c.Context(), id, "", 1)
				if err != nil {
					return err
				}
				jobs, metrics = append(jobs, j), append(metrics, all)
			}
			v, err := compare(jobs, metrics, time.Now())
			if err != nil {
				return err
			}
			if asJSON {
				return p.writeJSON(v)
			}
			return p.showComparison(v)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

// compare puts jobs beside each other.
func compare(jobs []client.Job, metrics [][]client.Metric, now time.Time) (*comparison, error) {
	v := &comparison{Differs: map[string][]any{}, Tags: map[string][]any{}, Metrics: map[string][]*curve{}}
	for i := range jobs {
		j := &jobs[i]
		took := time.Duration(0)
		switch {
		case j.Started.IsZero():
		case j.Ended.IsZero():
			took = now.Sub(j.Started)
		default:
			took = j.Ended.Sub(j.Started)
		}
		v.Jobs, v.States, v.Seconds = append(v.Jobs, j.ID), append(v.States, string(j.State)), append(v.Seconds, took.Seconds())
		raw, err := json.Marshal(j.Document)
		if err != nil {
			return nil, err
		}
		var asked map[string]any
		if err := json.Unmarshal(raw, &asked); err != nil {
			return nil, err
		}
		flat := map[string]any{}
		flatten("", asked, flat)
		put(v.Differs, flat, i, len(jobs))
		tags := map[string]any{}
		for name, value := range j.Tags {
			tags[name] = value
		}
		put(v.Tags, tags, i, len(jobs))
		ranks := map[string]int{}
		for _, m := range metrics[i] {
			if rank, ok := ranks[m.Name]; ok && rank <= m.Rank {
				continue
			}
			ranks[m.Name] = m.Rank
			if v.Metrics[m.Name] == nil {
				v.Metrics[m.Name] = make([]*curve, len(jobs))
			}
			v.Metrics[m.Name][i] = &curve{finite(m.Last), finite(m.Min), finite(m.Max), m.Count}
		}
	}
	same := func(_ string, all []any) bool {
		return !slices.ContainsFunc(all[1:], func(x any) bool { return shown(x) != shown(all[0]) })
	}
	maps.DeleteFunc(v.Differs, same)
	maps.DeleteFunc(v.Tags, same)
	return v, nil
}

// put enters one job's values.
func put(to map[string][]any, values map[string]any, i, jobs int) {
	for name, x := range values {
		if to[name] == nil {
			to[name] = make([]any, jobs)
		}
		to[name][i] = x
	}
}

// flatten names what lies within by its way, with dots; a job file's fields stand alone.
func flatten(under string, v, to map[string]any) {
	for name, x := range v {
		inner, ok := x.(map[string]any)
		switch {
		case ok && under == "" && name == "spec":
			flatten("", inner, to)
		case ok:
			flatten(under+name+".", inner, to)
		default:
			to[under+name] = x
		}
	}
}

// finite is nil for what is no number: a server tells its like as the greatest there is, since JSON has no word for it.
func finite(x float64) *float64 {
	if math.IsNaN(x) || math.Abs(x) >= math.MaxFloat64 {
		return nil
	}
	return &x
}

// shown is a value on one line; a list is told as JSON.
func shown(x any) string {
	switch x := x.(type) {
	case nil:
		return "-"
	case string:
		return event.Visible(x)
	}
	b, err := json.Marshal(x)
	if err != nil {
		return fmt.Sprint(x)
	}
	return event.Visible(string(b))
}

// cellMost is how many characters of a value the table shows.
const cellMost = 40

func (p *program) showComparison(v *comparison) error {
	w := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', 0)
	line := func(name string, cell func(i int) string) {
		fmt.Fprint(w, event.Visible(name))
		for i := range v.Jobs {
			text := []rune(cell(i))
			if len(text) > cellMost {
				text = append(text[:cellMost-1], '…')
			}
			fmt.Fprint(w, "\t"+string(text))
		}
		fmt.Fprintln(w)
	}
	line("JOB", func(i int) string { return fmt.Sprint(v.Jobs[i]) })
	line("state", func(i int) string { return v.States[i] })
	line("ran", func(i int) string { return fmt.Sprintf("%.1f s", v.Seconds[i]) })
	for _, name := range slices.Sorted(maps.Keys(v.Differs)) {
		line(name, func(i int) string { return shown(v.Differs[name][i]) })
	}
	for _, name := range slices.Sorted(maps.Keys(v.Tags)) {
		line("tag "+name, func(i int) string { return shown(v.Tags[name][i]) })
	}
	for _, name := range slices.Sorted(maps.Keys(v.Metrics)) {
		line(name, func(i int) string {
			c := v.Metrics[name][i]
			if c == nil {
				return "-"
			}
			return fmt.Sprintf("%s (%s to %s)", rounded(c.Last), rounded(c.Min), rounded(c.Max))
		})
	}
	return w.Flush()
}

func rounded(x *float64) string {
	if x == nil {
		return "nan or inf"
	}
	return fmt.Sprintf("%.6g", *x)
}
