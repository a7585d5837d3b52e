package kernel

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hora/tensor"
)

// BenchmarkPeers is what shared memory does between two cores: one writes a slot that the other has read
// before, the other reduces from it. Each phase is timed by who does it.
//
//	go test -run '^$' -bench Peers ./internal/kernel
func BenchmarkPeers(b *testing.B) {
	if runtime.NumCPU() < 2 {
		b.Skip("needs two cores")
	}
	for _, n := range []int{16 << 10, 64 << 10, 256 << 10, 1 << 20} {
		for _, write := range []struct {
			name string
			copy func(dst, src unsafe.Pointer, bytes int)
		}{{"copy", Copy}, {"ahead", CopyAhead}, {"stream", CopyStream}} {
			b.Run(fmt.Sprintf("%dKiB/%s", n>>10, write.name), func(b *testing.B) {
				slot, private, result := pages(n), pages(n), pages(n)
				var turn atomic.Int64
				var writing time.Duration
				done := make(chan struct{})
				go func() {
					defer close(done)
					bind(b, 0)
					for i := range int64(b.N) {
						for turn.Load() != 2*i {
						}
						from := time.Now()
						write.copy(ptr(slot), ptr(private), n)
						writing += time.Since(from)
						turn.Store(2*i + 1)
					}
				}()
				bind(b, 1)
				var reducing time.Duration
				for i := range int64(b.N) {
					for turn.Load() != 2*i+1 {
					}
					from := time.Now()
					Reduce(ptr(result), ptr(result), ptr(slot), n/4, tensor.Float32, tensor.Sum)
					reducing += time.Since(from)
					turn.Store(2*i + 2)
				}
				<-done
				b.ReportMetric(float64(n)*float64(b.N)/float64(writing.Nanoseconds()), "GB/s-written")
				b.ReportMetric(float64(n)*float64(b.N)/float64(reducing.Nanoseconds()), "GB/s-reduced")
			})
		}
	}
}

// bind keeps the goroutine on a thread of its own on that core.
func bind(b *testing.B, core int) {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		b.Errorf("bind to core %d: %v", core, err)
	}
}
