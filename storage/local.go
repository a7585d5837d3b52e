package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Local is this machine's file system.
type Local struct{}

func localError(do, name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = ErrNotFound
	case errors.Is(err, fs.ErrPermission):
		err = ErrDenied
	default:
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
	}
	return &Error{do, name, err}
}

func localObject(name string, info fs.FileInfo) Object {
	return Object{Name: name, Size: info.Size(), Tag: fmt.Sprint(info.ModTime().UnixNano())}
}

// List answers the files below a folder, those that a pattern fits or that lie below such folders, or the one file.
func (l Local) List(_ context.Context, name string) ([]Object, error) {
	if IsPattern(name) {
		return l.match(name)
	}
	return l.below(name)
}

func (l Local) below(name string) ([]Object, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, localError("list", name, err)
	}
	if !info.IsDir() {
		return []Object{localObject(name, info)}, nil
	}
	var all []Object
	err = filepath.WalkDir(name, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(name, p)
		if err != nil || p == name {
			return err
		}
		if hidden(filepath.ToSlash(below)) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return nil
		}
		info, err := os.Stat(p) // what a link points to
		if err != nil || info.IsDir() {
			return err
		}
		all = append(all, localObject(p, info))
		return nil
	})
	if err != nil {
		return nil, localError("list", name, err)
	}
	return all, nil // WalkDir goes by name
}

func (l Local) match(pattern string) ([]Object, error) {
	names, err := filepath.Glob(pattern)
	if err != nil {
		return nil, &Error{"list", pattern, errors.New("the pattern has an unclosed bracket")}
	}
	var all []Object
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return nil, localError("list", name, err)
		}
		base := filepath.Base(name)
		if strings.HasPrefix(base, ".") || info.IsDir() && hidden(base) {
			continue
		}
		found, err := l.below(name)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, &Error{"list", pattern, ErrNotFound}
	}
	return all, nil
}

// Stat looks at one file.
func (l Local) Stat(_ context.Context, name string) (Object, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Object{}, localError("open", name, err)
	}
	if info.IsDir() {
		return Object{}, &Error{"open", name, errors.New("it is a folder")}
	}
	return localObject(name, info), nil
}

// ReadAt fills p from a file that is still what it was.
func (l Local) ReadAt(_ context.Context, o Object, p []byte, offset int64) error {
	f, err := os.Open(o.Name)
	if err != nil {
		return localError("read", o.Name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return localError("read", o.Name, err)
	}
	if now := localObject(o.Name, info); now != o {
		return &Error{"read", o.Name, ErrChanged}
	}
	if _, err := f.ReadAt(p, offset); err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%d bytes at %d are asked for and the file has %d", len(p), offset, o.Size)
		}
		return localError("read", o.Name, err)
	}
	return nil
}

// Put writes a file under a name of its own and renames it when all of it is on disk.
func (l Local) Put(_ context.Context, name string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return localError("write", name, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
			err = localError("write", name, err)
		}
	}()
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// Local tells this store from those behind a network.
func (l Local) Local() {}
