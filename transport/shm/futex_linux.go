package shm

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hora/transport"
)

const (
	futexWait = 0 // not private: the word is shared with other processes
	futexWake = 1

	membarrierGlobalExpedited         = 1 << 1
	membarrierRegisterGlobalExpedited = 1 << 2
)

// longTurn, in ticks, is 0.3 to 1 ms: so long a turn of others on this processor is none of
// small operations, but of somebody who computes.
const longTurn = 1 << 20

// futex is the Waiter of real processes.
type futex struct {
	crowd atomic.Bool // the last yield was a long turn
}

// Wait sleeps under Syscall, so that the Go scheduler gives the processor token to
// others and the collector can stop the world meanwhile; under RawSyscall it could
// not until the sleep ends.
func (*futex) Wait(word *uint32, old uint32, timeout time.Duration) {
	ts := unix.NsecToTimespec(int64(max(timeout, 0)))
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(old),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// Wake wakes all who sleep on word. It never sleeps itself.
func (*futex) Wake(word *uint32) {
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, math.MaxInt32, 0, 0, 0)
}

// Yield is a Syscall while the others' turns are long, so that collector and goroutines need
// not wait for them, and a RawSyscall while they are short. Under Syscall the scheduler's
// watch finds the goroutine in a system call whenever it looks, takes its processor token, and then
// looks every 20 µs for a millisecond and more: with four ranks on two processors up to 95
// wake-ups a millisecond, and half of the time of a small operation.
func (f *futex) Yield() {
	began := transport.Ticks()
	crowd := f.crowd.Load()
	if crowd {
		unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	} else {
		unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
	if long := transport.Ticks()-began > longTurn; long != crowd {
		f.crowd.Store(long)
	}
}

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
