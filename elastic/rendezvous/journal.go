package rendezvous

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"hora/elastic"
	"hora/internal/wire"
)

// Journal keeps what has happened to a coordinator, each event before it is acted on. A coordinator that is started
// again lives through the same events: the machine and the store are what they were, and workers come back to it.
// It outlives the process, not the host: nothing is synced. Only the coordinator's own goroutine uses it.
type Journal struct {
	file   *os.File
	orders uint64   // of the launcher, that are in it
	past   []record // to be lived through; nil afterwards
	broken error    // the first failed write: no later coordinator can take over
	told   bool     // somebody knows
	wrote  func()   // hears of each record before it is acted on; nil outside of tests
}

// record is an entry of a journal, decoded.
type record struct {
	kind         uint8
	worker       elastic.Worker
	hello        Hello
	at           time.Time
	message      uint8
	body         []byte
	rank         int
	process      string
	host, reason string
	n            uint64
}

// The kinds of record.
const (
	recordJob uint8 = 1 + iota
	recordConnected
	recordRequest
	recordGone
	recordLate
	recordDoomed
	recordExited
	recordDrained
	recordAbsent
	recordPresent
	recordComing
	recordMore
	recordCame
	recordUnheld
)

// ErrInUse is what OpenJournal fails with while another process has the journal open.
var ErrInUse = errors.New("is in use by another job")

// OpenJournal opens the journal of a job in a directory. fresh begins a new one; else it goes on with what is there,
// and a record that was cut off by the end of its writer is dropped. Only one process has a journal open.
func OpenJournal(dir, job string, fresh bool) (*Journal, error) {
	path := filepath.Join(dir, "journal")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the coordinator's state: %w: give a directory that you may write to", err)
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		f.Close()
		return nil, fmt.Errorf("open the coordinator's state: %s %w: give each job a directory of its own", path, ErrInUse)
	}
	j := &Journal{file: f}
	if fresh {
		err = f.Truncate(0)
		j.append(recordJob, func(b []byte) []byte { return wire.AppendString(b, job) })
		err = errors.Join(err, j.broken)
	} else {
		err = j.read(job)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("read the coordinator's state in %s: %w", path, err)
	}
	return j, nil
}

// Orders returns how many orders of the launcher the journal holds.
func (j *Journal) Orders() uint64 { return j.orders }

// Close closes the file.
func (j *Journal) Close() error { return j.file.Close() }

func (j *Journal) read(job string) error {
	rd := bufio.NewReader(j.file)
	at := int64(0)
	j.past = []record{}
	for first := true; ; first = false {
		kind, body, err := wire.ReadMessage(rd, nil, maxMessage+1<<16)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			if first {
				return errors.New("it is empty")
			}
			break
		}
		if err != nil {
			return err
		}
		e, err := decodeRecord(kind, body)
		switch {
		case err != nil:
			return fmt.Errorf("record at byte %d: %w", at, err)
		case first && (kind != recordJob || e.host != job):
			return fmt.Errorf("it is of job %q and not of %q", e.host, job)
		case !first:
			j.past = append(j.past, e)
		}
		j.orders = max(j.orders, e.n)
		at += wire.MessageHeaderBytes + int64(len(body))
	}
	if err := j.file.Truncate(at); err != nil {
		return err
	}
	_, err := j.file.Seek(at, io.SeekStart)
	return err
}

func (j *Journal) append(kind uint8, fill func(b []byte) []byte) {
	if j.broken == nil {
		_, j.broken = j.file.Write(message(kind, 128, fill))
	}
	if j.wrote != nil {
		j.wrote()
	}
}

func decodeRecord(kind uint8, body []byte) (record, error) {
	e := record{kind: kind}
	d := wire.NewDecoder(body)
	switch kind {
	case recordJob:
		e.host = d.String(maxText)
	case recordConnected:
		e.worker, e.at = elastic.Worker(d.U64()), time.Unix(0, d.I64())
		e.hello = Hello{
			Job: d.String(maxText), Rank: d.Int(-1, maxRanks), Size: d.Int(0, maxRanks),
			Host: d.String(maxText), Process: d.String(maxProcess), session: d.String(maxSession),
		}
	case recordRequest:
		e.worker, e.message, e.body = elastic.Worker(d.U64()), d.U8(), d.Bytes(maxMessage)
	case recordGone, recordLate, recordDoomed, recordUnheld:
		e.worker, e.reason = elastic.Worker(d.U64()), d.String(maxText)
	case recordExited:
		e.n, e.rank, e.process = d.U64(), d.Int(-1, maxRanks), d.String(maxProcess)
		e.host, e.reason = d.String(maxText), d.String(maxText)
	case recordDrained:
		e.n, e.rank, e.process, e.reason = d.U64(), d.Int(-1, maxRanks), d.String(maxProcess), d.String(maxText)
	case recordAbsent, recordPresent:
		e.n, e.rank = d.U64(), d.Int(-1, maxRanks)
	case recordComing, recordMore, recordCame:
		e.n, e.rank, e.process = d.U64(), d.Int(-1, maxRanks), d.String(maxProcess)
	default:
		return e, fmt.Errorf("it is of unknown kind %d", kind)
	}
	return e, d.Done()
}

