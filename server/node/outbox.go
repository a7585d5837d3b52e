package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"syscall"
	"time"

	"hora/server/backend"
)

// Record is one thing that happened to an attempt, in the order in which it did. The outbox in the attempt's folder
// keeps all of them until the server has them on its disk and says so.
type Record struct {
	N        uint64          `json:"n"` // from 1, without a gap
	At       time.Time       `json:"at"`
	Begun    *Begun          `json:"begun,omitempty"`
	Ready    *backend.Ready  `json:"ready,omitempty"`
	Lines    []backend.Line  `json:"lines,omitempty"`
	Event    json.RawMessage `json:"event,omitempty"` // as hora run --events writes it
	Report   *backend.Report `json:"report,omitempty"`
	Stands   *Stands         `json:"stands,omitempty"`
	Artifact *Artifact       `json:"artifact,omitempty"`
	Gone     *backend.Gone   `json:"gone,omitempty"` // what stands for all up to this one
	Exit     *backend.Exit   `json:"exit,omitempty"` // the last one
}

// Begun is the first record.
type Begun struct {
	Pid int `json:"pid"`
}

// Artifact says that a file of outputs/ has come or changed.
type Artifact struct {
	Path string `json:"path"` // below outputs/, with slashes
	Size int64  `json:"size"`
}

// The files of an attempt's folder.
const (
	jobFile     = "job.json"
	outboxFile  = "outbox" // the first of its segments
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
	mu       sync.Mutex // guards all
	dir      string
	f        *os.File // the last segment
	n        uint64
	segments []segment     // the oldest first
	last     backend.Gone  // of all records so far
	marks    []mark        // one each markBytes
	changed  chan struct{} // closed and renewed with each record
	done     bool
	rolls    bool // somebody acknowledges records, and so knows of segments: earlier releases read one file
	err      error
	// longest and kept are segmentBytes and keptBytes, but in tests.
	longest, kept int64
}

// mark is a place in an outbox, from which who has taken the records before it reads on: the beginning of a job that
// writes for days is not read again for each server that comes.
type mark struct {
	n  uint64 // records before it
	of uint64 // records before the segment that it is in
	at int64  // where in that
}

// markBytes is how far apart marks are.
const markBytes = 1 << 20

// openOutbox begins the outbox of an attempt that has not begun: what a keeper may have left there that came no further
// is no record.
func openOutbox(dir string) (*outbox, error) {
	f, err := os.OpenFile(filepath.Join(dir, outboxFile), os.O_CREATE|os.O_RDWR|os.O_APPEND|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	return &outbox{
		dir: dir, f: f, segments: []segment{{}}, changed: make(chan struct{}), longest: segmentBytes, kept: keptBytes,
	}, nil
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
		err = o.roll()
	}
	now := &o.segments[len(o.segments)-1]
	if err == nil {
		_, err = o.f.Write(append(b, '\n'))
	}
	if err == nil && (r.Begun != nil || r.Exit != nil) {
		err = o.f.Sync()
	}
	if roomless(err) {
		o.n--
		_ = o.f.Truncate(now.size) // what fitted of it
		return err
	}
	if err != nil {
		o.err = fmt.Errorf("write %s: %w", o.f.Name(), err)
	}
	if n := len(o.marks); n == 0 || o.marks[n-1].of != now.before || now.size-o.marks[n-1].at >= markBytes {
		o.marks = append(o.marks, mark{o.n - 1, now.before, now.size})
	}
	now.size += int64(len(b)) + 1
	note(&o.last, &r)
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

// before is the last mark before what comes after a record; where that is gone, the first one that there is.
func (o *outbox) before(n uint64) mark {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := sort.Search(len(o.marks), func(i int) bool { return o.marks[i].n > n })
	switch {
	case i > 0:
		return o.marks[i-1]
	case len(o.marks) > 0:
		return o.marks[0]
	}
	return mark{}
}
