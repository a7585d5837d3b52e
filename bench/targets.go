package bench

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"slices"
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
	From           int    // smallest size concerned
	Only           int    // the one size concerned, when set
	Steps          []Step // by ascending size
	AtMost         float64
	ExtraUS        float64       `json:"extra_us"`
	Known          map[int]Known `json:"known_short"` // by size
}

// Step is the goal for sizes up to To, 0 meaning all larger ones.
type Step struct {
	To   int
	Goal float64
}

// Known says why a size stays short after real effort. It is always printed.
type Known struct{ Reason string }

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
		if steps := r.Peer != "ordered"; steps && (len(r.Steps) == 0 || slices.ContainsFunc(r.Steps, func(s Step) bool { return !(s.Goal > 0) })) || !steps && r.ExtraUS <= 0 {
			return Targets{}, fmt.Errorf("read goals of %q: %s over %s, %d ranks, against %s: a row takes steps with a goal above 0, or extra_us where the peer is ordered", path, r.Op, r.Link, r.NP, r.Peer)
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

// Verdict is one row of a check.
type Verdict struct {
	Row     Row
	Wanted  string
	Reached bool
	Known   string // the reason of a known shortfall
}

// Check holds rows against the goals times slack. A ratio within 5 % of its goal counts.
func (ts Targets) Check(rows []Row, slack float64) []Verdict {
	var all []Verdict
	for _, t := range ts.Targets {
		for _, r := range rows {
			if r.Op != t.Op || r.Link != t.Link || r.NP != t.NP || r.Peer != t.Peer || !t.Concerns(r.Bytes) {
				continue
			}
			v := t.judge(r, slack)
			if r.Ratio > 0 { // a reason to be slow is none to fail
				v.Known = t.Known[r.Bytes].Reason
			}
			all = append(all, v)
		}
	}
	return all
}

// Doubtful says whether a row misses a goal for no reason that is known, or holds it by less
// than a tenth: more rounds may say otherwise, in either direction.
func (ts Targets) Doubtful(row Row, slack float64) bool {
	for _, v := range ts.Check([]Row{row}, slack*doubt) {
		if !v.Reached && v.Known == "" {
			return true
		}
	}
	return false
}

const doubt = 1.1

const tolerance = 0.95

func (t *Target) judge(r Row, slack float64) Verdict {
	if r.Ratio == 0 {
		return Verdict{Row: r, Wanted: "a result"}
	}
	if t.Peer == "ordered" {
		extra := r.HoraUS - r.PeerUS
		v := Verdict{Row: r, Wanted: fmt.Sprintf("≤ +%.2f µs", t.ExtraUS), Reached: extra <= t.ExtraUS/tolerance/slack}
		if t.AtMost > 0 {
			v.Wanted = fmt.Sprintf("ratio ≤ %.2f or %s", t.AtMost, v.Wanted)
			v.Reached = v.Reached || 1/r.Ratio <= t.AtMost/tolerance/slack // of each round, then the median
		}
		return v
	}
	goal := t.Goal(r.Bytes)
	return Verdict{Row: r, Wanted: fmt.Sprintf("≥ %.2f", goal*slack), Reached: r.Ratio >= goal*slack*tolerance}
}
