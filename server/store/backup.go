package store

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Backup copies a server's folder, in use or not, into one that is not there yet: the database as it is at one moment,
// the token, the authority of its TLS and all content. It answers how many files of content there are, and calls copied
// after each. The copy says that it is one: what the server has had made is not the copy's.
func Backup(dir, to string, copied func()) (int, error) {
	name := filepath.Join(dir, DatabaseFile)
	if _, err := os.Stat(name); err != nil {
		return 0, fmt.Errorf("copy %s: %w: name a server's folder", dir, err)
	}
	if all, err := os.ReadDir(to); err == nil && len(all) > 0 {
		return 0, fmt.Errorf("copy to %s: there is something in it: name a folder that is not there yet", to)
	}
	_, there := os.Stat(to)
	if err := os.MkdirAll(filepath.Join(to, "blobs"), 0o700); err != nil {
		return 0, err
	}
	lock, err := lockSweep(dir, syscall.LOCK_SH) // content that the copy names is not removed meanwhile
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	nothing := func(err error) (int, error) { // what is left would stand in the way of another try
		_ = os.Remove(filepath.Join(to, "blobs"))
		if there != nil {
			_ = os.RemoveAll(to)
		}
		return 0, ofCopy(dir, plain(err))
	}
	db, err := connect(name, "", 1)
	if err != nil {
		return nothing(err)
	}
	defer db.Close()
	whole := filepath.Join(to, DatabaseFile)
	marked := func() error {
		if err := Copy(db, whole+".copy"); err != nil {
			return err
		}
		if err := markCopied(whole + ".copy"); err != nil {
			return err
		}
		return os.Rename(whole+".copy", whole)
	}
	if err := marked(); err != nil {
		for _, end := range []string{"", "-journal", "-wal", "-shm"} {
			_ = os.Remove(whole + ".copy" + end)
		}
		return nothing(err)
	}
	for _, name := range []string{"token", "authority.pem", "authority.key"} { // by which its people and nodes know it
		if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			if err := os.WriteFile(filepath.Join(to, name), b, 0o600); err != nil {
				return 0, err
			}
		}
	}
	n := 0 // what the database names was there when it was copied, and content is never changed
	err = blobs(dir, func(hash, name string) error {
		n++
		at := filepath.Join(to, "blobs", hash[:2], hash[2:])
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			return err
		}
		defer copied()
		return copyFile(name, at)
	})
	return n, err
}

// markCopied notes in a copy of a database that it is one, and that all nodes in it are the other server's.
func markCopied(name string) error {
	db, err := alone(name)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec(copiedTable + "INSERT OR IGNORE INTO copied (pool, node) VALUES ('', '');"); err != nil {
		return plain(err)
	}
	has, err := hasTable(db, "made")
	if has {
		_, err = db.Exec("INSERT OR IGNORE INTO copied (pool, node) SELECT pool, node FROM made")
	}
	return plain(errors.Join(err, db.Close()))
}

// alone opens a copy of a database that nobody else has. It leaves no log beside it.
func alone(name string) (*sql.DB, error) {
	c, err := newConnector("file:" + escape(name) + "?_pragma=journal_mode(DELETE)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(1)
	return db, nil
}

// hasTable is for databases of releases that may have been without it.
func hasTable(db *sql.DB, name string) (has bool, err error) {
	err = db.QueryRow("SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?)", name).Scan(&has)
	return has, err
}

// MakesNodes names the pools of a copy whose nodes are made by commands.
func MakesNodes(dir string) (pools []string, err error) {
	db, err := alone(filepath.Join(dir, DatabaseFile))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if has, err := hasTable(db, "pools"); err != nil || !has {
		return nil, plain(err)
	}
	rows, err := db.Query("SELECT name FROM pools WHERE json_extract(document, '$.provider') = 'command' ORDER BY name")
	if err != nil {
		return nil, plain(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, plain(err)
		}
		pools = append(pools, name)
	}
	return pools, plain(rows.Err())
}

// blobs goes through all content of a folder.
func blobs(dir string, f func(hash, name string) error) error {
	root := filepath.Join(dir, "blobs")
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		hash := filepath.Base(filepath.Dir(p)) + filepath.Base(p)
		if len(hash) != 64 {
			return nil // it was being written
		}
		return f(hash, p)
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return errors.Join(out.Sync(), out.Close())
}
