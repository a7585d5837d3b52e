//go:build linux

package shm

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hora/transport"
)

// patient sleeps until it is woken, for two seconds instead of a slice, and counts
// the times that nobody woke it although the word had changed.
type patient struct{ sleeps, wakes, lost *atomic.Int64 }

func (p patient) Wait(word *uint32, old uint32, _ time.Duration) {
	p.sleeps.Add(1)
	ts := unix.NsecToTimespec(int64(2 * time.Second))
	_, _, e := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(old),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
	if e == unix.ETIMEDOUT && atomic.LoadUint32(word) != old {
		p.lost.Add(1)
	}
}

func (p patient) Wake(word *uint32) {
	p.wakes.Add(1)
	new(futex).Wake(word)
}
func (patient) Yield() { new(futex).Yield() }

// TestNoWakeUpIsLost runs random histories on boards whose waits hardly poll.
func TestNoWakeUpIsLost(t *testing.T) {
	for seats := 2; seats <= 4; seats++ {
		for _, fenced := range []bool{false, true} {
			t.Run(fmt.Sprint(seats, " fenced ", fenced), func(t *testing.T) { noWakeUpIsLost(t, seats, fenced) })
		}
	}
}

func noWakeUpIsLost(t *testing.T, seats int, byFence bool) {
	if byFence && !fenced() {
		t.Skip("the system has no membarrier")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var sleeps, wakes, lost atomic.Int64
	cfg := transport.BoardConfig{Waiter: patient{&sleeps, &wakes, &lost}, Spin: -1, RingBytes: 4096}
	if byFence {
		cfg.Fence, cfg.Fenced = fence, true
	}
	mem := make([]byte, transport.BoardSize(seats, cfg)+64)
	mem = mem[64-uintptr(unsafe.Pointer(&mem[0]))%64:]
	boards := make([]*transport.Board, seats)
	for i := range boards {
		var err error
		if boards[i], err = transport.NewBoard(mem, seats, i, cfg); err != nil {
			t.Fatal(err)
		}
	}
	ops := 1000
	if testing.Short() {
		ops = 150
	}
	each(t, seats, func(i int) error {
		err := history(boards[i], seed, ops)
		if err != nil {
			boards[i].Fail(err) // so that the others end too
		}
		return err
	})
	t.Logf("%d sleeps, %d wake-ups", sleeps.Load(), wakes.Load())
	if lost.Load() > 0 {
		t.Errorf("%d wake-ups were lost (seed %d)", lost.Load(), seed)
	}
	if sleeps.Load() == 0 {
		t.Error("nobody ever slept")
	}
}

// history runs the operations that seed means, which are the same on every seat, with
// delays of its own.
func history(b *transport.Board, seed uint64, ops int) error {
	common := rand.New(rand.NewPCG(seed, 0))
	own := rand.New(rand.NewPCG(seed, uint64(b.Seat())+1))
	n, me := b.Seats(), b.Seat()
	for seq := uint64(1); seq <= uint64(ops); seq++ {
		b.Begin(transport.Stamp{Seq: seq, Print: seq}, time.Time{})
		for range own.IntN(4) * own.IntN(200) {
			unix.Getpid() // a while
		}
		b.Arrive([]byte{byte(me)})
		for i := range n { // every rank reads every header of every operation
			seat := (me + i) % n
			in, _, err := b.AwaitArrival(seat, -1)
			if err != nil || in[0] != byte(seat) {
				return fmt.Errorf("arrival of %d in %d: %v %w", seat, seq, in, err)
			}
		}
		switch common.IntN(3) {
		case 1:
			for phase := uint32(1); phase <= 3; phase++ {
				b.Post(phase)
				if err := b.AwaitAll(phase); err != nil {
					return err
				}
			}
		case 2:
			size, shift := common.IntN(20000), 1+common.IntN(n-1)
			out, in := make([]byte, size), make([]byte, size)
			for k := range out {
				out[k] = byte(me)
			}
			from := (me - shift + n) % n
			if err := b.Exchange((me+shift)%n, out, from, in); err != nil {
				return err
			}
			for _, v := range in {
				if v != byte(from) {
					return fmt.Errorf("%d came from %d in %d", v, from, seq)
				}
			}
		}
	}
	return nil
}
