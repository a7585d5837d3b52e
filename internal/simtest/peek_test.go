//go:build linux

package simtest

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"hora/collective"
	"hora/tensor"
	"hora/transport/shm"
)

// peekAll sums tensors of many lengths and types, in place and not, and looks at every element.
func peekAll(link *shm.Link, p *process) (string, error) {
	for _, bytes := range []int{128, 200, 4096, 1<<20 - 8, 1 << 20, 1<<20 + 8, 3<<20 + 24} {
		for _, op := range []tensor.Op{tensor.Sum, tensor.Average, tensor.Max} {
			for _, inPlace := range []bool{true, false} {
				for _, err := range []error{
					peekOne[float32](link, p, tensor.Float32, bytes, op, inPlace),
					peekOne[int8](link, p, tensor.Int8, bytes, op, inPlace),
					peekOne[float64](link, p, tensor.Float64, bytes, op, inPlace),
				} {
					if err != nil {
						return "", fmt.Errorf("%d bytes, %v, in place %v: %w", bytes, op, inPlace, err)
					}
				}
			}
		}
	}
	for _, advice := range []int{unix.MADV_NOHUGEPAGE, unix.MADV_HUGEPAGE} {
		if err := peekLarge(link, p, advice); err != nil {
			return "", err
		}
	}
	reduced := link.Board().Traffic().BytesSent
	defer collecting()()
	for _, bytes := range blocks {
		if err := errors.Join(peekMove(link, p, collective.Allgather, bytes),
			peekMove(link, p, collective.Alltoall, bytes), peekSpread(link, p, bytes)); err != nil {
			return "", fmt.Errorf("blocks of %d bytes: %w", bytes, err)
		}
	}
	return fmt.Sprint(reduced, link.Board().Traffic().BytesSent-reduced, 0), nil
}

// collecting frees what nothing uses, again and again until it is ended: a rank that has no more use for its block
// keeps it all the same while the other reads it.
func collecting() (end func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-over:
				return
			default:
				debug.FreeOSMemory()
			}
		}
	}()
	return func() { close(over); <-ended }
}

// blocks are the lengths that peekAll moves, by allgather, by alltoall and by broadcast.
var blocks = [...]int{128, 200, 4096, 1<<20 - 8, 1 << 20, 1<<20 + 8, 3<<20 + 24}

// peekMove moves blocks of that many bytes and looks at each byte.
func peekMove(link *shm.Link, p *process, kind collective.Kind, bytes int) error {
	me := link.Rank()
	value := func(from, to, i int) uint8 { return uint8(i*7 + 100*from + 50*to + bytes) }
	send, recv := make([]uint8, bytes), make([]uint8, 2*bytes)
	if kind == collective.Alltoall {
		send = make([]uint8, 2*bytes)
	}
	to := func(rank int) int { // of allgather a block goes to everybody
		if kind == collective.Alltoall {
			return rank
		}
		return 0
	}
	for i := range send {
		send[i] = value(me, i/bytes, i%bytes)
	}
	if err := p.run(&collective.Call{
		Kind: kind, Type: tensor.Uint8, Send: tensor.Of(send),
		Recv: tensor.Of(recv),
	}); err != nil {
		return err
	}
	for i := range recv {
		if want := value(i/bytes, to(me), i%bytes); recv[i] != want {
			return fmt.Errorf("%v: byte %d is %d, want %d", kind, i, recv[i], want)
		}
	}
	return nil
}

// peekSpread gives that many bytes to the other, from either rank, and looks at each byte and at those around them.
func peekSpread(link *shm.Link, p *process, bytes int) error {
	for root := range 2 {
		value := func(i int) uint8 { return uint8(i*11 + root + bytes) }
		around := make([]uint8, bytes+128)
		x := around[64 : 64+bytes]
		call := &collective.Call{Kind: collective.Broadcast, Type: tensor.Uint8, Root: root, Recv: tensor.Of(x)}
		if link.Rank() == root {
			for i := range x {
				x[i] = value(i)
			}
			call.Send = tensor.Of(x)
		}
		if err := p.run(call); err != nil {
			return err
		}
		for i, got := range around {
			want := uint8(0)
			if i >= 64 && i < 64+bytes {
				want = value(i - 64)
			}
			if got != want {
				return fmt.Errorf("broadcast from %d: byte %d is %d, want %d", root, i-64, got, want)
			}
		}
	}
	return nil
}

