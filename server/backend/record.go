package backend

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"hora/job/schedule"
)

// Record is one thing that has come of a gang. Those with a number come in their order, and are kept where the gang
// runs until who watches has taken them; for how long after that is the back end's own. Those without are of other
// nodes than the first of its shares, or are what the back end itself has seen of the gang. What ranks on other nodes
// report may come while the gang runs: with a Since, and numbers among all that this has said, it may come more than
// once, and is taken once.
type Record struct {
	N        uint64 // from 1, without a gap; 0 for none
	At       time.Time
	Begun    bool // the first one
	Ready    *Ready
	Lines    []Line
	Event    json.RawMessage // as hora run --events writes it
	Report   *Report
	Stands   *Stands
	Artifact *Artifact
	Parted   *Parted
	Missing  *Missing
	Gone     *Gone  // what stands for all up to this one, which are kept no more
	Exit     *Exit  // the last one; what other nodes have is before it, in the same batch
	From     string // the node whose Report, Artifact, Missing or Gone it is, where that is not the first
	// When what says so of that node began: an elastic gang may have left the node, and taken part there anew.
	Since time.Time
}

// Gone is what is still known of records that were taken, and so are no more: who has lost what it had taken, since it
// was restored from an older copy, is told it in their place. Files of outputs/ are told of anew with it, and so is how
// an elastic gang stands when that is declared again.
type Gone struct {
	Begun  time.Time       `json:"begun"` // when the first of them was written
	Ready  *Ready          `json:"ready,omitempty"`
	Opened json.RawMessage `json:"opened,omitempty"` // the last event that says how many ranks there are
	Lines  uint64          `json:"lines,omitempty"`  // the last line's number
}

// Ready says that the job's environment is there, and what is in it.
type Ready struct {
	Text string   `json:"text"`
	Lock []string `json:"lock"` // the releases that were taken, as requirements
}

// Line is a line of output.
type Line struct {
	N    uint64    `json:"n"`    // of the attempt, from 1
	At   time.Time `json:"at"`   // never none: lines are found by it
	Rank int       `json:"rank"` // -1 for hora's own
	Err  bool      `json:"err,omitempty"`
	Text string    `json:"text"`
	// Bytes are what was written, where that is no UTF-8; in Text each byte that is none is U+FFFD.
	Bytes []byte `json:"bytes,omitempty"`
}

// Say has the line be what was written.
func (l *Line) Say(text string) {
	if l.Text = text; !utf8.ValidString(text) {
		l.Text, l.Bytes = string([]rune(text)), []byte(text)
	}
}

// Report is what a rank said with hora.report, or of the job's tags.
type Report struct {
	Rank    int               `json:"rank"`
	Step    int64             `json:"step"`
	Metrics map[string]Value  `json:"metrics,omitempty"`
	Tags    map[string]string `json:"tags,omitempty"`
}

// Value is a number that may be none: JSON has no word for those, so they are words.
type Value float64

// MarshalJSON writes NaN, +Inf and -Inf as words.
func (v Value) MarshalJSON() ([]byte, error) {
	f := float64(v)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.AppendQuote(nil, strconv.FormatFloat(f, 'g', -1, 64)), nil
	}
	return json.Marshal(f)
}

// UnmarshalJSON reads numbers and those words.
func (v *Value) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(f, 0) {
		return fmt.Errorf("read a metric: %q is no number", text)
	}
	*v = Value(f)
	return nil
}

// Stands is how an elastic gang stands.
type Stands struct {
	Shares []schedule.Share // what it has heard that each node may have
	Seats  map[string]int   // how many ranks of the last epoch each node has; nil before the first
}

// Artifact says that a file of outputs/ has come or changed. What other nodes have is told of when the gang has left
// them, and all of it in the end. What is told of while the gang goes on may be opened later: until its Exit is taken.
type Artifact struct {
	Path string // below outputs/, with slashes
	// Open and to read from what it opened end with ctx.
	Open func(ctx context.Context) (io.ReadCloser, error)
}

// Exit is how an attempt, or what one node had of it, ended.
type Exit struct {
	Code    int    `json:"code"`
	Outcome string `json:"outcome"`
	Text    string `json:"text"`
}

// Parted says that what a node had of a gang has ended, and the gang goes on. Who watches says with Start how: with
// another Coming there it is started again. The gang's output says what it wrote last where it was to have slots there,
// and is started without.
type Parted struct {
	Node    string
	Coming  int // as its share had it
	Exit    *Exit
	Err     error  // that was not heard: ErrLost, or why it did not begin
	Said    []Line // the last that it wrote
	Unready bool   // its environment was never made
}

// Quoted is the last that it wrote, for the job's output; nothing where it wrote nothing.
func (p *Parted) Quoted(now time.Time) []Line {
	if len(p.Said) == 0 {
		return nil
	}
	head := Line{At: now.UTC(), Rank: -1, Err: true, Text: "hora: the last that node " + p.Node + " wrote:"}
	return append([]Line{head}, p.Said...)
}

// Missing is what a node has and could not be had: its files, or what its ranks reported, of which the rest comes too.
// It is tried again where who watches does not take it.
type Missing struct {
	Reports bool
	Late    bool // all the time there is was given to it, and is not again
	Err     error
}
