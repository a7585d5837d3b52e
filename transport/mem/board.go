package mem

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"hora/transport"
)

// segment is the memory that the ranks of one host share.
type segment struct {
	seats []int    // group ranks
	mem   []uint64 // a Board over its bytes; uint64 for alignment
	wait  waiter

	// mu guards buffers: by seat, the registered memory of each id.
	mu      sync.RWMutex
	buffers [][][]byte
}

func (c *Cluster) addBoards(hosts int) error {
	c.board = make([]*segment, hosts)
	c.left = make([]bool, len(c.nodes))
	c.silent = make([]bool, len(c.nodes))
	for h := range hosts {
		var seats []int
		for r, host := range c.host {
			if host == h {
				seats = append(seats, r)
			}
		}
		if len(seats) < 2 {
			continue
		}
		cfg := c.cfg.Board
		cfg.Ranks, cfg.Host = seats, hostName(h)
		cfg.Oversubscribed, cfg.Spin, cfg.PeerTimeout = true, -1, c.cfg.PeerTimeout
		cfg.RingBytes = 4096 // messages take this package's queues
		s := &segment{seats: seats, buffers: make([][][]byte, len(seats))}
		s.wait.cond = sync.NewCond(&s.wait.mu)
		s.mem = make([]uint64, (transport.BoardSize(len(seats), cfg)+64)/8+1)
		raw := unsafe.Slice((*byte)(unsafe.Pointer(&s.mem[0])), len(s.mem)*8)
		raw = raw[-uintptr(unsafe.Pointer(&raw[0]))&63:]
		c.board[h] = s
		for seat, r := range seats {
			own := cfg
			own.Waiter = &s.wait
			own.Regions = region{s, seat}
			own.Failure = c.nodes[r].failure
			own.Lost = func(seat int) bool { return c.isLost(seats[seat]) }
			b, err := transport.NewBoard(raw, len(seats), seat, own)
			if err != nil {
				return fmt.Errorf("build board of host %d: %w", h, err)
			}
			c.nodes[r].board = b
			b.OnFail(func(err error) { c.nodes[r].Fail(err) })
		}
	}
	return nil
}

// Buffer is memory of n bytes that the ranks on this rank's host map, so that
// operations on it take the registered paths.
func (c *Cluster) Buffer(rank, n int) []byte {
	words := make([]uint64, n/8+9)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
	b = b[-uintptr(unsafe.Pointer(&b[0]))&63:][:n]
	s := c.board[c.host[rank]]
	if s == nil {
		return b
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for seat, r := range s.seats {
		if r == rank {
			s.buffers[seat] = append(s.buffers[seat], b)
		}
	}
	return b
}

// region is one seat's view of the registered memory.
type region struct {
	s    *segment
	seat int
}

func (r region) Registered(ptr unsafe.Pointer, n int) (uint32, uint64, bool) {
	r.s.mu.RLock()
	defer r.s.mu.RUnlock()
	for id, b := range r.s.buffers[r.seat] {
		off := uintptr(ptr) - uintptr(unsafe.Pointer(unsafe.SliceData(b)))
		if off <= uintptr(len(b)) && uintptr(n) <= uintptr(len(b))-off {
			return uint32(id), uint64(off), true
		}
	}
	return 0, 0, false
}

func (r region) Mapped(seat int, id uint32, offset uint64, n int) unsafe.Pointer {
	r.s.mu.RLock()
	defer r.s.mu.RUnlock()
	if seat >= len(r.s.buffers) || int(id) >= len(r.s.buffers[seat]) {
		return nil
	}
	b := r.s.buffers[seat][id]
	if offset+uint64(n) > uint64(len(b)) {
		return nil
	}
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), offset)
}

// waiter is a futex made of one condition variable for all words.
type waiter struct {
	mu   sync.Mutex // makes the look at the word and the sleep one step
	cond *sync.Cond
}

func (w *waiter) Wait(word *uint32, old uint32, timeout time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if atomic.LoadUint32(word) != old {
		return
	}
	alarm := time.AfterFunc(timeout, w.wakeAll)
	w.cond.Wait()
	alarm.Stop()
}

func (w *waiter) Wake(*uint32) { w.wakeAll() }

// Yield does nothing: goroutines that wait soon sleep.
func (w *waiter) Yield() {}

func (w *waiter) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock() // whoever was about to wait is waiting now
	w.cond.Broadcast()
}
