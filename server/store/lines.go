package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/klauspost/compress/zstd"

	"hora/server/client"
)

// compressFrom is the length from which a block of lines is compressed.
const compressFrom = 512

var (
	packer, _   = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	unpacker, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(1<<30))
)

// AddLines adds a block of lines of one attempt. Their numbers go up. A job that prints a line now and then would have
// a row for each: small blocks become a larger one as they come.
func AddLines(tx *sql.Tx, job int64, attempt int, lines []client.Line) error {
	if len(lines) == 0 {
		return nil
	}
	err := addBlock(tx, job, attempt, lines)
	for _, size := range sizes {
		if err != nil || len(lines) >= size.most {
			break
		}
		var more bool
		if more, err = gather(tx, job, attempt, size.least, size.most); !more {
			break
		}
	}
	return err
}

// sizes are how many lines those blocks have that become one.
var sizes = []struct{ least, most int }{{1, 64}, {64, 1024}}

const (
	gathered    = 16      // blocks that become one
	gatherBytes = 1 << 18 // which they have together at most
)

// gather makes one block of the last of an attempt, where they all have that many lines, and says whether it did.
func gather(tx *sql.Tx, job int64, attempt, least, most int) (did bool, err error) {
	rows, err := tx.Query("SELECT first, last, length(block) FROM lines WHERE job = ? AND attempt = ? ORDER BY first DESC LIMIT ?",
		job, attempt, gathered)
	if err != nil {
		return false, err
	}
	var first int64
	fit, size := 0, 0
	for rows.Next() {
		var last int64
		var length int
		if err = rows.Scan(&first, &last, &length); err != nil {
			break
		}
		if n := int(last - first + 1); n >= least && n < most {
			fit, size = fit+1, size+length
		}
	}
	if err = errors.Join(err, rows.Err(), rows.Close()); err != nil || fit < gathered || size > gatherBytes {
		return false, err
	}
	lines, _, err := blocksFrom(tx, job, attempt, first, math.MaxInt)
	if err == nil {
		_, err = tx.Exec("DELETE FROM lines WHERE job = ? AND attempt = ? AND first >= ?", job, attempt, first)
	}
	if err == nil {
		err = addBlock(tx, job, attempt, lines)
	}
	return err == nil, err
}

// blocksFrom reads an attempt's lines from a block's first one, until there are more than most, and says how many
// blocks they were in.
func blocksFrom(tx *sql.Tx, job int64, attempt int, first int64, most int) (all []client.Line, blocks int, err error) {
	rows, err := tx.Query("SELECT codec, block FROM lines WHERE job = ? AND attempt = ? AND first >= ? ORDER BY first",
		job, attempt, first)
	if err != nil {
		return nil, 0, err
	}
	for len(all) <= most && rows.Next() {
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
	}
	return all, blocks, errors.Join(err, rows.Err(), rows.Close())
}

func addBlock(tx *sql.Tx, job int64, attempt int, lines []client.Line) error {
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

// LastLine is the number of the last line of an attempt; 0 where it has written none.
func (s *Store) LastLine(ctx context.Context, job int64, attempt int) (n uint64, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		query := "SELECT coalesce(max(last), 0) FROM lines WHERE job = ? AND attempt = ?"
		return tx.QueryRow(query, job, attempt).Scan(&n)
	})
	return n, err
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
	all, blocks, err := blocksFrom(tx, job, attempt, 0, compactMost)
	if err != nil || blocks < 16 || len(all) > compactMost {
		return err // a long output came in large blocks anyway
	}
	if _, err := tx.Exec("DELETE FROM lines WHERE job = ? AND attempt = ?", job, attempt); err != nil {
		return err
	}
	for len(all) > 0 {
		n := min(len(all), 4000)
		if err := addBlock(tx, job, attempt, all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

const compactMost = 100_000
