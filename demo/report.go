package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Report is what a worker tells the front end: one line of its standard output.
type Report struct {
	Kind string `json:"kind"` // "start", "going" (the first step of a life is done), "epoch", "broken", "done"
	Rank int    `json:"rank"`
	Size int    `json:"size"`

	Links string `json:"links,omitempty"` // done: what this rank's bytes went over
	Note  string `json:"note,omitempty"`  // start: what is not as it should be

	Epoch    int     `json:"epoch,omitempty"`  // counted from 1
	Epochs   int     `json:"epochs,omitempty"` // of the whole training
	Loss     float64 `json:"loss,omitempty"`   // mean over the epoch, of all ranks
	Accuracy float64 `json:"accuracy,omitempty"`
	Seconds  float64 `json:"seconds,omitempty"` // since training began, less testing
	Samples  int     `json:"samples,omitempty"` // this rank's images so far
	Busy     float64 `json:"busy,omitempty"`    // seconds of computing
	Talk     float64 `json:"talk,omitempty"`    // seconds of communication
	Wait     float64 `json:"wait,omitempty"`    // seconds of waiting for the later rank

	Agree  bool   `json:"agree,omitempty"`  // done: every rank's parameters have the same digest
	Digest string `json:"digest,omitempty"` // done: of the parameters
	Steps  int    `json:"steps,omitempty"`  // done so far
	Life   uint64 `json:"life,omitempty"`   // start, going: of the job, more than 1 after a loss
	Moment int64  `json:"moment,omitempty"` // start, going, broken: nanoseconds since 1970
	Bytes  uint64 `json:"bytes,omitempty"`  // done: sent by this rank
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
