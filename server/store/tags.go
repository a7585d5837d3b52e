package store

import (
	"database/sql"
	"strings"

	"hora/server/client"
)

// SetTags gives a job tags and takes others from it.
func SetTags(tx *sql.Tx, job int64, set map[string]string, remove []string) error {
	for name, value := range set {
		if _, err := tx.Exec("INSERT INTO tags (job, name, value) VALUES (?, ?, ?) ON CONFLICT (job, name) DO UPDATE SET value = excluded.value", job, name, value); err != nil {
			return err
		}
	}
	for _, name := range remove {
		if _, err := tx.Exec("DELETE FROM tags WHERE job = ? AND name = ?", job, name); err != nil {
			return err
		}
	}
	return nil
}

// tagsAtOnce bounds the parameters of one query.
const tagsAtOnce = 500

// readTags fills in the tags of jobs.
func readTags(tx *sql.Tx, jobs []*client.Job) error {
	for len(jobs) > 0 {
		some := jobs[:min(len(jobs), tagsAtOnce)]
		jobs = jobs[len(some):]
		of, ids := map[int64]*client.Job{}, []any{}
		for _, j := range some {
			of[j.ID], ids = j, append(ids, j.ID)
		}
		rows, err := tx.Query("SELECT job, name, value FROM tags WHERE job IN (?"+strings.Repeat(", ?", len(ids)-1)+")", ids...)
		if err != nil {
			return err
		}
		for rows.Next() {
			var id int64
			var name, value string
			if err := rows.Scan(&id, &name, &value); err != nil {
				rows.Close()
				return err
			}
			if of[id].Tags == nil {
				of[id].Tags = map[string]string{}
			}
			of[id].Tags[name] = value
		}
		if err := rows.Err(); err != nil {
			return err
		}
	}
	return nil
}
