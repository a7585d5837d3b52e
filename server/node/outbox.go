package node

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Record is one thing that happened to an attempt, in the order in which it did. The outbox in the attempt's folder
// keeps all of them until the server has them on its disk and says so.
type Record struct {
	N        uint64          `json:"n"` // from 1, without a gap
	At       time.Time       `json:"at"`
	Begun    *Begun          `json:"begun,omitempty"`
	Ready    *Ready          `json:"ready,omitempty"`
	Lines    []Line          `json:"lines,omitempty"`
	Event    json.RawMessage `json:"event,omitempty"` // as hora run --events writes it
	Report   *Report         `json:"report,omitempty"`
	Stands   *Stands         `json:"stands,omitempty"`
	Artifact *Artifact       `json:"artifact,omitempty"`
	Exit     *Exit           `json:"exit,omitempty"` // the last one
}

// Begun is the first record.
type Begun struct {
	Pid int `json:"pid"`
}

// Ready says that the job's environment is there, and what is in it.
type Ready struct {
	Text string   `json:"text"`
	Lock []string `json:"lock"` // the releases that were taken, as requirements
}

// Line is a line of output.
type Line struct {
	N    uint64    `json:"n"` // of the attempt, from 1
	At   time.Time `json:"at"`
	Rank int       `json:"rank"` // -1 for hora's own
	Err  bool      `json:"err,omitempty"`
	Text string    `json:"text"`
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

// Artifact says that a file of outputs/ has come or changed.
type Artifact struct {
	Path string `json:"path"` // below outputs/, with slashes
	Size int64  `json:"size"`
}

// Exit is how the attempt ended.
type Exit struct {
	Code    int    `json:"code"`
	Outcome string `json:"outcome"`
	Text    string `json:"text"`
}

// The files of an attempt's folder.
const (
	jobFile     = "job.json"
	outboxFile  = "outbox"
	lockFile    = "lock"
	addressFile = "address" // where its socket is
	keeperFile  = "keeper.log"
	eventsFile  = "events"
	hostsFile   = "hosts" // what an elastic job may use
	reportFile  = "report.json"
	specFile    = "spec.yaml"
	secretFile  = "secret"
	stopFile    = "stop" // why it is to end, said before it listened
	WorkFolder  = "work"
	OutputsName = "outputs"
)

// outbox appends records and wakes those who follow.
type outbox struct {
	mu      sync.Mutex // guards all
	f       *os.File
	n       uint64
	size    int64         // of whole records
	changed chan struct{} // closed and renewed with each record
	done    bool
	err     error
}

func openOutbox(dir string) (*outbox, error) {
	f, err := os.OpenFile(filepath.Join(dir, outboxFile), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &outbox{f: f, changed: make(chan struct{})}, nil
}

// put appends a record; the first and the last are on the disk when it returns. A full disk holds it, and with it the
// job, up until there is room: nothing of a job is left out.
func (o *outbox) put(r Record) error { return withRoom(func() error { return o.try(r) }) }

// withRoom does f again for as long as the disk is full.
func withRoom(f func() error) error {
	for {
		err := f()
		if !roomless(err) {
			return err
		}
		time.Sleep(roomAfter)
	}
}

func roomless(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// roomAfter is how often a full disk is tried again.
const roomAfter = 200 * time.Millisecond

func (o *outbox) try(r Record) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil || o.done {
		return o.err
	}
	o.n++
	r.N, r.At = o.n, time.Now().UTC()
	b, err := json.Marshal(r)
	if err == nil {
		_, err = o.f.Write(append(b, '\n'))
	}
	if err == nil && (r.Begun != nil || r.Exit != nil) {
		err = o.f.Sync()
	}
	if roomless(err) {
		o.n--
		_ = o.f.Truncate(o.size) // what fitted of it
		return err
	}
	if err != nil {
		o.err = fmt.Errorf("write %s: %w", o.f.Name(), err)
	}
	o.size += int64(len(b)) + 1
	o.done = r.Exit != nil
	close(o.changed)
	o.changed = make(chan struct{})
	return o.err
}

// news is closed when there is more than n records.
func (o *outbox) news(n uint64) (<-chan struct{}, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed, o.n > n
}

// reader reads records of an outbox from the beginning. A last line that is not whole was being written: it is no
// record.
type reader struct {
	f    *os.File
	r    *bufio.Reader
	part []byte
}

func openReader(dir string) (*reader, error) {
	f, err := os.Open(filepath.Join(dir, outboxFile))
	if err != nil {
		return nil, err
	}
	return &reader{f: f, r: bufio.NewReaderSize(f, 1<<16)}, nil
}

// next answers io.EOF where there is no more now.
func (r *reader) next() (Record, error) {
	var rec Record
	line, err := r.line()
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(line, &rec); err != nil {
		return rec, fmt.Errorf("read %s: %w", r.f.Name(), err)
	}
	return rec, nil
}

func (r *reader) line() ([]byte, error) {
	b, err := r.r.ReadBytes('\n')
	r.part = append(r.part, b...)
	if err != nil {
		return nil, err
	}
	line := bytes.TrimSuffix(r.part, []byte("\n"))
	r.part = nil
	return line, nil
}

// lastRecords tells whether an outbox begins, and how it ended.
func lastRecords(dir string) (begun bool, exit *Exit, err error) {
	r, err := openReader(dir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil, nil
	}
	if err != nil {
		return false, nil, err
	}
	defer r.f.Close()
	for {
		rec, err := r.next()
		if err == io.EOF {
			return begun, exit, nil
		}
		if err != nil {
			return begun, exit, err
		}
		begun = begun || rec.Begun != nil
		exit = rec.Exit
	}
}
