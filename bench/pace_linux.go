package bench

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// trip measures how long a cache line takes from one of two cores to the other: the best of some hundred round trips
// each, over a few milliseconds. It answers 0 where it cannot run on both, or one of them is too busy to tell.
func trip(cores [2]int) float64 {
	const batches, turns = 5, 1000
	var line [2]struct {
		v atomic.Uint64
		_ [120]byte // its own line, and the next one that a processor may fetch along
	}
	end := time.Now().Add(100 * time.Millisecond)
	// await spins until the line has what is wanted; it looks at the clock now and then, so that a core that somebody
	// else holds costs no more than the time that is given.
	await := func(l *atomic.Uint64, want uint64) bool {
		for spins := 1; l.Load() < want; spins++ {
			if spins%4096 == 0 && time.Now().After(end) {
				return false
			}
		}
		return true
	}
	on := func(core int, do func()) chan struct{} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // and never unlocked: the thread ends with its binding
			var set unix.CPUSet
			set.Set(core)
			if unix.SchedSetaffinity(0, &set) == nil {
				do()
			}
		}()
		return done
	}
	echo := on(cores[1], func() {
		for i := uint64(1); i <= batches*turns && await(&line[0].v, i); i++ {
			line[1].v.Store(i)
		}
	})
	best := 0.0
	<-on(cores[0], func() {
		i := uint64(0)
		for range batches {
			begun := time.Now()
			for range turns {
				i++
				line[0].v.Store(i)
				if !await(&line[1].v, i) {
					return
				}
			}
			if t := float64(time.Since(begun).Nanoseconds()) / (2 * turns); best == 0 || t < best {
				best = t
			}
		}
	})
	line[0].v.Store(batches * turns) // whoever still waits may end
	<-echo
	return best
}
