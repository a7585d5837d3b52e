package node

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"hora/server/backend"
)

// What ranks find in their environment: where to say what hora.report says, and the folder whose files come back.
const (
	ReportVariable  = "HORA_REPORT"
	OutputsVariable = "HORA_OUTPUTS"
)

// sink takes what hora run writes to one of its streams: whole lines, a Write each, with the rank's tag.
type sink struct {
	k   *keeper
	err bool
}

// AnyBytes says that hora run is to change nothing of what ranks write.
func (s *sink) AnyBytes() {}

func (s *sink) Write(p []byte) (int, error) {
	now := time.Now().UTC()
	s.k.mu.Lock()
	for text := range strings.SplitSeq(strings.TrimSuffix(string(p), "\n"), "\n") {
		s.k.lines++
		text = s.k.mask.line(text)
		l := backend.Line{N: s.k.lines, At: now, Rank: -1, Err: s.err}
		if rank, rest, ok := untag(text); ok {
			l.Rank, text = rank, rest
		} else if own, ok := strings.CutPrefix(text, "hora: "); ok && s.err {
			s.k.last = own
		}
		l.Say(text)
		s.k.pending = append(s.k.pending, l)
	}
	full := len(s.k.pending) >= 1000
	if s.k.timer == nil {
		s.k.timer = time.AfterFunc(flushAfter, s.k.flush)
	}
	s.k.mu.Unlock()
	if full {
		s.k.flush()
	}
	return len(p), nil
}

// quote takes what another node's part of the job wrote, whose own output nobody follows any more.
func (k *keeper) quote(all []backend.Line) {
	now := time.Now().UTC()
	k.mu.Lock()
	for _, l := range all {
		k.lines++
		l.N, l.At = k.lines, now // the lines of a job go up in both
		k.pending = append(k.pending, l)
	}
	k.mu.Unlock()
	k.flush()
}

// flushAfter is how long a line waits for others to go with it.
const flushAfter = 10 * time.Millisecond

// untag takes "[3]<stdout>:" off a line.
func untag(text string) (rank int, rest string, ok bool) {
	if !strings.HasPrefix(text, "[") {
		return 0, "", false
	}
	number, rest, ok := strings.Cut(text[1:], "]<std")
	if !ok {
		return 0, "", false
	}
	rank, err := strconv.Atoi(number)
	if err != nil {
		return 0, "", false
	}
	for _, stream := range []string{"out>:", "err>:"} {
		if rest, ok := strings.CutPrefix(rest, stream); ok {
			return rank, rest, true
		}
	}
	return 0, "", false
}

// flush writes the lines that wait into the outbox.
func (k *keeper) flush() {
	k.flushing.Lock() // lines stay in order
	defer k.flushing.Unlock()
	k.mu.Lock()
	lines := k.pending
	k.pending, k.timer = nil, nil
	k.mu.Unlock()
	if len(lines) > 0 {
		_ = k.box.put(Record{Lines: lines})
	}
}

// events takes what hora run has written about itself since the last time.
func (k *keeper) events() {
	f, err := os.Open(filepath.Join(k.dir, eventsFile))
	if err != nil {
		return
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, k.eventAt, 1<<40))
	if err != nil {
		return
	}
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return
		}
		if line := b[:i]; json.Valid(line) {
			_ = k.box.put(Record{Event: bytes.Clone(k.mask.event(line))})
			k.learn(line)
		}
		k.eventAt += int64(i) + 1
		b = b[i+1:]
	}
}

// restless is a file that was not left alone for a second when it was last looked at.
type restless struct {
	since time.Time // it was found so, or was sent all the same
	sent  int       // how often it was
}

// restlessMost bounds how long such a file is waited for.
const restlessMost = 15 * time.Minute

// wait is how long it is waited for: the larger the longer, since all of it is sent and kept each time, and twice as
// long after each.
func (r restless) wait(size int64) time.Duration {
	first := min(5*time.Second+time.Duration(size>>22)*time.Second, restlessMost)
	return min(first<<min(r.sent, 10), restlessMost)
}

// outputs tells of files that have come or changed. While the job runs a file should have been left alone for a second;
// one that is written all the time comes back as it is then.
func (k *keeper) outputs(last bool) {
	now, found := time.Now(), map[string]restless{} // what is not found again has gone, or rests
	_ = eachOutput(k.dir, func(below string, info fs.FileInfo) {
		was, known := k.seen[below]
		same, young := known && was.is(stampOf(info)), !last && now.Sub(info.ModTime()) < time.Second
		if young {
			r, known := k.restless[below]
			if !known {
				r.since = now
			}
			if same || now.Sub(r.since) < r.wait(info.Size()) {
				found[below] = r
				return
			}
			found[below] = restless{now, r.sent + 1}
		}
		if same {
			return
		}
		k.seen[below] = stampOf(info)
		_ = k.box.put(Record{Artifact: &Artifact{below, info.Size()}})
	})
	k.restless = found
}
