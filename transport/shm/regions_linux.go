package shm

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// part is one seat's buffer as this process maps it.
type part struct {
	base unsafe.Pointer
	n    uint64
	mem  []byte // what to unmap; nil if somebody else owns the mapping
}

// mapping is one registered buffer: everybody's part of it.
type mapping struct {
	id     uint32
	seat   int
	parts  []part
	closed bool // by its user; then the own part goes with the last release
}

// extent is one part of this rank's own memory, for the look-up by address.
type extent struct {
	base, n uintptr
	id      uint32
}

// regions finds registered buffers. Readers (the data path) load an immutable table;
// writers replace it.
type regions struct {
	own atomic.Pointer[[]extent]   // by address
	ids atomic.Pointer[[]*mapping] // by id − 1; nil where freed

	mu     sync.Mutex // guards replacing the tables, mapping.closed and closed
	closed bool       // the link is closed
}

func newRegions() *regions {
	r := &regions{}
	r.own.Store(&[]extent{})
	r.ids.Store(&[]*mapping{})
	return r
}

// Registered implements transport.Region.
func (r *regions) Registered(ptr unsafe.Pointer, n int) (id uint32, offset uint64, ok bool) {
	list := *r.own.Load()
	lo, hi := 0, len(list) // the last extent that begins at or before ptr is lo−1
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if list[mid].base <= uintptr(ptr) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 || n < 0 {
		return 0, 0, false
	}
	e := &list[lo-1]
	off := uintptr(ptr) - e.base
	if off > e.n || uintptr(n) > e.n-off {
		return 0, 0, false
	}
	return e.id, uint64(off), true
}

// Mapped implements transport.Region.
func (r *regions) Mapped(seat int, id uint32, offset uint64, n int) unsafe.Pointer {
	list := *r.ids.Load()
	if id == 0 || uint64(id) > uint64(len(list)) || n < 0 {
		return nil
	}
	m := list[id-1]
	if m == nil || uint(seat) >= uint(len(m.parts)) {
		return nil
	}
	p := &m.parts[seat]
	if offset > p.n || uint64(n) > p.n-offset || p.base == nil {
		return nil
	}
	return unsafe.Add(p.base, offset)
}

// add makes a buffer known.
func (r *regions) add(m *mapping) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := slices.Clone(*r.ids.Load())
	for len(ids) < int(m.id) {
		ids = append(ids, nil)
	}
	ids[m.id-1] = m
	r.ids.Store(&ids)
	if p := m.parts[m.seat]; p.n > 0 {
		own := append(slices.Clone(*r.own.Load()), extent{uintptr(p.base), uintptr(p.n), m.id})
		slices.SortFunc(own, func(a, b extent) int {
			if a.base < b.base {
				return -1
			}
			return 1
		})
		r.own.Store(&own)
	}
}

// forget takes a buffer out of the look-up by address: nothing announces it from now
// on. It reports whether the link is closed, so that nobody will free it.
func (r *regions) forget(m *mapping) (linkClosed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := slices.DeleteFunc(slices.Clone(*r.own.Load()), func(e extent) bool { return e.id == m.id })
	r.own.Store(&own)
	m.closed = true
	return r.closed
}

// free unmaps a buffer that no rank announces any more.
func (r *regions) free(id uint32) {
	r.mu.Lock()
	ids := slices.Clone(*r.ids.Load())
	var m *mapping
	if id >= 1 && int(id) <= len(ids) {
		m, ids[id-1] = ids[id-1], nil
	}
	r.ids.Store(&ids)
	r.mu.Unlock()
	if m != nil {
		m.unmap(true, true)
	}
}

// closeLink lets buffers unmap themselves from now on.
func (r *regions) closeLink() {
	r.mu.Lock()
	var done []*mapping
	if !r.closed {
		for _, m := range *r.ids.Load() {
			if m != nil && m.closed {
				done = append(done, m)
			}
		}
	}
	r.closed = true
	r.mu.Unlock()
	for _, m := range done {
		m.unmap(true, false)
	}
}

// unmapOthers unmaps what is left of the other ranks' parts; nobody uses the board
// any more.
func (r *regions) unmapOthers() {
	for _, m := range *r.ids.Load() {
		if m != nil {
			m.unmap(false, true)
		}
	}
}

func (m *mapping) unmap(own, others bool) {
	for seat := range m.parts {
		p := &m.parts[seat]
		if p.mem != nil && (seat == m.seat && own || seat != m.seat && others) {
			unix.Munmap(p.mem)
			p.mem = nil
		}
	}
}
