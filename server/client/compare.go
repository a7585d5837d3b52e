package client

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"
)

// Comparison is jobs beside each other; each list has an entry a job, in the order of Jobs.
type Comparison struct {
	Jobs    []int64             `json:"jobs"`
	States  []string            `json:"states"`
	Seconds []float64           `json:"seconds"` // of the last attempt; 0 for one that never ran
	Differs map[string][]any    `json:"differs"` // what was asked, where it is not the same; null where a job has none
	Tags    map[string][]any    `json:"tags"`    // likewise
	Metrics map[string][]*Curve `json:"metrics"` // of the lowest rank that reported it; null where a job has none
}

// Curve is what a metric came to. A number that JSON has no word for is null.
type Curve struct {
	Last   *float64 `json:"last"`
	LastIs string   `json:"last_is,omitempty"` // NaN, +Inf or -Inf, where Last is null
	Min    *float64 `json:"min"`
	Max    *float64 `json:"max"`
	Count  int64    `json:"count"`
}

// Compare puts jobs beside each other.
func Compare(jobs []Job, metrics [][]Metric, now time.Time) (*Comparison, error) {
	v := &Comparison{Differs: map[string][]any{}, Tags: map[string][]any{}, Metrics: map[string][]*Curve{}}
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
		v.Jobs = append(v.Jobs, j.ID)
		v.States, v.Seconds = append(v.States, string(j.State)), append(v.Seconds, took.Seconds())
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
		if _, said := flat["np"]; !said {
			flat["np"] = float64(j.Document.Processes())
		}
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
				v.Metrics[m.Name] = make([]*Curve, len(jobs))
			}
			v.Metrics[m.Name][i] = &Curve{Finite(m.Last), m.LastIs, Finite(m.Min), Finite(m.Max), m.Count}
		}
	}
	same := func(_ string, all []any) bool {
		return !slices.ContainsFunc(all[1:], func(x any) bool { return !reflect.DeepEqual(x, all[0]) })
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

// Worded is a number in words: of one that is not finite what is, as a server says it, or that it is none.
func Worded(x *float64, is string, format func(float64) string) string {
	switch {
	case x != nil:
		return format(*x)
	case is == "+Inf":
		return "∞"
	case is == "-Inf":
		return "-∞"
	case is != "":
		return is
	}
	return "none"
}

// Finite is nil for what is no number: a server tells its like as the greatest there is, since JSON has no word for it.
func Finite(x float64) *float64 {
	if math.IsNaN(x) || math.Abs(x) >= math.MaxFloat64 {
		return nil
	}
	return &x
}
