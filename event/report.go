package event

import (
	"fmt"
	"strings"
)

// Report is the story of a job: its epochs, who left and why, and what each recovery cost. --report writes it as JSON.
type Report struct {
	Job      string        `json:"job"`
	Command  []string      `json:"command"`
	Ended    string        `json:"ended"` // how; the launcher's last line
	Kind     string        `json:"kind"`  // the same for programs: finished, failed, killed, out-of-memory, lost-host, …
	ExitCode int           `json:"exit_code"`
	Seconds  float64       `json:"seconds"`
	OnLoss   string        `json:"on_loss"`
	Restarts int           `json:"restarts_used"`
	Left     *int          `json:"restarts_left,omitempty"` // nil where no budget was given
	Epochs   []EpochReport `json:"epochs"`
}

// EpochReport is one epoch of a Report. Times are seconds since the job began.
type EpochReport struct {
	Number   uint64         `json:"number"`
	Size     int            `json:"size"`
	Hosts    map[string]int `json:"hosts"` // ranks on each
	Began    float64        `json:"began"`
	Ended    float64        `json:"ended,omitempty"`
	Gone     *Departure     `json:"gone,omitempty"`     // whose end ended it
	Recovery *Recovery      `json:"recovery,omitempty"` // what it cost to get here from the epoch before
}

// Departure is why an epoch ended.
type Departure struct {
	Rank   int    `json:"rank"` // in that epoch; -1 when nobody was lost: workers came
	Host   string `json:"host,omitempty"`
	Reason string `json:"reason"`
}

// Recovery is what the end of an epoch cost the survivor that it cost most.
type Recovery struct {
	Seconds float64 `json:"seconds"` // from when it knew to when it trained again
	Steps   int     `json:"steps"`   // done again; -1 when the training does not count its steps
}

// Told is the story of a job that more than one epoch was needed for.
type Told struct {
	Report *Report `json:"report"`
}

func (e *Told) String() string {
	r := e.Report
	var b strings.Builder
	fmt.Fprintf(&b, "%s in %.1f s", Counted(len(r.Epochs), "epoch"), r.Seconds)
	if r.Left != nil {
		fmt.Fprintf(&b, ", %s used, %d left", Counted(r.Restarts, "restart"), *r.Left)
	}
	for i := range r.Epochs {
		ep := &r.Epochs[i]
		if ep.Gone == nil {
			continue
		}
		who := "new members"
		if ep.Gone.Rank >= 0 {
			who = fmt.Sprintf("rank %d on %s: %s", ep.Gone.Rank, ep.Gone.Host, ep.Gone.Reason)
		}
		fmt.Fprintf(&b, "\n  epoch %d (%s) ended after %.1f s by %s", ep.Number, Counted(ep.Size, "rank"), ep.Ended-ep.Began, who)
		if i+1 == len(r.Epochs) {
			continue
		}
		if next := r.Epochs[i+1].Recovery; next != nil {
			fmt.Fprintf(&b, "; recovered in %.3f s", next.Seconds)
			if next.Steps >= 0 {
				fmt.Fprintf(&b, ", %s done again", Counted(next.Steps, "step"))
			}
		}
	}
	return b.String()
}
