package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"hora/server/client"
	"hora/storage"
)

// compressFrom is the length from which a block of lines is compressed.
const compressFrom = 512

var (
	packer, _   = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	unpacker, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(1<<30))
)

// AddLines adds a block of lines of one attempt. Their numbers go up.
func AddLines(tx *sql.Tx, job int64, attempt int, lines []client.Line) error {
	if len(lines) == 0 {
		return nil
	}
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	for _, l := range lines {
		if err := out.Encode(l); err != nil {
			return err
		}
	}
	codec, block := 0, b.Bytes()
	if len(block) >= compressFrom {
		codec, block = 1, packer.EncodeAll(block, nil)
	}
	first, last := lines[0], lines[len(lines)-1]
	_, err := tx.Exec("INSERT INTO lines (job, attempt, first, last, begins, ends, codec, block) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		job, attempt, int64(first.Number), int64(last.Number), first.At.UnixNano(), last.At.UnixNano(), codec, block)
	return err
}

// AddLast keeps lines after all that an attempt has written, and numbers them.
func AddLast(tx *sql.Tx, job int64, attempt int, lines []client.Line) error {
	if len(lines) == 0 {
		return nil
	}
	last := uint64(0)
	if err := tx.QueryRow("SELECT coalesce(max(last), 0) FROM lines WHERE job = ? AND attempt = ?", job, attempt).Scan(&last); err != nil {
		return err
	}
	for i := range lines {
		lines[i].Attempt, lines[i].Number = attempt, last+uint64(i)+1
	}
	return AddLines(tx, job, attempt, lines)
}

// Cursor is a place in a job's output: after this line of this attempt.
type Cursor struct {
	Attempt int
	Line    uint64
}

// Block is lines of one attempt that follow each other, as they are kept.
type Block struct {
	Attempt     int
	First, Last uint64
	job         int64
	codec       int
	packed      []byte
}

// After reports whether all of it comes after a place.
func (b *Block) After(c Cursor) bool {
	return b.Attempt > c.Attempt || b.Attempt == c.Attempt && b.First > c.Line
}

// count is how many lines it has.
func (b *Block) count() int { return int(b.Last - b.First + 1) }

// Lines unpacks it.
func (b *Block) Lines() ([]client.Line, error) { return unpack(b.job, b.codec, b.packed) }

// Rest unpacks what of it comes after a place and is not older than since, and answers the place after that.
func (b *Block) Rest(c Cursor, since time.Time) (lines []client.Line, next Cursor, err error) {
	next = c
	all, err := b.Lines()
	for _, l := range all {
		if l.Attempt < c.Attempt || l.Attempt == c.Attempt && l.Number <= c.Line {
			continue
		}
		next = Cursor{l.Attempt, l.Number}
		if !l.At.Before(since) {
			lines = append(lines, l)
		}
	}
	return lines, next, err
}

// Blocks reads the blocks that have lines after a place, with about limit lines. since leaves out those that are older.
func (s *Store) Blocks(ctx context.Context, job int64, c Cursor, since time.Time, limit int) (all []Block, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		// The block that the place lies in, by its own key: a condition on last would read all that come before.
		rows, err := tx.Query(`SELECT attempt, first, last, codec, block FROM lines WHERE job = ?1 AND (attempt, first) >=
			(?2, (SELECT coalesce(max(first), 0) FROM lines WHERE job = ?1 AND attempt = ?2 AND first <= ?3))
			AND (attempt > ?2 OR last > ?3) AND ends >= ?4 ORDER BY attempt, first`,
			job, c.Attempt, int64(c.Line), nanos(since))
		if err != nil {
			return err
		}
		defer rows.Close()
		for have := 0; have < limit && rows.Next(); {
			b := Block{job: job}
			if err := rows.Scan(&b.Attempt, &b.First, &b.Last, &b.codec, &b.packed); err != nil {
				return err
			}
			have += b.count()
			all = append(all, b)
		}
		return rows.Err()
	})
	return all, err
}

// Lines reads what comes after a place, about limit lines, and answers the place after them, and whether there may be
// more. since leaves out what is older: of as many lines as were read there may be few, or none, and more after them.
func (s *Store) Lines(
	ctx context.Context, job int64, c Cursor, since time.Time, limit int,
) (lines []client.Line, next Cursor, more bool, err error) {
	blocks, err := s.Blocks(ctx, job, c, since, limit)
	next = c
	read := 0
	for i := 0; i < len(blocks) && err == nil; i++ {
		var some []client.Line
		some, next, err = blocks[i].Rest(next, since)
		lines = append(lines, some...)
		read += blocks[i].count()
	}
	return lines, next, read >= limit, err
}

// Tail reads the last lines of a job, and the place after them.
func (s *Store) Tail(ctx context.Context, job int64, most int) (lines []client.Line, next Cursor, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT codec, block FROM lines WHERE job = ? ORDER BY attempt DESC, first DESC", job)
		if err != nil {
			return err
		}
		defer rows.Close()
		for len(lines) < most && rows.Next() {
			var codec int
			var block []byte
			if err := rows.Scan(&codec, &block); err != nil {
				return err
			}
			part, err := unpack(job, codec, block)
			if err != nil {
				return err
			}
			lines = append(part, lines...)
		}
		return rows.Err()
	})
	lines = lines[max(0, len(lines)-most):]
	if n := len(lines); n > 0 {
		next = Cursor{lines[n-1].Attempt, lines[n-1].Number}
	}
	return lines, next, err
}

