package source

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"hora/storage"
)

var (
	errEnd   = io.EOF
	errIndex = errors.New("its index is damaged")
)

// What is kept of an index: numbers and texts, one after the other.
type packer struct{ b []byte }

func (p *packer) int(v int64) { p.b = binary.AppendVarint(p.b, v) }

func (p *packer) text(s string) {
	p.b = binary.AppendUvarint(p.b, uint64(len(s)))
	p.b = append(p.b, s...)
}

// unpacker reads what a packer wrote. After a fault it answers zero and bad stays true.
type unpacker struct {
	b   []byte
	bad bool
}

func (u *unpacker) int() int64 {
	v, n := binary.Varint(u.b)
	if n <= 0 {
		u.bad, u.b = true, nil
		return 0
	}
	u.b = u.b[n:]
	return v
}

// count is how many things follow: each takes a byte or more.
func (u *unpacker) count() int {
	n := u.int()
	if n < 0 || n > int64(len(u.b)) {
		u.bad, u.b = true, nil
		return 0
	}
	return int(n)
}

func (u *unpacker) text() string {
	v, n := binary.Uvarint(u.b)
	if n <= 0 || v > uint64(len(u.b)-n) {
		u.bad, u.b = true, nil
		return ""
	}
	s := string(u.b[n : n+int(v)])
	u.b = u.b[n+int(v):]
	return s
}

// indexed answers a file's index: what is kept of it, or what make finds, which is then
// kept. A file whose changes nobody could tell is looked through each time.
func indexed(kind string, f *File, shelf *storage.Shelf, make func() ([]byte, error)) ([]byte, error) {
	key := fmt.Sprintf("index 1 %s %q %d %q", kind, f.Object.Name, f.Object.Size, f.Object.Tag)
	if shelf != nil && f.Object.Tag != "" {
		if kept, ok := shelf.Get(key); ok {
			return kept, nil
		}
	}
	found, err := make()
	if err != nil {
		return nil, err
	}
	if shelf != nil && f.Object.Tag != "" {
		shelf.Put(key, found)
	}
	return found, nil
}
