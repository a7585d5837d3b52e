package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"hora/server/client"
	"hora/storage"
)

// SetArtifact notes a file of outputs/.
func SetArtifact(tx *sql.Tx, job int64, a client.Artifact) error {
	_, err := tx.Exec("INSERT OR REPLACE INTO artifacts (job, path, size, hash, at) VALUES (?, ?, ?, ?, ?)", job, a.Path, a.Size, a.Hash, a.At.UnixNano())
	return err
}

// SetArtifactOver is the same where no later one is there.
func SetArtifactOver(tx *sql.Tx, job int64, a client.Artifact) error {
	_, err := tx.Exec(`INSERT INTO artifacts (job, path, size, hash, at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET size = excluded.size, hash = excluded.hash, at = excluded.at WHERE at <= excluded.at`,
		job, a.Path, a.Size, a.Hash, a.At.UnixNano())
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
