package store

import (
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
// after each.
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
		return 0, ofCopy(dir, err)
	}
	db, err := connect(name, "", 1)
	if err != nil {
		return nothing(err)
	}
	defer db.Close()
	if err := Copy(db, filepath.Join(to, DatabaseFile)); err != nil {
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
