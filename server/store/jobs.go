package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"hora/job"
	"hora/server/client"
)

// ErrNotFound is for a job that is not there.
var ErrNotFound = errors.New("there is no such job")

// NewJob adds a job and answers its number. document is j.Document as JSON: who submits makes it before its turn comes,
// since what is done within a transaction holds up all others.
func NewJob(tx *sql.Tx, j *client.Job, document []byte) (int64, error) {
	r, err := tx.Exec("INSERT INTO jobs (state, project, pool, user, name, priority, queued, document) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		j.State, j.Document.Project, j.Document.Pool, j.User, j.Document.Spec.Name, *j.Document.Priority,
		j.Queued.UnixNano(), string(document))
	if err != nil {
		return 0, err
	}
	return r.LastInsertId()
}

// SetState changes a job's state; an end gets its time, exit code and sentence. What was submitted stays as it is.
func SetState(tx *sql.Tx, j *client.Job) error {
	_, err := tx.Exec("UPDATE jobs SET state = ?, started = ?, ended = ?, code = ?, text = ? WHERE id = ?",
		j.State, nanos(j.Started), nanos(j.Ended), j.ExitCode, j.Text, j.ID)
	if err == nil && j.State.Ended() && len(j.Document.Credentials) > 0 {
		err = returned(tx, j.ID)
	}
	return err
}

