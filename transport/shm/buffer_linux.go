package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Buffer is memory of this rank that every rank of the host maps: a collective reads
// and writes it where it lies.
type Buffer struct {
	link *Link
	m    *mapping
	once chan struct{} // one token: who takes it closes
}

// Bytes is this rank's part, zero at first. It stays valid until Close, even after
// the link is closed.
func (b *Buffer) Bytes() []byte {
	p := &b.m.parts[b.m.seat]
	return unsafe.Slice((*byte)(p.base), p.n)
}

// Close gives the buffer back: no operation may use it any more. The memory is
// unmapped once all ranks have closed theirs.
func (b *Buffer) Close() error {
	select {
	case <-b.once:
	default:
		return nil
	}
	if b.link.regions.forget(b.m) {
		b.m.unmap(true, false)
		return nil
	}
	b.link.release(b.m.id)
	return nil
}

// Buffer makes n bytes on every rank of the host; all call it, in the same order
// with respect to other calls of Buffer and Adopt (n may differ). If one fails, all
// do.
func (l *Link) Buffer(ctx context.Context, n int) (*Buffer, error) {
	if n < 0 || n > maxBuffer {
		return nil, fmt.Errorf("make shared buffer: %d bytes", n)
	}
	return l.ask(ctx, want{bytes: uint64(n)}, nil, -1)
}

// Adopt registers n bytes at ptr that somebody else has mapped from fd, at offset in
// it (a framework's own shared memory); all ranks of the host call it as they call
// Buffer. fd is not kept. The memory must stay mapped, and the file as long as it
// is, until Close.
func (l *Link) Adopt(ctx context.Context, ptr unsafe.Pointer, n, fd int, offset int64) (*Buffer, error) {
	if n <= 0 || n > maxBuffer || offset < 0 || offset > maxBuffer {
		return nil, fmt.Errorf("adopt shared memory: %d bytes at %d", n, offset)
	}
	if err := sameMemory(ptr, n, fd, offset); err != nil {
		// Ask all the same, for nothing, so that the other ranks fail as well.
		l.ask(ctx, want{adopt: true}, nil, -1)
		return nil, fmt.Errorf("adopt shared memory: %w", err)
	}
	return l.ask(ctx, want{bytes: uint64(n), adopt: true, offset: uint64(offset)}, ptr, fd)
}

// sameMemory checks that ptr really is fd's memory at offset: reducing into
// something else would lose the result.
func sameMemory(ptr unsafe.Pointer, n, fd int, offset int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at its file: %w", err)
	}
	if st.Size < offset+int64(n) {
		return fmt.Errorf("its file has %d bytes, %d are needed", st.Size, offset+int64(n))
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("look at own mappings: %w", err)
	}
	at := uint64(uintptr(ptr))
	for line := range bytes.Lines(maps) {
		m, ok := parseMapping(line)
		if !ok || at < m.from || at >= m.to {
			continue
		}
		if m.inode != st.Ino || m.offset+at-m.from != uint64(offset) || m.to-at < uint64(n) || !m.shared {
			return errors.New("the address is not a shared mapping of this file at this offset")
		}
		return nil
	}
	return errors.New("the address is not mapped")
}

type mapLine struct {
	from, to, offset, inode uint64
	shared                  bool
}

// parseMapping reads a line of /proc/self/maps: from-to perms offset device inode.
func parseMapping(line []byte) (m mapLine, ok bool) {
	f := bytes.Fields(line)
	if len(f) < 5 {
		return m, false
	}
	from, to, ok := bytes.Cut(f[0], []byte("-"))
	var errs [4]error
	m.from, errs[0] = strconv.ParseUint(string(from), 16, 64)
	m.to, errs[1] = strconv.ParseUint(string(to), 16, 64)
	m.offset, errs[2] = strconv.ParseUint(string(f[2]), 16, 64)
	m.inode, errs[3] = strconv.ParseUint(string(f[4]), 10, 64)
	m.shared = len(f[1]) == 4 && f[1][3] == 's'
	return m, ok && errors.Join(errs[:]...) == nil
}

// mapBuffer maps everybody's part. own is where this rank's part already is, nil if
// it is to be mapped as well.
func (l *Link) mapBuffer(a placement, fds []int, own unsafe.Pointer) (*mapping, error) {
	if len(a.places) != l.seats {
		return nil, fmt.Errorf("map shared buffer: %d places for %d ranks", len(a.places), l.seats)
	}
	m := &mapping{id: a.id, seat: l.seat, parts: make([]part, l.seats)}
	for seat, at := range a.places {
		p := &m.parts[seat]
		if at.bytes == 0 {
			continue
		}
		if seat == l.seat && own != nil {
			p.base, p.n = own, at.bytes
			continue
		}
		if err := p.mapPlace(fds[at.fd], at); err != nil {
			m.unmap(true, true)
			return nil, err
		}
		if seat == l.seat { // its owner touches it first, so it lies near its owner
			if err := populate(p.mem); err != nil {
				m.unmap(true, true)
				return nil, fmt.Errorf("make %d bytes of shared memory: %w", at.bytes, err)
			}
		}
	}
	return m, nil
}

func (p *part) mapPlace(fd int, at place) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("map shared buffer: %w", err)
	}
	if uint64(st.Size) < at.offset+at.bytes {
		return fmt.Errorf("map shared buffer: it has %d bytes, %d are needed", st.Size, at.offset+at.bytes)
	}
	skip := at.offset % pageBytes
	mem, err := unix.Mmap(fd, int64(at.offset-skip), int(at.bytes+skip), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map shared buffer of %d bytes: %w", at.bytes, err)
	}
	p.mem, p.base, p.n = mem, unsafe.Pointer(&mem[skip]), at.bytes
	return nil
}
