package bench

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

// DefaultTargets is the content of targets.json, the goals of the project.
//
//go:embed targets.json
var DefaultTargets []byte

// Target is a goal for one operation against one peer. A ratio is the peer's time over
// hora's. Rows against the peer "ordered" compare two of hora's own paths, each in a group
// made for it, and bound how much the first may cost more.
type Target struct {
	Op, Link, Peer string
	NP             int
	From           int     // smallest size concerned
	Only           int     // the one size concerned, when set
	Steps          []Step  // by ascending size
	Mean           float64 // what the geometric mean over all sizes should reach; 0: nothing
	AtMost         float64
	ExtraUS        float64       `json:"extra_us"`
	Known          map[int]Known `json:"known_short"` // by size; 0 is the mean
}

// Step is the goal for sizes up to To, 0 meaning all larger ones.
type Step struct {
	To   int
	Goal float64
}

// Known says why a size stays short after real effort, which is always printed, and below
// which ratio that is no longer the reason.
type Known struct {
	AtLeast float64 `json:"at_least"`
	Reason  string
}

// Targets are all goals of a run.
type Targets struct{ Targets []Target }

// ReadTargets parses goals; path "" means the built-in ones.
func ReadTargets(path string) (Targets, error) {
	text := DefaultTargets
	if path != "" {
		var err error
		if text, err = os.ReadFile(path); err != nil {
			return Targets{}, fmt.Errorf("read goals: %w", err)
		}
	}
	var raw struct {
		Targets []struct {
			Target
			At float64 `json:"at_most"`
		}
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return Targets{}, fmt.Errorf("read goals of %q: %w", path, err)
	}
	var all Targets
	for _, r := range raw.Targets {
		r.AtMost = r.At
		if r.Op == "" || r.Link == "" || r.Peer == "" || r.NP < 1 {
			return Targets{}, fmt.Errorf("read goals of %q: a row lacks op, link, peer or np", path)
		}
		plan := Plan{NP: []int{r.NP}, Ops: []string{r.Op}, Links: []string{r.Link}, Peers: []string{r.Peer}, Rounds: 1}
		if err := plan.Validate(); err != nil {
			return Targets{}, fmt.Errorf("read goals of %q: %w", path, err)
		}
		if steps := r.Peer != "ordered"; steps && (len(r.Steps) == 0 ||
			slices.ContainsFunc(r.Steps, func(s Step) bool { return !(s.Goal > 0) })) || !steps && r.ExtraUS <= 0 {
			return Targets{}, fmt.Errorf("read goals of %q: %s over %s, %d ranks, against %s: a row takes steps with a goal above 0, or extra_us where the peer is ordered", path, r.Op, r.Link, r.NP, r.Peer)
		}
		for size, k := range r.Known {
			if !(k.AtLeast > 0) || k.Reason == "" || r.Peer != "ordered" && k.AtLeast >= r.goalOr(size) {
				return Targets{}, fmt.Errorf("read goals of %q: %s over %s, %d ranks, against %s: what is known to be short at %d takes a reason and at_least, a ratio below the goal",
					path, r.Op, r.Link, r.NP, r.Peer, size)
			}
		}
		all.Targets = append(all.Targets, r.Target)
	}
	return all, nil
}

// Concerns reports whether the target says something about a size.
func (t *Target) Concerns(bytes int) bool {
	if t.Only > 0 {
		return bytes == t.Only
	}
	return bytes >= t.From && (len(t.Steps) == 0 || t.Goal(bytes) > 0)
}

// Goal is the ratio that a size should reach, 0 where there is none.
func (t *Target) Goal(bytes int) float64 {
	for _, s := range t.Steps {
		if s.To == 0 || bytes <= s.To {
			return s.Goal
		}
	}
	return 0
}

// goalOr is the goal of a size, or of the mean for size 0.
func (t *Target) goalOr(bytes int) float64 {
	if bytes == 0 {
		return t.Mean
	}
	return t.Goal(bytes)
}

// Verdict is one row of a check. Sizes is of how many a mean is.
type Verdict struct {
	Row     Row
	Sizes   int
	Wanted  string
	Reached bool
	Missing bool   // the peer is one that not every machine can have, and this one has not
	Known   string // the reason why it was to be short; beside Reached: it is so no longer
}