// unpack reads a block of lines.
func unpack(job int64, codec int, block []byte) (lines []client.Line, err error) {
	if codec == 1 {
		if block, err = unpacker.DecodeAll(block, nil); err != nil {
			return nil, fmt.Errorf("read the lines of job %d: %w", job, err)
		}
	}
	in := json.NewDecoder(bytes.NewReader(block))
	for {
		var l client.Line
		if err := in.Decode(&l); err == io.EOF {
			return lines, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the lines of job %d: %w", job, err)
		}
		lines = append(lines, l)
	}
}

// Compact makes one block of the many small ones of an attempt that has ended.
func Compact(tx *sql.Tx, job int64, attempt int) error {
	rows, err := tx.Query("SELECT codec, block FROM lines WHERE job = ? AND attempt = ? ORDER BY first", job, attempt)
	if err != nil {
		return err
	}
	var all []client.Line
	blocks := 0
	for rows.Next() {
		var codec int
		var block []byte
		if err = rows.Scan(&codec, &block); err != nil {
			break
		}
		part, bad := unpack(job, codec, block)
		if err = bad; err != nil {
			break
		}
		blocks++
		all = append(all, part...)
		if len(all) > compactMost {
			break
		}
	}
	if err = errors.Join(err, rows.Err(), rows.Close()); err != nil || blocks < 16 || len(all) > compactMost {
		return err // a long output came in large blocks anyway
	}
	if _, err := tx.Exec("DELETE FROM lines WHERE job = ? AND attempt = ?", job, attempt); err != nil {
		return err
	}
	for len(all) > 0 {
		n := min(len(all), 4000)
		if err := AddLines(tx, job, attempt, all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

const compactMost = 100_000

// pointBytes is the size of a point in a block: step, milliseconds since 1970, value.
const pointBytes = 24

// blockPoints is how many points a block holds before the next one begins.
const blockPoints = 256

// AddPoints adds points of one metric of one rank, in the order in which they were reported.
func AddPoints(tx *sql.Tx, job int64, name string, rank int, points []client.Point) error {
	for len(points) > 0 {
		var seq, count int64
		var block []byte
		var low, high float64
		var first int64
		err := tx.QueryRow("SELECT seq, count, block, low, high, first FROM metrics WHERE job = ? AND name = ? AND rank = ? ORDER BY seq DESC LIMIT 1", job, name, rank).Scan(&seq, &count, &block, &low, &high, &first)
		switch {
		case errors.Is(err, sql.ErrNoRows), err == nil && count >= blockPoints:
			seq, count, block, low, high, first = seq+1, 0, nil, math.Inf(1), math.Inf(-1), points[0].Step
		case err != nil:
			return err
		}
		n := min(len(points), blockPoints-int(count))
		for _, p := range points[:n] {
			block = binary.LittleEndian.AppendUint64(block, uint64(p.Step))
			block = binary.LittleEndian.AppendUint64(block, uint64(p.At))
			block = binary.LittleEndian.AppendUint64(block, math.Float64bits(p.Value))
			if !math.IsNaN(p.Value) && !math.IsInf(p.Value, 0) {
				low, high = math.Min(low, p.Value), math.Max(high, p.Value)
			}
		}
		last := points[n-1]
		if _, err := tx.Exec("INSERT OR REPLACE INTO metrics (job, name, rank, seq, first, last, count, low, high, final, block) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			job, name, rank, seq, first, last.Step, count+int64(n), number(low), number(high), number(last.Value),
			block); err != nil {
			return err
		}
		points = points[n:]
	}
	return nil
}

// number keeps what SQLite would make NULL of, and what JSON has no word for. The block has the value itself.
func number(v float64) float64 {
	switch {
	case math.IsNaN(v), math.IsInf(v, 1):
		return math.MaxFloat64
	case math.IsInf(v, -1):
		return -math.MaxFloat64
	}
	return v
}

// Metrics reads the metrics of a job; with points, those of the steps from first to last, at most most of each, where
// one stands for its neighbours.
func (s *Store) Metrics(
	ctx context.Context, job int64, name string, first, last int64, most int,
) (all []client.Metric, err error) {
	query, args := "SELECT name, rank, first, last, count, low, high, final, block FROM metrics WHERE job = ?", []any{job}
	if name != "" {
		query, args = query+" AND name = ?", append(args, name)
	}
	query += " ORDER BY name, rank, seq"
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query(query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var m client.Metric
			var begin, end int64
			var block []byte
			if err := rows.Scan(&m.Name, &m.Rank, &begin, &end, &m.Count, &m.Min, &m.Max, &m.Last, &block); err != nil {
				return err
			}
			m.LastIs = lastIs(block)
			if n := len(all); n == 0 || all[n-1].Name != m.Name || all[n-1].Rank != m.Rank {
				all = append(all, m)
			} else {
				was := &all[n-1]
				was.Count, was.Last, was.LastIs = was.Count+m.Count, m.Last, m.LastIs
				was.Min, was.Max = math.Min(was.Min, m.Min), math.Max(was.Max, m.Max)
			}
			if most > 0 && begin <= last && end >= first {
				all[len(all)-1].Points = appendPoints(all[len(all)-1].Points, block, first, last)
			}
		}
		return rows.Err()
	})
	for i := range all {
		all[i].Points = thin(all[i].Points, most)
	}
	return all, err
}

// lastIs names the last number of a block, where it is no finite one.
func lastIs(block []byte) string {
	if len(block) < 8 {
		return ""
	}
	v := math.Float64frombits(binary.LittleEndian.Uint64(block[len(block)-8:]))
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func appendPoints(points []client.Point, block []byte, first, last int64) []client.Point {
	for ; len(block) >= pointBytes; block = block[pointBytes:] {
		p := client.Point{
			Step:  int64(binary.LittleEndian.Uint64(block)),
			At:    int64(binary.LittleEndian.Uint64(block[8:])),
			Value: math.Float64frombits(binary.LittleEndian.Uint64(block[16:])),
		}
		// JSON has no word for what is no number or no finite one.
		if p.Step >= first && p.Step <= last && !math.IsNaN(p.Value) && !math.IsInf(p.Value, 0) {
			points = append(points, p)
		}
	}
	return points
}

// thin lets one point, the last of a bucket, stand for all of it, with their least and greatest.
func thin(points []client.Point, most int) []client.Point {
	if most <= 0 || len(points) <= most {
		return points
	}
	out := make([]client.Point, 0, most)
	for i := range most {
		part := points[i*len(points)/most : (i+1)*len(points)/most]
		p := part[len(part)-1]
		p.Min, p.Max = p.Value, p.Value
		for _, q := range part {
			p.Min, p.Max = math.Min(p.Min, q.Value), math.Max(p.Max, q.Value)
		}
		out = append(out, p)
	}
	return out
}

// SetArtifact notes a file of outputs/.
func SetArtifact(tx *sql.Tx, job int64, a client.Artifact) error {
	_, err := tx.Exec("INSERT OR REPLACE INTO artifacts (job, path, size, hash, at) VALUES (?, ?, ?, ?, ?)", job, a.Path, a.Size, a.Hash, a.At.UnixNano())
	return err
}

// Artifacts lists what came back of outputs/.
func (s *Store) Artifacts(ctx context.Context, job int64) (all []client.Artifact, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT path, size, hash, at FROM artifacts WHERE job = ? ORDER BY path", job)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var a client.Artifact
			var when int64
			if err := rows.Scan(&a.Path, &a.Size, &a.Hash, &when); err != nil {
				return err
			}
			a.At = at(when)
			all = append(all, a)
		}
		return rows.Err()
	})
	return all, err
}

