//go:build linux

package shm

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"hora/transport"
)

// pingPong times operations of 4 bytes, each an arrival awaited from everybody (as
// an allreduce is), and counts what they allocate.
func pingPong(l *Link, arg string) (string, error) {
	n := 0
	fmt.Sscan(arg, &n)
	var payload [4]byte
	b := l.board
	return timed(n, func(seq uint64) error {
		l.Begin(transport.Stamp{Seq: seq, Print: 3}, time.Time{})
		b.Arrive(payload[:])
		for seat := range b.Seats() {
			in, _, err := b.AwaitArrival(seat, -1)
			if err != nil {
				return err
			}
			payload[0] += in[0]
		}
		b.Count(4, 4)
		return nil
	})
}

// exchange times messages of that size in both directions at once.
func exchange(l *Link, arg string) (string, error) {
	var bytes, n int
	fmt.Sscan(arg, &bytes, &n)
	out, in := make([]byte, bytes), make([]byte, bytes)
	peer := 1 - l.seat
	return timed(n, func(seq uint64) error {
		l.Begin(transport.Stamp{Seq: seq}, time.Time{})
		return l.Exchange(peer, out, peer, in)
	})
}

// timed runs op n times in rounds: mean and least time of one in nanoseconds, and
// the allocations of all.
func timed(n int, op func(seq uint64) error) (string, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const rounds = 20
	each := max(n/rounds, 1)
	seq := uint64(0)
	next := func(n int) error {
		for range n {
			seq++
			if err := op(seq); err != nil {
				return err
			}
		}
		return nil
	}
	if err := next(each); err != nil {
		return "", err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	least := time.Hour
	start := time.Now()
	for range rounds {
		t := time.Now()
		if err := next(each); err != nil {
			return "", err
		}
		least = min(least, time.Since(t))
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	return fmt.Sprintf("%d %d %d", took.Nanoseconds()/int64(rounds*each), least.Nanoseconds()/int64(each),
		after.Mallocs-before.Mallocs), nil
}

// BenchmarkArrive is the whole of a 4-byte operation between processes, bound while
// there is a processor for each; run it under chrt -r 5.
func BenchmarkArrive(b *testing.B) {
	for _, n := range []int{2, 4} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			base := role{CPU: -1}
			if n <= runtime.NumCPU() {
				base.CPU = 0
			}
			run(b, n, base, "pingpong")
		})
	}
}

// BenchmarkExchange is a message each way at once over the rings.
func BenchmarkExchange(b *testing.B) {
	for _, bytes := range []int{8, 4 << 10, 64 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprint(bytes), func(b *testing.B) {
			b.SetBytes(int64(bytes))
			run(b, 2, role{CPU: 0}, fmt.Sprintf("exchange %d", bytes))
		})
	}
}

func run(b *testing.B, n int, base role, command string) {
	if base.CPU >= 0 && runtime.NumCPU() < n {
		b.Skip("too few processors")
	}
	ranks := startJob(b, n, base)
	ops := max(b.N, 40)
	b.ResetTimer()
	for _, p := range ranks {
		p.tell(fmt.Sprintf("%s %d", command, ops))
	}
	for i, p := range ranks {
		line := p.want(60*time.Second, "ok")
		var mean, least, mallocs float64
		fmt.Sscan(strings.TrimPrefix(line, "ok "), &mean, &least, &mallocs)
		if i == 0 {
			b.StopTimer()
			b.ReportMetric(mean, "mean-ns/op")
			b.ReportMetric(least, "least-ns/op")
			b.ReportMetric(mallocs/float64(ops), "mallocs/op")
		}
	}
}