// note writes an event down before anything follows from it. What changes nothing is left out.
func (d *desk) note(e any) {
	j := d.s.cfg.Journal
	if j == nil {
		return
	}
	ended := func(kind uint8, c *conn, reason string) {
		j.append(kind, func(b []byte) []byte { return wire.AppendString(wire.AppendU64(b, uint64(c.worker)), reason) })
	}
	order := func(kind uint8, n uint64, rank int, text ...string) {
		j.append(kind, func(b []byte) []byte {
			b = wire.AppendI64(wire.AppendU64(b, n), int64(rank))
			for _, s := range text {
				b = wire.AppendString(b, s)
			}
			return b
		})
	}
	switch e := e.(type) {
	case connected:
		h := &e.c.hello
		if h.returns {
			return
		}
		j.append(recordConnected, func(b []byte) []byte {
			b = wire.AppendI64(wire.AppendU64(b, uint64(d.last+1)), e.at.UnixNano())
			b = wire.AppendString(b, h.Job)
			b = wire.AppendI64(wire.AppendI64(b, int64(h.Rank)), int64(h.Size))
			return wire.AppendString(wire.AppendString(wire.AppendString(b, h.Host), h.Process), h.session)
		})
	case received:
		switch e.req.kind {
		case kindJoin, kindPut, kindAdd, kindDelete, kindCancel, kindLeave, kindFinish, kindDrain, kindRecovered:
			if d.workers[e.c.worker] == e.c {
				j.append(recordRequest, func(b []byte) []byte {
					return wire.AppendBytes(wire.AppendU8(wire.AppendU64(b, uint64(e.c.worker)), e.req.kind), e.body)
				})
			}
		}
	case gone:
		ended(recordGone, e.c, e.reason)
	case late:
		ended(recordLate, e.c, e.reason)
	case doomed:
		ended(recordDoomed, e.c, e.reason)
	case exited:
		j.append(recordExited, func(b []byte) []byte {
			b = wire.AppendString(wire.AppendI64(wire.AppendU64(b, e.n), int64(e.rank)), e.process)
			return wire.AppendString(wire.AppendString(b, e.host), e.reason)
		})
	case drained:
		order(recordDrained, e.n, e.rank, e.process, e.reason)
	case absent:
		kind := recordPresent
		if e.is {
			kind = recordAbsent
		}
		order(kind, e.n, e.rank)
	case coming:
		kind := recordCame
		switch {
		case e.is && e.more:
			kind = recordMore
		case e.is:
			kind = recordComing
		}
		order(kind, e.n, e.rank, e.process)
	case unheld:
		ended(recordUnheld, e.c, "")
	}
}

// replay lives through what the journal holds. Workers that are not lost by its end are awaited.
func (d *desk) replay() {
	j := d.s.cfg.Journal
	if j == nil {
		return
	}
	for _, e := range j.past {
		d.relive(e)
	}
	j.past = nil
}

func (d *desk) relive(e record) {
	c := d.ghosts[e.worker]
	if c == nil && e.worker > 0 && e.kind != recordConnected {
		return
	}
	switch e.kind {
	case recordConnected:
		c = &conn{hello: e.hello, rank: -1}
		d.ghosts[e.worker] = c
		d.act(connected{c: c, at: e.at, worker: e.worker})
	case recordRequest:
		if req, err := decodeRequest(e.message, e.body); err == nil {
			d.act(received{c, req, e.body})
		}
	case recordGone:
		d.act(gone{c, e.reason})
	case recordLate:
		d.act(late{c, e.reason})
	case recordDoomed:
		d.act(doomed{c, e.reason})
	case recordExited:
		d.act(exited{e.rank, e.process, e.host, e.reason, e.n})
	case recordDrained:
		d.act(drained{e.rank, e.process, e.reason, e.n})
	case recordAbsent, recordPresent:
		d.act(absent{e.rank, e.kind == recordAbsent, e.n})
	case recordComing, recordMore, recordCame:
		d.act(coming{e.rank, e.process, e.kind != recordCame, e.kind == recordMore, e.n})
	case recordUnheld:
		d.act(unheld{c})
	}
}

// Order is Exited, Drain, Absent or Coming by number: a launcher repeats those that the journal of a coordinator it
// starts again does not hold.
type Order struct {
	N            uint64
	Kind         OrderKind
	Rank         int
	Process      string // of all but Absent; see Hello
	Host, Reason string
	Is, More     bool
}

// OrderKind says what an Order stands for.
type OrderKind uint8

// The kinds of order.
const (
	OrderExited OrderKind = iota
	OrderDrain
	OrderAbsent
	OrderComing
)

// Order carries one out.
func (s *Server) Order(o Order) {
	switch o.Kind {
	case OrderExited:
		s.post(exited{o.Rank, o.Process, o.Host, o.Reason, o.N})
	case OrderDrain:
		s.post(drained{o.Rank, o.Process, o.Reason, o.N})
	case OrderAbsent:
		s.post(absent{o.Rank, o.Is, o.N})
	case OrderComing:
		s.post(coming{o.Rank, o.Process, o.Is, o.More, o.N})
	}
}
