package store

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"math"
	"strconv"

	"hora/server/client"
)

// pointBytes is the size of a point in a block: step, milliseconds since 1970, value.
const pointBytes = 24

// blockPoints is how many points a block holds before the next one begins.
const blockPoints = 256

// AddPoints adds points of one metric of one rank, in the order in which they were reported. Their steps may go back:
// a job that goes on from what it saved reports some again. A block's row has the least and the greatest of its steps.
func AddPoints(tx *sql.Tx, job int64, name string, rank int, points []client.Point) error {
	for len(points) > 0 {
		var seq, count int64
		var block []byte
		var low, high float64
		var first, last int64
		err := tx.QueryRow(`SELECT seq, count, block, low, high, first, last FROM metrics
			WHERE job = ? AND name = ? AND rank = ? ORDER BY seq DESC LIMIT 1`, job, name, rank).
			Scan(&seq, &count, &block, &low, &high, &first, &last)
		switch {
		case errors.Is(err, sql.ErrNoRows), err == nil && count >= blockPoints:
			seq, count, block, low, high = seq+1, 0, nil, math.Inf(1), math.Inf(-1)
			first, last = math.MaxInt64, math.MinInt64
		case err != nil:
			return err
		}
		n := min(len(points), blockPoints-int(count))
		for _, p := range points[:n] {
			block = binary.LittleEndian.AppendUint64(block, uint64(p.Step))
			block = binary.LittleEndian.AppendUint64(block, uint64(p.At))
			block = binary.LittleEndian.AppendUint64(block, math.Float64bits(p.Value))
			first, last = min(first, p.Step), max(last, p.Step)
			if !math.IsNaN(p.Value) && !math.IsInf(p.Value, 0) {
				low, high = math.Min(low, p.Value), math.Max(high, p.Value)
			}
		}
		if _, err := tx.Exec(`INSERT OR REPLACE INTO metrics
			(job, name, rank, seq, first, last, count, low, high, final, block) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			job, name, rank, seq, first, last, count+int64(n), number(low), number(high), number(points[n-1].Value),
			block); err != nil {
			return err
		}
		points = points[n:]
	}
	return nil
}

// LastStep answers the step of the last point of a metric of one rank, -1 where there is none. It is not the greatest
// where steps go back.
func LastStep(tx *sql.Tx, job int64, name string, rank int) (int64, error) {
	query := "SELECT block FROM metrics WHERE job = ? AND name = ? AND rank = ? ORDER BY seq DESC LIMIT 1"
	var block []byte
	err := tx.QueryRow(query, job, name, rank).Scan(&block)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return -1, nil
	case err != nil:
		return 0, err
	case len(block) < pointBytes:
		return -1, nil
	}
	return int64(binary.LittleEndian.Uint64(block[len(block)-pointBytes:])), nil
}

// leastAndGreatest is a step that SQL has no words for: spanSteps takes it.
const leastAndGreatest = `-- first and last of metrics are a block's least and greatest step`

// spanSteps corrects the steps of blocks that an earlier release has written: those of their first and last point,
// which are not the least and the greatest where steps go back.
func spanSteps(tx *sql.Tx) error {
	type span struct {
		job         int64
		name        string
		rank        int
		seq         int64
		first, last int64
	}
	var wrong []span
	rows, err := tx.Query("SELECT job, name, rank, seq, first, last, block FROM metrics")
	if err != nil {
		return err
	}
	for rows.Next() {
		var s span
		var first, last int64
		var block sql.RawBytes
		if err = rows.Scan(&s.job, &s.name, &s.rank, &s.seq, &first, &last, &block); err != nil {
			break
		}
		s.first, s.last = math.MaxInt64, math.MinInt64
		for b := []byte(block); len(b) >= pointBytes; b = b[pointBytes:] {
			step := int64(binary.LittleEndian.Uint64(b))
			s.first, s.last = min(s.first, step), max(s.last, step)
		}
		if s.first != first || s.last != last {
			wrong = append(wrong, s)
		}
	}
	if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, s := range wrong {
		_, err := tx.Exec("UPDATE metrics SET first = ?, last = ? WHERE job = ? AND name = ? AND rank = ? AND seq = ?",
			s.first, s.last, s.job, s.name, s.rank, s.seq)
		if err != nil {
			return err
		}
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
	// Blocks are read where they have points of that range, or where the last number is no finite one.
	query := `SELECT name, rank, first, last, count, low, high, final,
		CASE WHEN ? > 0 AND first <= ? AND last >= ? OR abs(final) >= ? THEN block END FROM metrics WHERE job = ?`
	args := []any{most, last, first, math.MaxFloat64, job}
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
