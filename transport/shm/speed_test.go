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
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var payload [4]byte
	op := func(seq uint64) error {
		b := l.board
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
	}
	const warm = 1000
	for seq := range uint64(warm) {
		if err := op(1000 + seq); err != nil {
			return "", err
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	least := time.Hour
	const rounds = 20
	start := time.Now()
	for r := range rounds {
		t := time.Now()
		for i := range n / rounds {
			if err := op(uint64(2000 + warm + r*(n/rounds) + i)); err != nil {
				return "", err
			}
		}
		least = min(least, time.Since(t))
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	return fmt.Sprintf("%d %d %d", took.Nanoseconds()/int64(n), least.Nanoseconds()*rounds/int64(n), after.Mallocs-before.Mallocs), nil
}

// BenchmarkArrive is the whole of a 4-byte operation between two bound processes; run
// it under chrt -r 5.
func BenchmarkArrive(b *testing.B) {
	if runtime.NumCPU() < 2 {
		b.Skip("one processor")
	}
	ranks := startJob(b, 2, role{CPU: 0})
	n := max(b.N, 100000)
	for _, p := range ranks {
		p.tell(fmt.Sprintf("pingpong %d", n))
	}
	for i, p := range ranks {
		line := p.want(60*time.Second, "ok")
		var mean, least, mallocs float64
		fmt.Sscan(strings.TrimPrefix(line, "ok "), &mean, &least, &mallocs)
		if i == 0 {
			b.ReportMetric(mean, "mean-ns/op")
			b.ReportMetric(least, "least-ns/op")
			b.ReportMetric(mallocs/float64(n), "mallocs/op")
		}
	}
}
