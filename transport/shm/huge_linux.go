package shm

import (
	"os"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Allocators leave large tensors on small pages, where reading them through the system takes a fifth
// longer. Moving 64 MiB to huge pages takes as long as a dozen such reads save, so it is done for
// memory that recurs, and once: what lies at a known address may be another tensor each time,
// and gains nothing.

// recurrences is how often memory has been reduced when it is moved.
const recurrences = 4

// habit remembers the memory that was reduced last.
type habit struct {
	next int
	seen [16]struct {
		at    uintptr
		bytes int
		times int
	}
}

// recurs counts one more reduction of that memory and reports that now is the time to move it.
func (h *habit) recurs(at unsafe.Pointer, n int) bool {
	for i := range h.seen {
		if e := &h.seen[i]; e.at == uintptr(at) && e.bytes == n {
			e.times = min(e.times+1, recurrences+1)
			return e.times == recurrences
		}
	}
	e := &h.seen[h.next]
	h.next = (h.next + 1) % len(h.seen)
	e.at, e.bytes, e.times = uintptr(at), n, 1
	return false
}

// hugeAllowed reports that whoever runs this system lets programs ask for huge pages. The request
// itself would not look.
var hugeAllowed = sync.OnceValue(func() bool {
	enabled, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	return err == nil && !strings.Contains(string(enabled), "[never]")
})

// gather asks the system to move what lies in whole huge pages there, contents and all (Linux 6.1).
func gather(at unsafe.Pointer, n int) bool {
	from := (uintptr(at) + hugePage - 1) &^ (hugePage - 1)
	to := (uintptr(at) + uintptr(n)) &^ (hugePage - 1)
	if from >= to || !hugeAllowed() {
		return false
	}
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_COLLAPSE)
	return errno == 0
}
