package node

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"hora/server/backend"
)

// An outbox is a row of segments, files that are each read to their end and then the next one: "outbox", and "outbox.N"
// that begins after record N. A server says up to which record it has all on its disk. Segments of which it has all are
// removed, the oldest first, but for the last keptBytes: a server that was restored from an older copy asks for records
// that the one before it had. What it then lacks it is told in place of them: outbox.head stands for all that is
// removed, and is on the disk before anything is. Who is killed in between leaves what can be read, and a segment too
// many.

// segment is one file of an outbox.
type segment struct {
	before uint64       // records before it
	size   int64        // of its whole records
	then   backend.Gone //  what stands for those before it
}

const (
	// segmentBytes is from when on a segment is the last but one.
	segmentBytes = 2 << 20
	// keptBytes are at least left of what a server has.
	keptBytes = 16 << 20
	// headFile has what stands for the records that are removed.
	headFile = "outbox.head"
)

// note has what stands for records stand for one more.
func note(g *backend.Gone, r *Record) {
	switch {
	case r.Begun != nil:
		g.Begun = r.At
	case r.Ready != nil:
		g.Ready = r.Ready
	case r.Event != nil && seats(r.Event) != nil:
		g.Opened = r.Event
	case len(r.Lines) > 0:
		g.Lines = r.Lines[len(r.Lines)-1].N
	}
}

func segmentName(dir string, before uint64) string {
	name := filepath.Join(dir, outboxFile)
	if before > 0 {
		name += "." + strconv.FormatUint(before, 10)
	}
	return name
}