// peekLarge sums what is read through the system only if it lies on huge pages, and small
// pages count as no others.
func peekLarge(link *shm.Link, p *process, advice int) error {
	mem, err := unix.Mmap(-1, 0, 20<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	defer unix.Munmap(mem)
	_ = unix.Madvise(mem, advice) // a kernel without huge pages refuses
	x := unsafe.Slice((*float32)(unsafe.Pointer(&mem[8])), 4<<20+5)
	for i := range x {
		x[i] = float32(i&255 + link.Rank())
	}
	v := tensor.Of(x)
	if advice == unix.MADV_NOHUGEPAGE && link.Board().Large(v.Ptr, v.Len()) {
		return errors.New("memory on small pages passes for large")
	}
	if err := p.run(&collective.Call{
		Kind: collective.Allreduce, Op: tensor.Sum, Type: v.Type, Send: v,
		Recv: v,
	}); err != nil {
		return err
	}
	for i := range x {
		if want := float32(2*(i&255) + 1); x[i] != want {
			return fmt.Errorf("element %d of 16 MiB is %v, want %v", i, x[i], want)
		}
	}
	return nil
}

func peekOne[T float32 | float64 | int8](link *shm.Link, p *process, t tensor.DType, bytes int, op tensor.Op,
	inPlace bool,
) error {
	var zero T
	n := bytes / int(unsafe.Sizeof(zero))
	send := make([]T, n)
	recv := send
	if !inPlace {
		recv = make([]T, n)
	}
	value := func(rank, i int) T { return T(2*(i*7&15) + 4*rank) }
	for i := range send {
		send[i] = value(link.Rank(), i)
	}
	call := &collective.Call{Kind: collective.Allreduce, Op: op, Type: t, Send: tensor.Of(send), Recv: tensor.Of(recv)}
	if op == tensor.Sum && t != tensor.Int8 {
		call.Post = 2
	}
	if err := p.run(call); err != nil {
		return err
	}
	for i := range recv {
		want := value(0, i) + value(1, i)
		switch {
		case op == tensor.Average:
			want /= 2
		case op == tensor.Max:
			want = value(1, i)
		case call.Post != 0:
			want *= 2
		}
		if recv[i] != want || !inPlace && send[i] != value(link.Rank(), i) {
			return fmt.Errorf("element %d of %d is %v, want %v", i, n, recv[i], want)
		}
	}
	return nil
}

// TestPeek: of two ranks each reads the other's private memory, where the system lets them,
// and all sums are right whether it does or not.
func TestPeek(t *testing.T) {
	const both = ";allgather:0-=peek;alltoall:0-=peek;broadcast:0-=peek"
	for _, c := range []struct {
		table       string
		sums, moves bool
	}{
		{"allreduce:0-=peek" + both, true, true},
		{"allreduce:0-=peek+copy;allgather:0-=twoshot;alltoall:0-=twoshot;broadcast:0-=twoshot", true, false},
		{"allreduce:0-=twoshot" + both, false, true},
	} {
		sent, moved, _ := numbers(t, start(t, 2, c.table, "peek"))
		t.Logf("%s: %d bytes of sums and %d of blocks were read from the other's memory", c.table, sent, moved)
		if yama, _ := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); sent+moved == 0 && len(yama) > 0 && yama[0] != '0' {
			t.Skip("needs process_vm_readv: a policy of this system keeps processes from reading each other")
		}
		if c.sums != (sent > 0) {
			t.Errorf("%s: %d bytes of sums counted as read from the other's memory", c.table, sent)
		}
		// The first block of all goes by parts where no sum has tried before.
		all := 0
		for _, bytes := range blocks {
			all += 2*bytes + bytes // two broadcasts, of each of which a rank moves half
		}
		if c.moves && moved < all-blocks[0] || moved > all || !c.moves && moved > 0 {
			t.Errorf("%s: %d bytes of blocks counted as read from the other's memory, %d were moved", c.table, moved, all)
		}
	}
}
