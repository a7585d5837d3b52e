package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"filippo.io/age"
)

// Sealer encrypts keys to storage that somebody lends a job.
type Sealer struct{ key *age.X25519Identity }

// lent is what is encrypted: it says whose it is, so that a row that was moved does not open.
type lent struct {
	Job int64             `json:"job"`
	All map[string]string `json:"all"`
}

// Sealer reads the key, or makes it where there is none yet.
func (s *Store) Sealer(ctx context.Context) (*Sealer, error) {
	k, err := s.key(ctx, true)
	return &Sealer{k}, err
}

// Lend keeps what a job was lent, encrypted, until its end.
func (l *Sealer) Lend(tx *sql.Tx, job int64, all map[string]string) error {
	box, err := seal(l.key, lent{job, all})
	if err != nil {
		return err
	}
	_, err = tx.Exec("INSERT INTO lent (job, box) VALUES (?, ?)", job, box)
	return err
}

// Lent opens what a job was lent.
func (s *Store) Lent(ctx context.Context, job int64) (map[string]string, error) {
	var box []byte
	err := s.Read(ctx, func(tx *sql.Tx) error {
		return tx.QueryRow("SELECT box FROM lent WHERE job = ?", job).Scan(&box)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("the keys to storage that went along with job %d are gone: submit it anew", job)
	}
	if err != nil {
		return nil, err
	}
	k, err := s.key(ctx, false)
	if err != nil {
		return nil, err
	}
	var x lent
	if err := unseal(k, box, &x); err != nil {
		return nil, fmt.Errorf("open the keys to storage of job %d: %w: the key in %s is another one: put the right one back, or submit the job anew", job, err, KeyFile)
	}
	if x.Job != job {
		return nil, fmt.Errorf("the keys to storage of job %d are another's: somebody has changed the database; submit the job anew", job)
	}
	return x.All, nil
}

// returned forgets what a job was lent.
func returned(tx *sql.Tx, job int64) error {
	_, err := tx.Exec("DELETE FROM lent WHERE job = ?", job)
	return err
}