// SetDocument changes what was submitted: its priority, or the releases that an environment took. document is
// j.Document as JSON.
func SetDocument(tx *sql.Tx, j *client.Job, document []byte) error {
	_, err := tx.Exec("UPDATE jobs SET priority = ?, document = ? WHERE id = ?", *j.Document.Priority, string(document), j.ID)
	return err
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func at(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// NewAttempt adds an attempt.
func NewAttempt(tx *sql.Tx, job int64, a *client.Attempt) error {
	shares, err := json.Marshal(a.Shares)
	if err != nil {
		return err
	}
	_, err = tx.Exec("INSERT INTO attempts (job, number, started, shares) VALUES (?, ?, ?, ?)", job, a.Number, a.Started.UnixNano(), string(shares))
	return err
}

// EndAttempt notes how an attempt ended.
func EndAttempt(tx *sql.Tx, job int64, a *client.Attempt) error {
	_, err := tx.Exec("UPDATE attempts SET ended = ?, outcome = ?, code = ?, text = ? WHERE job = ? AND number = ?", nanos(a.Ended), a.Outcome, a.Code, a.Text, job, a.Number)
	return err
}

// SetStop notes that an attempt was told to end.
func SetStop(tx *sql.Tx, job int64, attempt int, why client.Outcome) error {
	_, err := tx.Exec("UPDATE attempts SET stop = ? WHERE job = ? AND number = ?", why, job, attempt)
	return err
}

// SetShares notes that an elastic job has other slots.
func SetShares(tx *sql.Tx, job int64, attempt int, shares []client.Share) error {
	b, err := json.Marshal(shares)
	if err != nil {
		return err
	}
	_, err = tx.Exec("UPDATE attempts SET shares = ? WHERE job = ? AND number = ?", string(b), job, attempt)
	return err
}

// Taken notes how many records of an attempt's outbox are in the store.
func Taken(tx *sql.Tx, job int64, attempt int, n uint64) error {
	_, err := tx.Exec("UPDATE attempts SET taken = ? WHERE job = ? AND number = ?", int64(n), job, attempt)
	return err
}

// Opened notes that all processes of an attempt had come.
func Opened(tx *sql.Tx, job int64, attempt int) error {
	_, err := tx.Exec("UPDATE attempts SET opened = 1 WHERE job = ? AND number = ?", job, attempt)
	return err
}

// PartTaken reads how many records of a part's outbox are in the store: that of the process that began then.
func PartTaken(tx *sql.Tx, job int64, attempt int, node string, begun time.Time) (n uint64, err error) {
	query := "SELECT taken FROM parts WHERE job = ? AND attempt = ? AND node = ? AND begun = ?"
	if err = tx.QueryRow(query, job, attempt, node, nanos(begun)).Scan(&n); errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return n, err
}

// SetPartTaken notes it.
func SetPartTaken(tx *sql.Tx, job int64, attempt int, node string, begun time.Time, n uint64) error {
	_, err := tx.Exec("INSERT OR REPLACE INTO parts (job, attempt, node, begun, taken) VALUES (?, ?, ?, ?, ?)",
		job, attempt, node, nanos(begun), int64(n))
	return err
}

// Forgotten notes that nothing of an attempt is left on its nodes.
func Forgotten(tx *sql.Tx, job int64, attempt int) error {
	if _, err := tx.Exec("DELETE FROM parts WHERE job = ? AND attempt = ?", job, attempt); err != nil {
		return err
	}
	_, err := tx.Exec("UPDATE attempts SET forgotten = 1 WHERE job = ? AND number = ?", job, attempt)
	return err
}

const jobColumns = "id, state, user, queued, started, ended, code, text, document"

func scanJob(row interface{ Scan(...any) error }) (client.Job, error) {
	j, document, err := scanRow(row)
	if err == nil {
		err = readDocument(&j, document)
	}
	return j, err
}

// scanRow leaves what was submitted as it is.
func scanRow(row interface{ Scan(...any) error }) (j client.Job, document string, err error) {
	var queued, started, ended int64
	err = row.Scan(&j.ID, &j.State, &j.User, &queued, &started, &ended, &j.ExitCode, &j.Text, &document)
	j.Queued, j.Started, j.Ended = at(queued), at(started), at(ended)
	return j, document, err
}

func readDocument(j *client.Job, document string) error {
	if err := json.Unmarshal([]byte(document), &j.Document); err != nil {
		return fmt.Errorf("read job %d: %w", j.ID, err)
	}
	return nil
}

// readDocuments reads those of many jobs on all cores: a start with a hundred thousand jobs that wait is little else.
func readDocuments(all []*Live, documents []string) error {
	workers := runtime.GOMAXPROCS(0)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(all) && errs[w] == nil; i += workers {
				errs[w] = readDocument(&all[i].Job, documents[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Job reads one job and its attempts.
func (s *Store) Job(ctx context.Context, id int64) (client.Job, error) {
	var j client.Job
	err := s.Read(ctx, func(tx *sql.Tx) (err error) {
		if j, err = scanJob(tx.QueryRow("SELECT "+jobColumns+" FROM jobs WHERE id = ?", id)); err != nil {
			if errors.Is(err, sql.ErrNoRows) {
				err = ErrNotFound
			}
			return err
		}
		rows, err := tx.Query("SELECT number, started, ended, outcome, code, text, shares FROM attempts WHERE job = ? ORDER BY number", id)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var a client.Attempt
			var started, ended int64
			var shares string
			if err := rows.Scan(&a.Number, &started, &ended, &a.Outcome, &a.Code, &a.Text, &shares); err != nil {
				return err
			}
			a.Started, a.Ended = at(started), at(ended)
			if err := json.Unmarshal([]byte(shares), &a.Shares); err != nil {
				return err
			}
			a.Shares = client.Shown(a.Shares)
			j.Attempts = append(j.Attempts, a)
		}
		if err := rows.Err(); err != nil {
			return err
		}
		return readTags(tx, []*client.Job{&j})
	})
	return j, err
}

// Jobs lists jobs, the newest first, of some states and projects where they are given, below a number where it is not
// 0.
func (s *Store) Jobs(
	ctx context.Context, states []job.State, projects []string, below int64, limit int,
) ([]client.Job, error) {
	query, args := "SELECT "+jobColumns+" FROM jobs WHERE 1", []any{}
	if len(states) > 0 {
		query += " AND state IN ("
		for i, st := range states {
			if i > 0 {
				query += ", "
			}
			query += "?"
			args = append(args, st)
		}
		query += ")"
	}
	if projects != nil {
		query += " AND project IN (" + strings.TrimSuffix(strings.Repeat("?, ", len(projects)), ", ") + ")"
		for _, p := range projects {
			args = append(args, p)
		}
	}
	if below > 0 {
		query, args = query+" AND id < ?", append(args, below)
	}
	query, args = query+" ORDER BY id DESC LIMIT ?", append(args, limit)
	var all []client.Job
	err := s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query(query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			j, err := scanJob(rows)
			if err != nil {
				return err
			}
			all = append(all, j)
		}
		if err := rows.Err(); err != nil {
			return err
		}
		of := make([]*client.Job, len(all))
		for i := range all {
			of[i] = &all[i]
		}
		return readTags(tx, of)
	})
	return all, err
}

// Live is a job that has not ended, as a server finds it when it starts.
type Live struct {
	Job      client.Job
	Failures int
	Attempt  *client.Attempt // the one that runs
	Taken    uint64
	Stop     client.Outcome
	Opened   bool // all processes of the attempt had come
	Numbers  int  // attempts so far
	Alone    bool // it ran out of memory beside others
}

// Lives lists all jobs that have not ended, the oldest first.
func (s *Store) Lives(ctx context.Context) ([]*Live, error) {
	var documents []string
	var all []*Live // a job is a kilobyte, and there may be a hundred thousand
	err := s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT "+jobColumns+", failures, (SELECT coalesce(max(number), 0) FROM attempts WHERE job = id), EXISTS (SELECT 1 FROM attempts WHERE job = id AND outcome = ?) FROM jobs WHERE state IN ('queued', 'preparing', 'running', 'paused') ORDER BY id", client.OutOfMemory)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			l, document := &Live{}, ""
			l.Job, document, err = scanRow(more{rows, []any{&l.Failures, &l.Numbers, &l.Alone}})
			if err != nil {
				return err
			}
			all, documents = append(all, l), append(documents, document)
		}
		if err := errors.Join(rows.Err(), readDocuments(all, documents)); err != nil {
			return err
		}
		for i := range all {
			if st := all[i].Job.State; st != job.Running && st != job.Preparing {
				continue
			}
			var a client.Attempt
			var started, taken int64
			var shares string
			if err := tx.QueryRow("SELECT number, started, shares, taken, stop, opened FROM attempts WHERE job = ? ORDER BY number DESC LIMIT 1", all[i].Job.ID).
				Scan(&a.Number, &started, &shares, &taken, &all[i].Stop, &all[i].Opened); err != nil {
				return fmt.Errorf("read the attempt of job %d: %w", all[i].Job.ID, err)
			}
			a.Started = at(started)
			if err := json.Unmarshal([]byte(shares), &a.Shares); err != nil {
				return err
			}
			all[i].Attempt, all[i].Taken = &a, uint64(taken)
		}
		return nil
	})
	return all, err
}

