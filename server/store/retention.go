package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"hora/server/client"
)

// kept are what retention knows: of which table it is, and how the story calls what was removed.
var kept = []struct{ kind, table, text string }{
	{"logs", "lines", "what it wrote was removed"},
	{"metrics", "metrics", "what it reported was removed"},
	{"artifacts", "artifacts", "what came back of outputs/ was removed"},
	{"jobs", "jobs", ""},
}

// SetRetention says how long a project's things are kept. Nothing but zeros is forgotten: then what holds for all holds
// for it.
func SetRetention(tx *sql.Tx, r *client.Retention) error {
	if _, err := tx.Exec("DELETE FROM retention WHERE project = ?", r.Project); err != nil {
		return err
	}
	of := map[string]int64{"jobs": r.Jobs, "logs": r.Logs, "metrics": r.Metrics, "artifacts": r.Artifacts}
	if *r == (client.Retention{Project: r.Project}) {
		return nil
	}
	for kind, seconds := range of {
		if _, err := tx.Exec("INSERT INTO retention (project, kind, seconds) VALUES (?, ?, ?)", r.Project, kind, seconds); err != nil {
			return err
		}
	}
	return nil
}

// Retentions lists how long what is kept, that of all others first.
func (s *Store) Retentions(ctx context.Context) (all []client.Retention, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT project, kind, seconds FROM retention ORDER BY project")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var project, kind string
			var seconds int64
			if err := rows.Scan(&project, &kind, &seconds); err != nil {
				return err
			}
			if n := len(all); n == 0 || all[n-1].Project != project {
				all = append(all, client.Retention{Project: project})
			}
			r := &all[len(all)-1]
			switch kind {
			case "jobs":
				r.Jobs = seconds
			case "logs":
				r.Logs = seconds
			case "metrics":
				r.Metrics = seconds
			case "artifacts":
				r.Artifacts = seconds
			}
		}
		return rows.Err()
	})
	return all, err
}

// expireAtOnce is of how many jobs one transaction removes something: others' writes wait for it.
const expireAtOnce = 20

// Expire removes what is kept no longer of jobs that have ended, some at a time, and answers of how many jobs.
func (s *Store) Expire(ctx context.Context, now time.Time) (n int, err error) {
	for _, k := range kept {
		for {
			some := 0
			if err := s.Do(ctx, func(tx *sql.Tx) (err error) {
				some, err = expire(tx, k.kind, k.table, k.text, now)
				return err
			}); err != nil {
				return n, err
			}
			if n += some; some < expireAtOnce {
				break
			}
		}
	}
	return n, nil
}

// outlived is where in the store things of a kind are that are kept no longer.
func outlived(kind, table string) string {
	of := "EXISTS (SELECT 1 FROM " + table + " WHERE job = j.id)"
	if kind == "jobs" { // what is left of it on a node names it still
		of = "NOT EXISTS (SELECT 1 FROM attempts WHERE job = j.id AND forgotten = 0)"
	}
	return `FROM jobs j JOIN retention r ON r.kind = ?1 AND r.project =
		CASE WHEN EXISTS (SELECT 1 FROM retention WHERE project = j.project) THEN j.project ELSE '' END
		WHERE j.state IN ('finished', 'failed', 'cancelled') AND r.seconds > 0 AND j.ended > 0
		AND j.ended < ?2 - r.seconds * 1000000000 AND ` + of
}

// Outlived counts the jobs of which something goes by the times of a project, or by those of all others; nil for none.
// A project without times of its own has those of all others.
func Outlived(tx *sql.Tx, project string, now time.Time) (*client.Removes, error) {
	var n client.Removes
	to := map[string]*int64{"jobs": &n.Jobs, "logs": &n.Logs, "metrics": &n.Metrics, "artifacts": &n.Artifacts}
	for _, k := range kept {
		one := tx.QueryRow("SELECT count(*) "+outlived(k.kind, k.table)+`
			AND (?3 = '' AND r.project = '' OR ?3 <> '' AND j.project = ?3)`, k.kind, now.UnixNano(), project)
		if err := one.Scan(to[k.kind]); err != nil {
			return nil, err
		}
	}
	if n == (client.Removes{}) {
		return nil, nil
	}
	return &n, nil
}

