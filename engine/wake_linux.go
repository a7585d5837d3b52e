package engine

import (
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

const futexWakePrivate = 1 | 128 // FUTEX_WAKE | FUTEX_PRIVATE_FLAG

// wakeAll wakes the C threads that sleep on word.
func wakeAll(word *uint32) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWakePrivate, math.MaxInt32, 0, 0, 0)
}
