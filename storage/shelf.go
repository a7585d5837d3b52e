package storage

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Shelf is a folder of what was found or fetched once and may be lost at any time: each
// thing in a file of its own under a key that changes with its content, with a checksum.
// All processes of a host may use one folder: a file is there as a whole or not at all.
// Together files have at most so many bytes; those go first that were used least lately.
type Shelf struct {
	dir  string
	most int64

	mu   sync.Mutex // guards what follows, not the files
	size int64      // of the files, as far as this process knows; -1: not yet
	busy bool       // somebody removes files
	why  error      // the first thing that could not be kept
}

const shelfTail = 4 + sha256.Size // checksum and key

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// NewShelf is a shelf in a folder, which is made when it is needed. Without a name there
// is none: nil, on which nothing is found and nothing kept.
func NewShelf(dir string, most int64) *Shelf {
	if dir == "" || most <= 0 {
		return nil
	}
	return &Shelf{dir: dir, most: most, size: -1}
}

func (s *Shelf) name(key string) (string, [sha256.Size]byte) {
	sum := sha256.Sum256([]byte(key))
	text := hex.EncodeToString(sum[:])
	return filepath.Join(s.dir, text[:2], text[2:]), sum
}

// Get answers what is kept under a key, if it is whole.
func (s *Shelf) Get(key string) ([]byte, bool) {
	if s == nil {
		return nil, false
	}
	name, sum := s.name(key)
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, false
	}
	n := len(text) - shelfTail
	whole := n >= 0 && [sha256.Size]byte(text[n+4:]) == sum &&
		crc32.Checksum(text[:n], castagnoli) == binary.LittleEndian.Uint32(text[n:])
	if !whole {
		_ = os.Remove(name) // damaged, or cut: it is fetched again
		return nil, false
	}
	now := time.Now()
	_ = os.Chtimes(name, now, now) // it was used; where that cannot be noted it goes earlier
	return text[:n], true
}

// Put keeps something. That it cannot be kept is no error of whoever has it: Why says so.
func (s *Shelf) Put(key string, content []byte) {
	if s == nil || int64(len(content)) > s.most/4 {
		return
	}
	name, sum := s.name(key)
	text := make([]byte, 0, len(content)+shelfTail)
	text = append(text, content...)
	text = binary.LittleEndian.AppendUint32(text, crc32.Checksum(content, castagnoli))
	text = append(text, sum[:]...)
	err := os.MkdirAll(filepath.Dir(name), 0o700)
	if err == nil {
		err = keep(name, text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.why == nil {
			s.why = err
		}
		return
	}
	if s.size >= 0 {
		s.size += int64(len(text))
	}
	if !s.busy && (s.size < 0 || s.size > s.most) {
		s.busy = true
		s.mu.Unlock()
		size := s.shrink()
		s.mu.Lock()
		s.busy, s.size = false, size
	}
}

// keep writes a file under another name first. It need not survive a crash: its checksum
// tells.
func keep(name string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// shrink removes files until a tenth of the room is free, and answers what is left.
func (s *Shelf) shrink() int64 {
	type entry struct {
		name string
		size int64
		used time.Time
	}
	var all []entry
	size := int64(0)
	_ = filepath.WalkDir(s.dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // others remove files meanwhile
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if strings.HasPrefix(d.Name(), ".new-") && time.Since(info.ModTime()) > time.Hour {
			_ = os.Remove(name) // somebody died while he wrote it
			return nil
		}
		all = append(all, entry{name, info.Size(), info.ModTime()})
		size += info.Size()
		return nil
	})
	if size <= s.most {
		return size
	}
	slices.SortFunc(all, func(a, b entry) int { return a.used.Compare(b.used) })
	for _, e := range all {
		if size <= s.most-s.most/10 {
			break
		}
		if os.Remove(e.name) == nil {
			size -= e.size
		}
	}
	return size
}

// Why says in a sentence why something could not be kept, or "".
func (s *Shelf) Why() string {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.why == nil:
		return ""
	case errors.Is(s.why, syscall.ENOSPC) || errors.Is(s.why, syscall.EDQUOT):
		return "the disk of the data's cache " + s.dir + " is full, so files are fetched again and again; make room, or name another folder with HORA_DATA_CACHE"
	}
	return "nothing can be kept in the data's cache " + s.dir + " (" + s.why.Error() + "), so files are fetched again and again; name another folder with HORA_DATA_CACHE"
}

// Cached is a store whose ranges are kept on a shelf: in pieces, under the file's name,
// size and tag. A file whose changes nobody could tell is not kept.
type Cached struct {
	Store
	shelf *Shelf
}

// NewCached keeps what a store answers; without a shelf it is the store itself.
func NewCached(store Store, shelf *Shelf) Store {
	if shelf == nil {
		return store
	}
	return &Cached{store, shelf}
}

// ReadAt fills p from the shelf, or from the store.
func (c *Cached) ReadAt(ctx context.Context, o Object, p []byte, offset int64) error {
	if o.Tag == "" {
		return c.Store.ReadAt(ctx, o, p, offset)
	}
	key := rangeKey(o, offset, len(p))
	if kept, ok := c.shelf.Get(key); ok && len(kept) == len(p) {
		copy(p, kept)
		return nil
	}
	if err := c.Store.ReadAt(ctx, o, p, offset); err != nil {
		return err
	}
	c.shelf.Put(key, p)
	return nil
}

func rangeKey(o Object, offset int64, n int) string {
	var b []byte
	for _, part := range []string{"range 1", o.Name, o.Tag} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	for _, v := range []int64{o.Size, offset, int64(n)} {
		b = binary.AppendVarint(b, v)
	}
	return string(b)
}