// more scans a row into a job's columns and then some.
type more struct {
	row  *sql.Rows
	into []any
}

func (m more) Scan(into ...any) error { return m.row.Scan(append(into, m.into...)...) }

// SetFailures notes how often a job has failed.
func SetFailures(tx *sql.Tx, job int64, n int) error {
	_, err := tx.Exec("UPDATE jobs SET failures = ? WHERE id = ?", n, job)
	return err
}

// Rest is an attempt that ended and of which something is left on its nodes.
type Rest struct {
	Job     int64
	Attempt int
	Pool    string
	Shares  []client.Share
}

// Unforgotten lists those.
func (s *Store) Unforgotten(ctx context.Context) (all []Rest, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT job, number, pool, shares FROM attempts JOIN jobs ON jobs.id = job WHERE attempts.ended > 0 AND forgotten = 0")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var r Rest
			var shares string
			if err := rows.Scan(&r.Job, &r.Attempt, &r.Pool, &shares); err != nil {
				return err
			}
			if err := json.Unmarshal([]byte(shares), &r.Shares); err != nil {
				return err
			}
			all = append(all, r)
		}
		return rows.Err()
	})
	return all, err
}

// AddHappening adds to a job's story.
func AddHappening(tx *sql.Tx, job int64, h client.Happening) error {
	fields, err := json.Marshal(h.Fields)
	if err != nil {
		return err
	}
	_, err = tx.Exec("INSERT INTO happenings (job, number, at, attempt, kind, text, fields) VALUES (?, (SELECT coalesce(max(number), 0) + 1 FROM happenings WHERE job = ?), ?, ?, ?, ?, ?)",
		job, job, h.At.UnixNano(), h.Attempt, h.Kind, h.Text, string(fields))
	return err
}

// Happenings reads a job's story.
func (s *Store) Happenings(ctx context.Context, job int64) (all []client.Happening, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT number, at, attempt, kind, text, fields FROM happenings WHERE job = ? ORDER BY number", job)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var h client.Happening
			var when int64
			var fields string
			if err := rows.Scan(&h.Number, &when, &h.Attempt, &h.Kind, &h.Text, &fields); err != nil {
				return err
			}
			h.At = at(when)
			if err := json.Unmarshal([]byte(fields), &h.Fields); err != nil {
				return err
			}
			all = append(all, h)
		}
		return rows.Err()
	})
	return all, err
}

// Project is what a project has used.
type Project struct {
	Name string
	Used float64
	At   time.Time
}

// SetUsed notes what a project has used.
func SetUsed(tx *sql.Tx, p Project) error {
	_, err := tx.Exec("INSERT INTO projects (name, used, at) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET used = excluded.used, at = excluded.at", p.Name, p.Used, p.At.UnixNano())
	return err
}

// Projects lists what projects have used.
func (s *Store) Projects(ctx context.Context) (all []Project, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT name, used, at FROM projects ORDER BY name")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var p Project
			var when int64
			if err := rows.Scan(&p.Name, &p.Used, &when); err != nil {
				return err
			}
			p.At = at(when)
			all = append(all, p)
		}
		return rows.Err()
	})
	return all, err
}

// SetQuota bounds a project; a zero quota bounds nothing and is forgotten.
func SetQuota(tx *sql.Tx, project string, q client.Quota) error {
	if q == (client.Quota{}) {
		_, err := tx.Exec("DELETE FROM quotas WHERE project = ?", project)
		return err
	}
	_, err := tx.Exec("INSERT OR REPLACE INTO quotas (project, slots, most, share) VALUES (?, ?, ?, ?)", project, q.Slots, q.Max, q.Share)
	return err
}

// Quotas lists what bounds projects.
func (s *Store) Quotas(ctx context.Context) (map[string]client.Quota, error) {
	all := map[string]client.Quota{}
	err := s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT project, slots, most, share FROM quotas")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			var q client.Quota
			if err := rows.Scan(&name, &q.Slots, &q.Max, &q.Share); err != nil {
				return err
			}
			all[name] = q
		}
		return rows.Err()
	})
	return all, err
}

// ProjectOf answers a job's project; false where there is no such job.
func (s *Store) ProjectOf(ctx context.Context, id int64) (project string, found bool, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		err := tx.QueryRow("SELECT project FROM jobs WHERE id = ?", id).Scan(&project)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		found = err == nil
		return err
	})
	return project, found, err
}
