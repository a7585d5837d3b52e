package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
func (l Local) Put(ctx context.Context, name string, content []byte) error {
	called := func() (string, error) { return name, nil }
	if _, err := l.Stream(ctx, filepath.Dir(name), 0o644, bytes.NewReader(content), called); err != nil {
		return localError("write", name, err)
	}
	return nil
}

// Stream writes what r has to say into a folder, as it comes and under a name of its own, and renames it when all of it
// is on disk: it is there as a whole, after a crash too, or not at all. called is asked for its name when all has been
// read; with "" nothing is kept. What r and called fail with is answered as it is.
func (l Local) Stream(
	ctx context.Context, folder string, mode fs.FileMode, r io.Reader, called func() (name string, err error),
) (size int64, err error) {
	f, err := os.CreateTemp(folder, PartPrefix+"*")
	if err != nil {
		return 0, err
	}
	kept := false
	defer func() {
		if !kept {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if size, err = io.CopyBuffer(onlyWriter{f}, &heeding{ctx, r}, make([]byte, streamPart)); err != nil {
		return size, err
	}
	name, err := called()
	if err != nil || name == "" {
		return size, err
	}
	if err := errors.Join(f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return size, err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return size, err
	}
	kept = true
	return size, SyncFolder(filepath.Dir(name))
}

// heeding reads until its context ends, and in the parts that it is asked for.
type heeding struct {
	ctx context.Context
	r   io.Reader
}

func (h *heeding) Read(p []byte) (int, error) {
	if err := h.ctx.Err(); err != nil {
		return 0, err
	}
	return h.r.Read(p)
}

// onlyWriter hides that a file can read from others by itself, with a buffer of its own.
type onlyWriter struct{ io.Writer }

// PartPrefix begins the name of a file that is not whole yet. A crash leaves them.
const PartPrefix = ".new-"

// streamPart is how much of what is streamed is in memory.
const streamPart = 256 << 10

// SyncFolder has the names in a folder outlive a crash, where its file system can do that for folders.
func SyncFolder(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}

// Local tells this store from those behind a network.
func (l Local) Local() {}
