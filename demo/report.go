package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Kind says what a report is about.
type Kind string

// What workers report, in the order in which it happens.
const (
	Joined  Kind = "joined"  // a rank has its place and the state to go on from
	Note    Kind = "note"    // something is not as it should be
	Going   Kind = "going"   // the first step since Joined is done
	Halfway Kind = "halfway" // half of an epoch is done
	Epoch   Kind = "epoch"   // an epoch is done
	Broken  Kind = "broken"  // a step could not be done: somebody was lost
	Done    Kind = "done"    // the training is done, and the replicas are compared
)

// Report is what a worker tells the front end: one line of its standard output.
type Report struct {
	Kind   Kind   `json:"kind"`
	Rank   int    `json:"rank"`
	Size   int    `json:"size"`
	Epochs int    `json:"epochs"`          // of the whole training
	Steps  int    `json:"steps,omitempty"` // done so far
	Note   string `json:"note,omitempty"`  // Note, Broken: in words

	Life   uint64 `json:"life,omitempty"`   // Joined, Going: of the job, more than 1 after a loss
	Moment int64  `json:"moment,omitempty"` // Joined, Going, Broken: nanoseconds since 1970

	Epoch    int     `json:"epoch,omitempty"`    // Halfway, Epoch: counted from 1
	Loss     float64 `json:"loss,omitempty"`     // Epoch: mean over the epoch, of all ranks
	Accuracy float64 `json:"accuracy,omitempty"` // Epoch, Done, as what follows
	Samples  int     `json:"samples,omitempty"`  // this rank's images so far
	Seconds  float64 `json:"seconds,omitempty"`  // since training began, less testing
	Busy     float64 `json:"busy,omitempty"`     // of these: computing
	Talk     float64 `json:"talk,omitempty"`     // communication
	Wait     float64 `json:"wait,omitempty"`     // waiting for the later rank

	Agree   bool     `json:"agree,omitempty"`   // Done: every rank's parameters have the same digest
	Digest  string   `json:"digest,omitempty"`  // Done: of the parameters
	Links   []string `json:"links,omitempty"`   // Done: what this rank's bytes went over
	Stalled float64  `json:"stalled,omitempty"` // Done: share of the computing without a core, 0..1
}

// reportMark begins a report's line, so that it is told from anything else on stdout.
const reportMark = "hora-demo "

// Write prints the report as one line.
func (r Report) Write(w io.Writer) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s%s\n", reportMark, line)
	return err
}

// ParseReport reads a line of a worker's output; ok is false for any other line.
func ParseReport(line string) (r Report, ok bool) {
	text, ok := strings.CutPrefix(strings.TrimSpace(line), reportMark)
	if !ok {
		return Report{}, false
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Report{}, false
	}
	return r, true
}
