//go:build linux && amd64 && !purego && !race

package transport

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// witness is a Waiter that notes who went to sleep and who was woken. Its sleep ends when
// the publisher is through with its round, woken or not: a publisher that lost its processor
// before it published still finds the sleeper counted. The kernel's futex looks at the word
// once more, some hundred nanoseconds later, by when a delayed store has all but always
// arrived: with it a missing fence would show once in a very long while.
type witness struct{ slept, woken, round *atomic.Uint64 }

func (w witness) Wait(*uint32, uint32, time.Duration) {
	w.slept.Add(1)
	for w.round.Load()&published == 0 {
	}
}
func (w witness) Wake(*uint32) { w.woken.Add(1) }
func (witness) Yield()         {}

// published marks a round that the publisher is through with.
const published = 1 << 63

// membarrier makes Fence's system call; command 4 has it reach this process.
func membarrier(command uintptr) bool {
	_, _, e := unix.Syscall(unix.SYS_MEMBARRIER, command, 0, 0)
	return e == 0
}

func bindTo(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(0, &set)
}

// TestWhoSleepsFencesWhoPublishes has one seat publish by plain stores while another
// goes to sleep on the same word, on two processors. The publisher has a few stores to
// lines of the other one before it, as it has after filling a slot: until they are
// through its word waits in the store buffer, and it has long looked at sleepers.
// Without the fence that loses a wake-up in some rounds of a thousand (the test counts
// them too, and says how many); with it in none.
func TestWhoSleepsFencesWhoPublishes(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil || all.Count() < 2 || !membarrier(4) {
		t.Skip("needs two processors and membarrier")
	}
	rounds, lost := lostWakeUps(t, &all, func() {}, 300*time.Millisecond)
	t.Logf("without a fence: %d of %d wake-ups lost", lost, rounds)
	rounds, lost = lostWakeUps(t, &all, func() { membarrier(2) }, 700*time.Millisecond)
	t.Logf("with it: %d of %d", lost, rounds)
	if lost > 0 {
		t.Errorf("%d of %d wake-ups were lost", lost, rounds)
	}
}

func lostWakeUps(t *testing.T, cpus *unix.CPUSet, fence func(), span time.Duration) (rounds, lost int) {
	t.Helper()
	var slept, woken atomic.Uint64
	var round, ready atomic.Uint64 // what the publisher is at, what the sleeper has done
	mem := aligned(BoardSize(2, BoardConfig{}))
	var b [2]*Board
	for i := range b {
		cfg := BoardConfig{Waiter: witness{&slept, &woken, &round}, Fence: fence, Fenced: true}
		var err error
		if b[i], err = NewBoard(mem, 2, i, cfg); err != nil {
			t.Fatal(err)
		}
	}
	var two [2]int // processors
	for cpu, found := 0, 0; found < 2; cpu++ {
		if cpus.IsSet(cpu) {
			two[found] = cpu
			found++
		}
	}
	slot := unsafe.Slice((*uint64)(unsafe.Pointer(&b[0].Slot(0, 0)[0])), 4096)
	var over atomic.Bool
	done := make(chan struct{})
	go func() { // the publisher: seat 0
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with its affinity
		_ = bindTo(two[0])
		for at := uint64(1); ; at++ {
			for ready.Load() != at {
				if over.Load() {
					return
				}
			}
			b[0].Begin(Stamp{Seq: at}, time.Time{})
			round.Store(at)
			for i := 0; i < 8; i++ {
				slot[64*i] = at
			}
			b[0].Post(1)
			round.Store(at | published)
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if bindTo(two[1]) == nil {
		defer func() { _ = unix.SchedSetaffinity(0, cpus) }()
	}
	p := &b[0].control[0].progress
	for end := time.Now().Add(span); ; rounds++ {
		at := uint64(rounds + 1)
		if at&63 == 0 && time.Now().After(end) {
			break
		}
		for i := 0; i < 8; i++ {
			slot[64*i+1] = at // these lines are the sleeper's now
		}
		v := atomic.LoadUint64(p)
		wokenBefore, sleptBefore := woken.Load(), slept.Load()
		ready.Store(at)
		for round.Load() != at && round.Load() != at|published {
		}
		for range at % 97 {
			pause(0)
		}
		b[1].sleep(b[0].control[0], p, v, at<<24|1<<1, time.Second)
		for round.Load() != at|published {
		}
		if slept.Load() != sleptBefore && woken.Load() == wokenBefore {
			lost++
		}
	}
	over.Store(true)
	<-done
	return rounds, lost
}
