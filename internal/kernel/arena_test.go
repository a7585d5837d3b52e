//go:build unix

package kernel

import (
	"bytes"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
)

// arena is memory between two pages that fault when touched. What lies around a range that was
// handed out is painted, so that a stray write shows even where it does not fault.
type arena struct{ data []byte }

const paint = 0xa5

func newArena(t testing.TB, size int) *arena {
	page := os.Getpagesize()
	size = (size + page - 1) / page * page
	all, err := syscall.Mmap(-1, 0, size+2*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatalf("map %d bytes: %v", size, err)
	}
	for _, guard := range [][]byte{all[:page], all[page+size:]} {
		if err := syscall.Mprotect(guard, syscall.PROT_NONE); err != nil {
			t.Fatalf("protect a guard page: %v", err)
		}
	}
	t.Cleanup(func() { _ = syscall.Munmap(all) })
	a := &arena{data: all[page : page+size : page+size]}
	a.repaint()
	return a
}

func (a *arena) repaint() {
	for i := range a.data {
		a.data[i] = paint
	}
}

// take is n bytes flush with the end, flush with the start, or at any offset.
func (a *arena) take(r *rand.Rand, n int) []byte {
	free := len(a.data) - n
	if n == 0 {
		return a.data[free/2 : free/2 : free/2]
	}
	off := 0
	switch r.IntN(3) {
	case 0:
		off = free
	case 1:
		off = min(r.IntN(70), free)
	}
	return a.data[off : off+n : off+n]
}

// intact reports that the 256 bytes on either side of p are still painted, and paints p.
func (a *arena) intact(p []byte) bool {
	for i := range p {
		p[i] = paint
	}
	at := int(uintptr(ptr(p)) - uintptr(ptr(a.data)))
	around := a.data[max(at-256, 0):min(at+len(p)+256, len(a.data))]
	return bytes.Count(around, []byte{paint}) == len(around)
}