func expire(tx *sql.Tx, kind, table, text string, now time.Time) (int, error) {
	rows, err := tx.Query("SELECT j.id, r.seconds "+outlived(kind, table)+" LIMIT ?3", kind, now.UnixNano(), expireAtOnce)
	if err != nil {
		return 0, err
	}
	type one struct{ id, seconds int64 }
	var all []one
	for rows.Next() {
		var o one
		if err = rows.Scan(&o.id, &o.seconds); err != nil {
			break
		}
		all = append(all, o)
	}
	if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
		return 0, err
	}
	for _, o := range all {
		if kind == "jobs" {
			if _, err := tx.Exec("DELETE FROM keys WHERE job = ?", o.id); err != nil {
				return 0, err
			}
			if _, err := tx.Exec("DELETE FROM jobs WHERE id = ?", o.id); err != nil {
				return 0, err
			}
			continue
		}
		if _, err := tx.Exec("DELETE FROM "+table+" WHERE job = ?", o.id); err != nil {
			return 0, err
		}
		said := fmt.Sprintf("%s: %s are kept for %v", text, kind, time.Duration(o.seconds)*time.Second)
		if err := AddHappening(tx, o.id, client.Happening{At: now.UTC(), Kind: "removed", Text: said}); err != nil {
			return 0, err
		}
	}
	return len(all), nil
}

// sweepFile is locked by who removes content, and by who copies all of it.
const sweepFile = "sweep"

// lockSweep waits for the lock, or answers nil at once where it is not to wait and another has it.
func lockSweep(dir string, how int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, sweepFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), how); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = nil
		}
		return nil, err
	}
	return f, nil
}

// Sweep removes content that nothing names any more and that was not looked for since a time: whoever sends a folder
// asks first what is here already, and counts on it. parts are the hashes that the list of a folder's files names.
func (s *Store) Sweep(
	ctx context.Context, before time.Time, parts func(list []byte) ([]string, error),
) (n int, err error) {
	lock, err := lockSweep(s.dir, syscall.LOCK_EX|syscall.LOCK_NB)
	if lock == nil {
		return 0, err // a copy is made: later
	}
	defer lock.Close()
	named, err := s.named(ctx, parts)
	if err != nil {
		return 0, err
	}
	err = blobs(s.dir, func(hash, name string) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if named[hash] {
			return nil
		}
		s.sweeping.Lock()
		defer s.sweeping.Unlock()
		info, err := os.Stat(name)
		if err != nil || !info.ModTime().Before(before) {
			return nil
		}
		n++
		return os.Remove(name)
	})
	return n, err
}

// named are the hashes of all content that jobs name.
func (s *Store) named(ctx context.Context, parts func([]byte) ([]string, error)) (map[string]bool, error) {
	all := map[string]bool{}
	var lists []string
	err := s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT hash FROM artifacts")
		if err != nil {
			return err
		}
		for rows.Next() {
			var hash string
			if err = rows.Scan(&hash); err != nil {
				break
			}
			all[hash] = true
		}
		if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
			return err
		}
		if rows, err = tx.Query("SELECT document FROM jobs"); err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var text string
			var d struct {
				Code   string            `json:"code"`
				Source map[string]string `json:"source"`
			}
			if err := rows.Scan(&text); err != nil {
				return err
			}
			if err := json.Unmarshal([]byte(text), &d); err != nil {
				return err
			}
			all[d.Source["diff"]] = true
			if d.Code != "" && !all[d.Code] {
				all[d.Code] = true
				lists = append(lists, d.Code)
			}
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	for _, hash := range lists {
		b, err := os.ReadFile(s.BlobFile(hash))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		of, err := parts(b)
		if err != nil {
			return nil, fmt.Errorf("read the list of files %s: %w", hash, err)
		}
		for _, h := range of {
			all[h] = true
		}
	}
	return all, nil
}

// touchAfter is from which age on content that is looked for counts as new again.
const touchAfter = time.Hour

// HasBlob says whether content is there. It stays for as long as Sweep leaves what is new.
func (s *Store) HasBlob(_ context.Context, hash string) bool {
	s.sweeping.RLock()
	defer s.sweeping.RUnlock()
	name := s.BlobFile(hash)
	info, err := os.Stat(name)
	if err != nil {
		return false
	}
	if time.Since(info.ModTime()) > touchAfter {
		now := time.Now()
		return os.Chtimes(name, now, now) == nil
	}
	return true
}
