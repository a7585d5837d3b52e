// Package logs makes the files in which a job tells what it did: they are as open as the folder that its user named.
package logs

import (
	"io/fs"
	"os"
	"path/filepath"
)

// Logs tell what a job does and on which data: a folder that is made for them is its user's alone. In a folder that is
// there already files are open to whom the folder is, less what the umask takes away.

// Folder makes a folder, and those above it, where they are not there.
func Folder(dir string) error { return os.MkdirAll(dir, 0o700) }

// FolderIn makes a folder within a log directory that is there, as open as that one.
func FolderIn(parent, dir string) error {
	perm, err := modeOf(parent)
	if err != nil {
		return err
	}
	return os.MkdirAll(dir, perm)
}

// modeOf returns whom a folder is open to.
func modeOf(folder string) (fs.FileMode, error) {
	st, err := os.Stat(folder)
	if err != nil {
		return 0, err
	}
	return st.Mode().Perm(), nil
}

// Open does what os.OpenFile does, for a file that, if it is made, is as open as its folder.
func Open(path string, flags int) (*os.File, error) {
	perm, err := modeOf(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	return os.OpenFile(path, flags|os.O_CREATE, perm&0o666|0o600)
}

// Write replaces what such a file holds.
func Write(path string, b []byte) error {
	f, err := Open(path, os.O_WRONLY|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
