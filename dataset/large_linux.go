package dataset

import (
	"syscall"
	"unsafe"
)

// large asks for large pages under a block's memory: its rows are read at random, and
// with small ones each of them costs a walk through the page tables.
func large(b []byte) {
	const huge = 2 << 20
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	skip := int(-at & (huge - 1))
	if n := (len(b) - skip) &^ (huge - 1); n > 0 {
		_ = syscall.Madvise(b[skip:skip+n], syscall.MADV_HUGEPAGE) // a kernel without them goes on without
	}
}
