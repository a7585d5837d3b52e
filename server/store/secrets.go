package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"

	"hora/server/client"
)

// KeyFile opens the secrets. It is no part of a backup: who has the one has not the other.
const KeyFile = "secrets.key"

// sealed is what is encrypted: a secret says whose it is, so that a row that was moved does not open.
type sealed struct {
	Project string `json:"project"`
	Name    string `json:"name"`
	Value   []byte `json:"value"`
}

// key reads what opens the secrets, or makes it where there is none and none of them either.
func (s *Store) key(ctx context.Context, make bool) (*age.X25519Identity, error) {
	name := filepath.Join(s.dir, KeyFile)
	b, err := os.ReadFile(name)
	if err == nil {
		k, err := age.ParseX25519Identity(strings.TrimSpace(string(b)))
		if err != nil {
			return nil, fmt.Errorf("read %s: it opens no secrets: put the file back that was there", name)
		}
		return k, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	have := 0
	if err := s.Read(ctx, func(tx *sql.Tx) error {
		return tx.QueryRow("SELECT (SELECT count(*) FROM secrets) + (SELECT count(*) FROM lent)").Scan(&have)
	}); err != nil {
		return nil, err
	}
	if have > 0 || !make {
		return nil, fmt.Errorf("%s is not there, without which no secret opens: put it back, as it is in no backup, or set the secrets anew after hora secret remove", name)
	}
	k, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(f, k.String()+"\n")
	return k, errors.Join(err, f.Sync(), f.Close())
}

// SetSecret keeps a secret, encrypted.
func (s *Store) SetSecret(ctx context.Context, sec client.Secret, value []byte, now time.Time) error {
	k, err := s.key(ctx, true)
	if err != nil {
		return err
	}
	box, err := seal(k, sealed{sec.Project, sec.Name, value})
	if err != nil {
		return err
	}
	return s.Do(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT OR REPLACE INTO secrets (project, name, box, by, at) VALUES (?, ?, ?, ?, ?)", sec.Project, sec.Name, box, sec.By, nanos(now))
		return err
	})
}

// seal encrypts for the one key.
func seal(k *age.X25519Identity, x any) ([]byte, error) {
	plain, err := json.Marshal(x)
	if err != nil {
		return nil, err
	}
	var box bytes.Buffer
	w, err := age.Encrypt(&box, k.Recipient())
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = w.Close()
	}
	return box.Bytes(), err
}

// unseal decrypts what seal has made.
func unseal(k *age.X25519Identity, box []byte, to any) error {
	r, err := age.Decrypt(bytes.NewReader(box), k)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, to)
}

// Secrets lists a project's secrets: never what they are.
func (s *Store) Secrets(ctx context.Context, project string) (all []client.Secret, err error) {
	err = s.Read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT project, name, by, at FROM secrets WHERE project = ? ORDER BY name", project)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var x client.Secret
			var when int64
			if err := rows.Scan(&x.Project, &x.Name, &x.By, &when); err != nil {
				return err
			}
			x.Set = at(when)
			all = append(all, x)
		}
		return rows.Err()
	})
	return all, err
}

// DropSecret forgets one; false where there is none.
func DropSecret(tx *sql.Tx, project, name string) (bool, error) {
	return changed(tx.Exec("DELETE FROM secrets WHERE project = ? AND name = ?", project, name))
}

// ErrNoSecret is for one that is not there.
var ErrNoSecret = errors.New("there is no such secret")

// Secret opens one.
func (s *Store) Secret(ctx context.Context, project, name string) ([]byte, error) {
	var box []byte
	err := s.Read(ctx, func(tx *sql.Tx) error {
		return tx.QueryRow("SELECT box FROM secrets WHERE project = ? AND name = ?", project, name).Scan(&box)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNoSecret
	}
	if err != nil {
		return nil, err
	}
	k, err := s.key(ctx, false)
	if err != nil {
		return nil, err
	}
	var x sealed
	if err := unseal(k, box, &x); err != nil {
		return nil, fmt.Errorf("open secret %s of project %s: %w: the key in %s is another one: put the right one back, or set the secret anew", name, project, err, KeyFile)
	}
	if x.Project != project || x.Name != name {
		return nil, fmt.Errorf("secret %s of project %s is another one's: somebody has changed the database; set it anew", name, project)
	}
	return x.Value, nil
}