// Check holds rows against the goals times slack. A row whose lower quartile is within 5 % of
// its goal counts; a known shortfall is one down to its floor. With a slack below 1 the check
// is a guard on a machine that others use, and goes by the medians.
func (ts Targets) Check(rows []Row, slack float64) []Verdict {
	var all []Verdict
	for _, t := range ts.Targets {
		var mine []Row
		for _, r := range rows {
			if r.Op != t.Op || r.Link != t.Link || r.NP != t.NP || r.Peer != t.Peer || !t.Concerns(r.Bytes) {
				continue
			}
			mine = append(mine, r)
			all = append(all, t.excuse(t.judge(r, slack), slack))
		}
		if v, ok := t.mean(mine, slack); ok {
			all = append(all, t.excuse(v, slack))
		}
	}
	return all
}

// excuse names a known shortfall, unless the row failed or is below its floor: a reason to
// be slow is none to fail.
func (t *Target) excuse(v Verdict, slack float64) Verdict {
	k, known := t.Known[v.Row.Bytes]
	switch {
	case !known || v.Row.Ratio == 0:
	case v.Reached || v.Row.Ratio >= k.AtLeast*slack:
		v.Known = k.Reason
	default:
		v.Wanted += fmt.Sprintf(", known short down to %.2f", k.AtLeast*slack)
	}
	return v
}

// mean judges the geometric mean, once all the usual sizes have a ratio.
func (t *Target) mean(rows []Row, slack float64) (Verdict, bool) {
	if t.Mean == 0 {
		return Verdict{}, false
	}
	sum := Row{Op: t.Op, Link: t.Link, NP: t.NP, Peer: t.Peer, Sched: "rr"}
	var low, middle, high float64
	for _, size := range DefaultSizes() {
		i := slices.IndexFunc(rows, func(r Row) bool { return r.Bytes == size && r.Ratio > 0 })
		if i < 0 && t.Concerns(size) {
			return Verdict{}, false
		}
		if i < 0 {
			continue
		}
		low, middle, high = low+math.Log(rows[i].RatioLow), middle+math.Log(rows[i].Ratio),
			high+math.Log(rows[i].RatioHigh)
		sum.Sched = rows[i].Sched
	}
	n := float64(len(rows))
	sum.RatioLow, sum.Ratio, sum.RatioHigh = math.Exp(low/n), math.Exp(middle/n), math.Exp(high/n)
	return Verdict{
		Row: sum, Sizes: len(rows), Wanted: fmt.Sprintf("≥ %.2f", t.Mean*slack),
		Reached: sum.Ratio >= t.Mean*slack*tolerance,
	}, true
}

// Doubtful says whether a row misses a goal for no reason that is known, or holds it by less
// than a tenth: more rounds may say otherwise, in either direction.
func (ts Targets) Doubtful(row Row, slack float64) bool {
	for _, v := range ts.Check([]Row{row}, slack*doubt) {
		if !v.Reached && !v.Missing && v.Known == "" {
			return true
		}
	}
	return false
}

const doubt = 1.1

const tolerance = 0.95

// judge goes by the quartile on the slow side, so that a row that is short in every third
// round is short. A guard goes by the median: where somebody else has a core for half of the
// rounds, a quartile tells of him, and a row at twice its goal was called short.
func (t *Target) judge(r Row, slack float64) Verdict {
	if r.Ratio == 0 {
		// Intel MPI is no package of the system's: who has not installed it misses a column.
		return Verdict{Row: r, Wanted: "a result", Missing: r.Peer == "impi" && r.HoraUS > 0 &&
			strings.HasPrefix(r.Failure, missing)}
	}
	if t.Peer == "ordered" {
		v := Verdict{Row: r, Wanted: fmt.Sprintf("≤ +%.2f µs", t.ExtraUS), Reached: r.ExtraHigh <= t.ExtraUS/tolerance/slack}
		if t.AtMost > 0 {
			v.Wanted = fmt.Sprintf("ratio ≤ %.2f or %s", t.AtMost, v.Wanted)
			v.Reached = v.Reached || 1/r.RatioLow <= t.AtMost/tolerance/slack
		}
		return v
	}
	goal, ratio := t.Goal(r.Bytes), r.RatioLow
	if slack < 1 {
		ratio = r.Ratio
	}
	return Verdict{Row: r, Wanted: fmt.Sprintf("≥ %.2f", goal*slack), Reached: ratio >= goal*slack*tolerance}
}