// roll begins the next segment where the last is long enough; with the lock. That is on the disk then: the next one may
// come there sooner.
func (o *outbox) roll() error {
	if now := o.segments[len(o.segments)-1]; !o.rolls || now.size < o.longest {
		return nil
	}
	if err := o.f.Sync(); err != nil {
		return err
	}
	f, err := os.OpenFile(segmentName(o.dir, o.n-1), os.O_CREATE|os.O_RDWR|os.O_APPEND|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	o.f.Close()
	o.f = f
	o.segments = append(o.segments, segment{before: o.n - 1, then: o.last})
	return nil
}

// acknowledge hears that a server has all records up to one on its disk.
func (o *outbox) acknowledge(n uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rolls = true
	left := int64(0)
	for _, s := range o.segments {
		left += s.size
	}
	drop := 0
	for drop+1 < len(o.segments) && o.segments[drop+1].before <= n && left-o.segments[drop].size >= o.kept {
		left -= o.segments[drop].size
		drop++
	}
	if drop == 0 {
		return
	}
	next := o.segments[drop]
	if writeHead(o.dir, Record{N: next.before, At: time.Now().UTC(), Gone: &next.then}) != nil {
		return // the disk is full, and the next word is soon
	}
	o.marks = slices.DeleteFunc(o.marks, func(m mark) bool { return m.n < next.before })
	for _, s := range o.segments[:drop] {
		if err := os.Remove(segmentName(o.dir, s.before)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return // it is tried again
		}
		o.segments = o.segments[1:]
	}
}

// writeHead has it on the disk when it returns.
func writeHead(dir string, r Record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, headFile)
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(name+".new", name); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// readHead is what stands for removed records; nil where none is.
func readHead(dir string) (*Record, error) {
	b, err := os.ReadFile(filepath.Join(dir, headFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var r Record
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err == nil && r.Gone == nil {
		err = errors.New("it says nothing")
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", headFile, err)
	}
	return &r, nil
}

// segmentsOf are how many records are before each segment of a folder.
func segmentsOf(dir string) (all []uint64, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() == outboxFile {
			all = append(all, 0)
		} else if after, is := strings.CutPrefix(e.Name(), outboxFile+"."); is {
			if n, err := strconv.ParseUint(after, 10, 64); err == nil && n > 0 {
				all = append(all, n)
			}
		}
	}
	slices.Sort(all)
	return all, err
}

// reader reads records of an outbox from a place on, with what stands for those of them that are gone. A last line that
// is not whole was being written: it is no record.
type reader struct {
	dir  string
	f    *os.File
	r    *bufio.Reader
	part []byte
	n    uint64  // records so far
	gone *Record // comes first
	as   *User   // with whose rights it opens what follows
}

// errTorn says that an outbox ends here, and that what follows is no record, or not the next one: the machine lost its
// power, and not all that was written had come to the disk.
var errTorn = errors.New("what follows is no record")

// openReader reads from a mark.
func openReader(dir string, from mark) (*reader, error) {
	f, err := os.Open(segmentName(dir, from.of))
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(from.at, io.SeekStart); err != nil {
		f.Close()
		return nil, err
	}
	return &reader{dir: dir, f: f, r: bufio.NewReaderSize(f, 1<<16), n: from.n}, nil
}

// openAfter reads what comes after so many records, and maybe some before; where that is not all there, what is.
func openAfter(dir string, n uint64) (*reader, error) {
	all, err := segmentsOf(dir)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, os.ErrNotExist
	}
	begins := func(n uint64) int { // the last segment that begins before what comes then; -1 where none is
		return slices.IndexFunc(append(all, ^uint64(0)), func(b uint64) bool { return b > n }) - 1
	}
	at := begins(n)
	var head *Record
	if at < 0 {
		if head, err = readHead(dir); err != nil {
			return nil, err
		}
		if head != nil {
			at = begins(head.N)
		}
		if at < 0 {
			return nil, errTorn
		}
	}
	r, err := openReader(dir, mark{n: all[at], of: all[at]})
	if err == nil {
		r.gone = head
	}
	return r, err
}

func (r *reader) close() { r.f.Close() }

// next answers io.EOF where there is no more now, and errTorn where there never will be.
func (r *reader) next() (Record, error) {
	var rec Record
	if gone := r.gone; gone != nil {
		r.gone = nil
		for r.n < gone.N { // a segment that was to be removed
			if _, err := r.line(); err != nil {
				return rec, err
			}
		}
		return *gone, nil
	}
	line, err := r.line()
	if err != nil {
		return rec, err
	}
	if json.Unmarshal(line, &rec) != nil || rec.N != r.n {
		return Record{}, errTorn
	}
	return rec, nil
}

// line reads one record as it stands, of the next segment where this one has ended.
func (r *reader) line() ([]byte, error) {
	for {
		b, err := r.r.ReadBytes('\n')
		r.part = append(r.part, b...)
		if err == nil {
			break
		}
		if err != io.EOF || len(r.part) > 0 {
			return nil, err
		}
		name := segmentName(r.dir, r.n)
		var f *os.File
		if r.n == 0 || name == r.f.Name() || r.as.as(func() (err error) {
			f, err = os.Open(name)
			return err
		}) != nil {
			return nil, err
		}
		r.f.Close()
		r.f = f
		r.r.Reset(f)
	}
	line := bytes.TrimSuffix(r.part, []byte("\n"))
	r.part = nil
	r.n++
	return line, nil
}

// lastRecords tells whether an outbox begins, and how it ended. One that cannot be read may have begun. One that does
// not end with an exit is not read further than its first record.
func lastRecords(dir string) (begun bool, exit *backend.Exit, err error) {
	r, err := openAfter(dir, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil, nil
	}
	if err == errTorn {
		return true, nil, nil
	}
	if err != nil {
		return false, nil, err
	}
	defer r.close()
	last, err := lastLine(dir)
	if err != nil {
		return false, nil, err
	}
	for ended := saysExit(last); ; {
		rec, err := r.next()
		if err == io.EOF {
			return begun, exit, nil
		}
		if err == errTorn {
			return true, nil, nil
		}
		if err != nil {
			return begun, exit, err
		}
		begun = begun || rec.Begun != nil || rec.Gone != nil
		if exit = rec.Exit; begun && !ended {
			return true, nil, nil
		}
	}
}

// saysExit says whether a record is an exit, or may be one.
func saysExit(line []byte) bool { return bytes.Contains(line, []byte(`"exit":{`)) }

// lastLine reads the last whole line of an outbox, with what of the line before it was read as well.
func lastLine(dir string) ([]byte, error) {
	all, err := segmentsOf(dir)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	f, err := os.Open(segmentName(dir, all[len(all)-1]))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	for n := int64(4096); ; n *= 4 {
		n = min(n, info.Size())
		b := make([]byte, n)
		if _, err := f.ReadAt(b, info.Size()-n); err != nil && err != io.EOF {
			return nil, err
		}
		end := bytes.LastIndexByte(b, '\n')
		if n == info.Size() || end > 0 && bytes.LastIndexByte(b[:end], '\n') >= 0 {
			return b, nil
		}
	}
}
