// Package storage lists, reads in ranges and puts files, wherever they lie: on this
// machine's disks, behind HTTP, in S3 and what speaks as it does, in Google's or in Azure's
// storage. A file that is read is known by its size and a tag
// (an ETag, a time), and one that changes meanwhile is an error, never a mixture.
//
// Stores have no state but connections and may be used by many goroutines at once. The
// package starts no goroutine of its own; net/http's end with its idle connections.
package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
)

// Object is a file as it was when it was looked at.
type Object struct {
	Name string // the store's name of it: a path, a URL
	Size int64
	Tag  string // changes with the content; "" where nobody knows
}

// Store is a place with files.
type Store interface {
	// List answers the files below a folder, or the file of that name, by name.
	List(ctx context.Context, name string) ([]Object, error)
	// Stat looks at one file.
	Stat(ctx context.Context, name string) (Object, error)
	// ReadAt fills p from the offset of a file that is still what it was.
	ReadAt(ctx context.Context, o Object, p []byte, offset int64) error
	// Put writes a file: others see the old one or the whole new one.
	Put(ctx context.Context, name string, content []byte) error
}

var (
	// ErrNotFound is for a name that nothing has.
	ErrNotFound = errors.New("there is no such file")
	// ErrChanged is for a file that is not what it was when it was looked at.
	ErrChanged = errors.New("the file has changed since it was opened")
	// ErrDenied is for a key, token or permission that does not open it.
	ErrDenied = errors.New("access is denied")
)

// Error says what could not be done with which file.
type Error struct {
	Do   string // "read", "list", …
	Name string
	Err  error
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s %s: %v", e.Do, e.Name, e.Err)
	switch {
	case errors.Is(e.Err, ErrNotFound):
		text += "; see whether the name is right, and the same on every host"
	case errors.Is(e.Err, ErrChanged):
		text += "; open the data again when nobody writes to it"
	case errors.Is(e.Err, ErrDenied):
		text += "; see whether this user, key or token may read it"
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Find answers the store that holds a name: a path, or a URL with http, https,
// s3, gs or abfss.
// lookup reads the environment; nil has none.
func Find(name string, lookup func(string) string) (Store, error) {
	if lookup == nil {
		lookup = func(string) string { return "" }
	}
	scheme, _, found := strings.Cut(name, "://")
	switch {
	case !found:
		return Local{}, nil
	case scheme == "http" || scheme == "https":
		return web, nil
	case scheme == "s3" || scheme == "s3a":
		return NewS3(lookup)
	case scheme == "gs":
		return NewGCS(lookup)
	case scheme == "abfss" || scheme == "abfs":
		return NewADLS(lookup)
	}
	return nil, fmt.Errorf("open %s: there is no storage %q here; give a path of this machine, or an http, https, s3, gs or abfss address", name, scheme+"://")
}

// IsPattern reports whether a name has one of *, ?, [ in it and stands for the names that fit: a URL has none, and
// what is there under that very name is no pattern.
func IsPattern(name string) bool {
	if strings.Contains(name, "://") || !strings.ContainsAny(name, "*?[") {
		return false
	}
	_, err := os.Lstat(name)
	return err != nil
}

// hidden reports whether a file below a folder is none of its data: what Spark, Hive
// and Hadoop write beside it, and what begins with a dot.
func hidden(below string) bool {
	for _, part := range strings.Split(path.Clean(below), "/") {
		if strings.HasPrefix(part, ".") || strings.HasPrefix(part, "_") && !strings.Contains(part, "=") {
			return true
		}
	}
	return false
}
