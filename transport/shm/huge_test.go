//go:build linux

package shm

import (
	"bytes"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestRecurringMemoryIsMovedOnce(t *testing.T) {
	const size = 8 << 20
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := unix.Madvise(mem, unix.MADV_NOHUGEPAGE); err != nil { // small pages, whatever this system's habit is
		t.Fatal(err)
	}
	for i := range mem {
		mem[i] = byte(i>>12 + i)
	}
	was := bytes.Clone(mem)
	if err := unix.Madvise(mem, unix.MADV_HUGEPAGE); err != nil {
		t.Fatal(err)
	}
	at := unsafe.Pointer(unsafe.SliceData(mem))
	var p peeker
	for i := 1; i < recurrences; i++ {
		if p.large(at, size) {
			t.Fatalf("the memory is on huge pages after %d reductions, before it was moved", i)
		}
	}
	moved := p.large(at, size)
	if !bytes.Equal(mem, was) {
		t.Fatal("moving the memory changed it")
	}
	if now := p.onHuge(at, size); now != moved {
		t.Fatalf("large says %t and the system says %t", moved, now)
	}
	for range 3 {
		if p.habit.recurs(at, size) {
			t.Fatal("the memory would be moved again")
		}
	}
	t.Logf("moved: %t", moved)
}

func TestManyTensorsDoNotRecur(t *testing.T) {
	var h habit
	var mem [64]byte
	for range 3 * recurrences {
		for i := range len(h.seen) + 1 { // one more than are remembered
			if h.recurs(unsafe.Pointer(&mem[i]), 64) {
				t.Fatal("a tensor whose turn comes too seldom would be moved")
			}
		}
	}
	for i := 1; i <= recurrences; i++ {
		if got := h.recurs(unsafe.Pointer(&mem[40]), 64); got != (i == recurrences) {
			t.Fatalf("reduction %d: move %t", i, got)
		}
	}
	if h.recurs(unsafe.Pointer(&mem[40]), 32) {
		t.Fatal("another size at the same address counts as the same memory")
	}
}