// BlobFile is where the content with a hash lies.
func (s *Store) BlobFile(hash string) string {
	return filepath.Join(s.dir, "blobs", hash[:2], hash[2:])
}

// TakeBlob keeps what is read under its hash, whatever its size.
func (s *Store) TakeBlob(ctx context.Context, r io.Reader) (hash string, size int64, err error) {
	return s.TakeBlobAs(ctx, r, "")
}

// OtherHash is for content that has another hash than was said.
type OtherHash struct{ Has, Said string }

func (o *OtherHash) Error() string {
	return fmt.Sprintf("the content's hash is %s and not %s: send it again", o.Has, o.Said)
}

// TakeBlobAs keeps it where it has this hash, or any where that is empty. It is read once and written as it comes.
func (s *Store) TakeBlobAs(ctx context.Context, r io.Reader, said string) (hash string, size int64, err error) {
	h := sha256.New()
	called := func() (string, error) {
		hash = hex.EncodeToString(h.Sum(nil))
		if said != "" && hash != said {
			return "", &OtherHash{hash, said}
		}
		if s.HasBlob(ctx, hash) {
			return "", nil
		}
		name := s.BlobFile(hash)
		return name, s.makeFolder(filepath.Dir(name))
	}
	all := filepath.Join(s.dir, "blobs")
	size, err = storage.Local{}.Stream(ctx, all, 0o600, io.TeeReader(r, h), called)
	if err != nil {
		return "", 0, plain(err)
	}
	return hash, size, nil
}

// makeFolder makes one of the folders that content lies in, so that it outlives a crash.
func (s *Store) makeFolder(name string) error {
	err := os.Mkdir(name, 0o700)
	switch {
	case errors.Is(err, os.ErrExist):
		return nil
	case err != nil:
		return err
	}
	return storage.SyncFolder(filepath.Dir(name))
}

// dropParts removes what a server has left that was killed while content came.
func dropParts(dir string) error {
	all, err := os.ReadDir(filepath.Join(dir, "blobs"))
	for _, e := range all {
		if strings.HasPrefix(e.Name(), storage.PartPrefix) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, "blobs", e.Name())))
		}
	}
	return err
}
