package shm

import (
	"math"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	futexWait = 0 // not private: the word is shared with other processes
	futexWake = 1

	membarrierGlobalExpedited         = 1 << 1
	membarrierRegisterGlobalExpedited = 1 << 2
)

// futex is the Waiter of real processes. It has no state.
type futex struct{}

// Wait sleeps under Syscall, so that the Go scheduler gives the processor token to
// others and the collector can stop the world meanwhile; under RawSyscall it could
// not until the sleep ends.
func (futex) Wait(word *uint32, old uint32, timeout time.Duration) {
	ts := unix.NsecToTimespec(int64(max(timeout, 0)))
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(old),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// Wake wakes all who sleep on word. It never sleeps itself.
func (futex) Wake(word *uint32) {
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, math.MaxInt32, 0, 0, 0)
}

// Yield may take a whole time slice, so it is a Syscall too.
func (futex) Yield() { unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// thisCPU is the processor that the calling thread runs on.
func thisCPU() int {
	var cpu uint32
	unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0)
	return int(cpu)
}

// fenced reports whether fence orders the memory accesses of processes, and has it
// reach this one from now on. Threads that run are interrupted, all others passed a
// fence when they were switched out. The first call of a process with several threads
// takes the kernel some 10 ms, so Listen begins it while the ranks still meet; callers
// at the same time wait for the same one.
var fenced = sync.OnceValue(func() bool {
	_, _, e := unix.Syscall(unix.SYS_MEMBARRIER, membarrierRegisterGlobalExpedited, 0, 0)
	return e == 0
})

// fence takes some microseconds: a sleep costs more.
func fence() {
	unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobalExpedited, 0, 0)
}
