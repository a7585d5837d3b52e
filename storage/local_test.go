package storage

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// zeros has so many of them.
func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// names are those of the files in a folder.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// TestStreamHoldsAPartAtATime: what comes is written as it comes, whatever its size.
func TestStreamHoldsAPartAtATime(t *testing.T) {
	dir, size := t.TempDir(), int64(64<<20)
	name := filepath.Join(dir, "large")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n, err := Local{}.Stream(t.Context(), dir, 0o600, zeros(size), func() (string, error) { return name, nil })
	runtime.ReadMemStats(&after)
	if err != nil || n != size {
		t.Fatal(n, err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 4*streamPart {
		t.Errorf("%d bytes of memory for a part of %d at a time", took, streamPart)
	}
	info, err := os.Stat(name)
	if err != nil || info.Size() != size || info.Mode() != 0o600 || len(names(t, dir)) != 1 {
		t.Errorf("%v, %v: %v", info, err, names(t, dir))
	}
}

// TestStreamLeavesTheWholeOrNothing: what fails, on either side, leaves the file as it was and no other.
func TestStreamLeavesTheWholeOrNothing(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "kept")
	if err := (Local{}).Put(t.Context(), name, []byte("as it was")); err != nil {
		t.Fatal(err)
	}
	broken, no := errors.New("the line is cut"), errors.New("it is another")
	gone, leave := context.WithCancel(t.Context())
	leaves := readerFunc(func([]byte) (int, error) { leave(); return 1, io.EOF })
	left := io.MultiReader(zeros(1<<20), leaves, zeros(1<<20))
	fails := io.MultiReader(zeros(1<<20), readerFunc(func([]byte) (int, error) { return 0, broken }))
	as := func(name string, err error) func() (string, error) {
		return func() (string, error) { return name, err }
	}
	for _, c := range []struct {
		what   string
		ctx    context.Context
		r      io.Reader
		called func() (string, error)
		want   error
	}{
		{"a reader that fails", t.Context(), fails, as(name, nil), broken},
		{"a context that ends", gone, left, as(name, nil), context.Canceled},
		{"one that gets no name", t.Context(), zeros(1 << 20), as("", no), no},
		{"one that is there already", t.Context(), zeros(1 << 20), as("", nil), nil},
		{"a folder that is not there", t.Context(), zeros(1), as(filepath.Join(dir, "none", "x"), nil), os.ErrNotExist},
	} {
		if _, err := (Local{}).Stream(c.ctx, dir, 0o644, c.r, c.called); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
		b, err := os.ReadFile(name)
		if all := names(t, dir); err != nil || len(all) != 1 || !bytes.Equal(b, []byte("as it was")) {
			t.Errorf("%s: there are %v, and the file has %.20q, %v", c.what, all, b, err)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
