//go:build linux

package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hora/internal/secret"
	"hora/transport"
)

// openAll opens n ranks in this process.
func openAll(t *testing.T, n int, change func(*Config)) []*Link {
	t.Helper()
	s := secret.New()
	ln, err := Listen(s, ListenConfig{Job: t.Name(), Host: "h"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	links := make([]*Link, n)
	each(t, n, func(i int) error {
		cfg := Config{Secret: s, Job: t.Name(), Host: "h", Rank: i, Listener: ln, Leader: ln.Addr()}
		for r := range n {
			cfg.Ranks = append(cfg.Ranks, r)
		}
		if change != nil {
			change(&cfg)
		}
		var err error
		links[i], err = Open(ctx, cfg)
		return err
	})
	t.Cleanup(func() {
		for _, l := range links {
			if l != nil {
				l.Close()
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return links
}

// each runs f for every rank at once and fails the test for every error.
func each(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Add(1)
		go func() {
			defer all.Done()
			if err := f(i); err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		}()
	}
	all.Wait()
}

func TestArriveAndPost(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			links := openAll(t, n, nil)
			each(t, n, func(i int) error {
				b := links[i].board
				for seq := uint64(1); seq <= 300; seq++ {
					links[i].Begin(transport.Stamp{Seq: seq, Print: seq * 7}, time.Time{})
					b.Arrive([]byte{byte(i), byte(seq)})
					for seat := range n {
						in, ok, err := b.AwaitArrival(seat, -1)
						if err != nil || !ok || in[0] != byte(seat) || in[1] != byte(seq) {
							return fmt.Errorf("arrival of %d in %d: %v %v %v", seat, seq, in, ok, err)
						}
					}
					copy(b.Slot(i, int(seq)), fmt.Sprintf("%d/%d", i, seq))
					b.Post(1)
					if err := b.AwaitAll(1); err != nil {
						return err
					}
					for seat := range n {
						want := fmt.Sprintf("%d/%d", seat, seq)
						if got := b.Slot(seat, int(seq))[:len(want)]; string(got) != want {
							return fmt.Errorf("slot of %d in %d: %q", seat, seq, got)
						}
					}
				}
				return nil
			})
		})
	}
}

func TestMessages(t *testing.T) {
	links := openAll(t, 3, nil)
	each(t, 3, func(i int) error {
		l, right, left := links[i], (i+1)%3, (i+2)%3
		seq := uint64(0)
		for _, n := range []int{0, 1, 24, 25, 64, 5000, 1 << 20, 3<<20 + 7} {
			seq++
			l.Begin(transport.Stamp{Seq: seq, Print: 1}, time.Time{})
			out := bytes.Repeat([]byte{byte(i), byte(n)}, n/2+1)[:n]
			in := make([]byte, n)
			for range 3 {
				if err := l.Exchange(right, out, left, in); err != nil {
					return err
				}
				if want := bytes.Repeat([]byte{byte(left), byte(n)}, n/2+1)[:n]; !bytes.Equal(in, want) {
					return fmt.Errorf("%d bytes arrived otherwise", n)
				}
			}
		}
		return nil
	})
}

func TestMismatchIsExplainedAndForgotten(t *testing.T) {
	for _, big := range []int{8, 1 << 20} {
		links := openAll(t, 3, nil)
		each(t, 3, func(i int) error {
			l := links[i]
			l.Begin(transport.Stamp{Seq: 1, Print: uint64(10 + i/2)}, time.Time{}) // rank 2 differs
			err := l.Exchange((i+1)%3, make([]byte, big), (i+2)%3, make([]byte, big))
			if err == nil { // rank 1, whose left neighbour agrees with it
				err = l.Exchange((i+2)%3, make([]byte, big), (i+1)%3, make([]byte, big))
			}
			var m *transport.MismatchError
			if !errors.As(err, &m) {
				return fmt.Errorf("exchange: %v", err)
			}
			texts, err := l.Explain(fmt.Appendf(nil, "I am %d", i))
			if err != nil {
				return err
			}
			if got := fmt.Sprintf("%s", texts); got != "[I am 0 I am 1 I am 2]" {
				return errors.New(got)
			}
			l.Begin(transport.Stamp{Seq: 2, Print: 9}, time.Time{})
			in := make([]byte, 4)
			if err := l.Exchange((i+1)%3, []byte("good"), (i+2)%3, in); err != nil || string(in) != "good" {
				return fmt.Errorf("next operation: %q %v", in, err)
			}
			return nil
		})
	}
}

func TestTell(t *testing.T) {
	links := openAll(t, 3, nil)
	heard := make(chan string, 100)
	for i, l := range links {
		l.OnTell(func(from int, msg []byte) { heard <- fmt.Sprintf("%d→%d %d", from, i, len(msg)) })
	}
	want := map[string]bool{}
	for i, l := range links {
		for to := range links {
			for _, n := range []int{0, 5, transport.MaxTell} {
				if err := l.Tell(to, make([]byte, n)); err != nil {
					t.Fatal(err)
				}
				want[fmt.Sprintf("%d→%d %d", i, to, n)] = true
			}
		}
	}
	for range len(want) {
		delete(want, <-heard)
	}
	if len(want) > 0 {
		t.Fatalf("not heard: %v", want)
	}
	if err := links[0].Tell(1, make([]byte, transport.MaxTell+1)); err == nil {
		t.Fatal("a message above the limit was sent")
	}
}

func TestBuffers(t *testing.T) {
	links := openAll(t, 3, nil)
	sizes := []int{100, 0, 5 << 20}
	each(t, 3, func(i int) error {
		l := links[i]
		for round := range 3 {
			buf, err := l.Buffer(t.Context(), sizes[(i+round)%3])
			if err != nil {
				return err
			}
			p := buf.Bytes()
			if len(p) != sizes[(i+round)%3] {
				return fmt.Errorf("%d bytes", len(p))
			}
			id, off := uint32(0), uint64(0)
			if len(p) > 0 {
				p[len(p)-1] = byte(i + 1)
				var ok bool
				id, off, ok = l.board.Registered(unsafe.Pointer(&p[len(p)-1]), 1)
				if !ok || off != uint64(len(p)-1) {
					return fmt.Errorf("registered: %v %v %v", id, off, ok)
				}
				if _, _, ok := l.board.Registered(unsafe.Pointer(&p[0]), len(p)+1); ok {
					return errors.New("more than the buffer is registered")
				}
			}
			seq := uint64(round + 1)
			l.Begin(transport.Stamp{Seq: seq}, time.Time{})
			l.board.Post(1)
			if err := l.board.AwaitAll(1); err != nil {
				return err
			}
			for seat := range 3 {
				n := sizes[(seat+round)%3]
				got := l.board.Mapped(seat, uint32(round+1), uint64(max(n-1, 0)), min(n, 1))
				if n == 0 {
					continue
				}
				if got == nil || *(*byte)(got) != byte(seat+1) {
					return fmt.Errorf("buffer of seat %d: %v", seat, got)
				}
				if l.board.Mapped(seat, uint32(round+1), uint64(n), 1) != nil {
					return errors.New("mapped beyond the end")
				}
			}
			l.board.Post(2)
			if err := l.board.AwaitAll(2); err != nil {
				return err
			}
			if err := buf.Close(); err != nil {
				return err
			}
			if len(p) > 0 {
				if _, _, ok := l.board.Registered(unsafe.Pointer(unsafe.SliceData(p)), 1); ok {
					return errors.New("still registered after Close")
				}
			}
		}
		return nil
	})
}

func TestLeaveFailDeadline(t *testing.T) {
	t.Run("leave", func(t *testing.T) {
		links := openAll(t, 2, nil)
		links[1].Begin(transport.Stamp{Seq: 1}, time.Time{})
		if err := links[1].Send(0, []byte("last")); err != nil {
			t.Fatal(err)
		}
		links[1].Close()
		links[0].Begin(transport.Stamp{Seq: 1}, time.Time{})
		in := make([]byte, 4)
		if err := links[0].Recv(1, in); err != nil || string(in) != "last" {
			t.Fatalf("what was sent before leaving: %q %v", in, err)
		}
		var lost *transport.PeerLostError
		if err := links[0].Recv(1, in); !errors.As(err, &lost) || !lost.Left() || lost.Rank != 1 {
			t.Fatalf("after leaving: %v", err)
		}
		if err := links[1].Send(0, in); !errors.Is(err, transport.ErrClosed) {
			t.Fatalf("own verb after Close: %v", err)
		}
	})
	t.Run("fail", func(t *testing.T) {
		links := openAll(t, 3, nil)
		boom := errors.New("out of luck")
		links[2].Fail(boom)
		each(t, 3, func(i int) error {
			links[i].Begin(transport.Stamp{Seq: 1}, time.Time{})
			err := links[i].board.Await((i+1)%3, 1) // nobody posts
			var lost *transport.PeerLostError
			if i == 2 && !errors.Is(err, boom) || i != 2 && (!errors.As(err, &lost) || lost.Rank != 2) {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
	})
	t.Run("deadline", func(t *testing.T) {
		links := openAll(t, 2, nil)
		links[0].Begin(transport.Stamp{Seq: 1}, time.Time{})
		links[0].board.Arrive(nil)
		_, ok, err := links[0].board.AwaitArrival(1, 5*time.Millisecond)
		if ok || err != nil {
			t.Fatalf("budget: %v %v", ok, err)
		}
		links[0].Begin(transport.Stamp{Seq: 1}, time.Now().Add(30*time.Millisecond))
		_, _, err = links[0].board.AwaitArrival(1, -1)
		var late *transport.DeadlineError
		if !errors.As(err, &late) || late.Rank != 1 || late.Seq != 1 {
			t.Fatalf("deadline: %v", err)
		}
		links[1].Begin(transport.Stamp{Seq: 1}, time.Time{})
		var lost *transport.PeerLostError
		if err := links[1].Recv(0, make([]byte, 1)); !errors.As(err, &lost) || lost.Rank != 0 {
			t.Fatalf("the other rank: %v", err)
		}
	})
}

// TestCrossedOperations has two ranks wait for each other in different operations of
// the same number: neither would ever see the other's header or message.
func TestCrossedOperations(t *testing.T) {
	links := openAll(t, 3, nil)
	each(t, 3, func(i int) error {
		l := links[i]
		var err error
		if i == 0 {
			l.Begin(transport.Stamp{Seq: 1, Print: 100}, time.Time{})
			err = l.Recv(1, make([]byte, 1))
		} else {
			l.Begin(transport.Stamp{Seq: 1, Print: 200}, time.Time{})
			l.board.Arrive(nil)
			_, _, err = l.board.AwaitArrival(0, -1)
		}
		var m *transport.MismatchError
		if !errors.As(err, &m) {
			return fmt.Errorf("got %v", err)
		}
		texts, err := l.Explain([]byte{byte('a' + i)})
		if got := string(bytes.Join(texts, nil)); got != "abc" || err != nil {
			return fmt.Errorf("explain: %q %v", got, err)
		}
		return barrier(l, 2)
	})
}

func TestAdopt(t *testing.T) {
	links := openAll(t, 2, nil)
	const n, offset = 10000, 100
	each(t, 2, func(i int) error {
		fd, err := unix.MemfdCreate("theirs", unix.MFD_CLOEXEC)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Ftruncate(fd, 1<<20); err != nil {
			return err
		}
		own, err := unix.Mmap(fd, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		defer unix.Munmap(own)
		at := unsafe.Pointer(&own[offset])
		l := links[i]
		wrong := int64(offset)
		if i == 1 {
			wrong++ // one rank's mistake is an error on both
		}
		if _, err := l.Adopt(t.Context(), at, n, fd, wrong); err == nil {
			return errors.New("an address that is not at the offset was adopted")
		}
		buf, err := l.Adopt(t.Context(), at, n, fd, offset)
		if err != nil {
			return err
		}
		own[offset+n-1] = byte(i + 1)
		id, off, ok := l.board.Registered(at, n)
		if !ok || off != 0 {
			return fmt.Errorf("registered: %v %v", off, ok)
		}
		if err := barrier(l, 1); err != nil {
			return err
		}
		theirs := l.board.Mapped(1-i, id, n-1, 1)
		if theirs == nil || *(*byte)(theirs) != byte(2-i) {
			return errors.New("the other rank's memory is not there")
		}
		if err := barrier(l, 2); err != nil {
			return err
		}
		if err := buf.Close(); err != nil {
			return err
		}
		return barrier(l, 3)
	})
}

// TestExplainWithoutWhoIsDone has two ranks clash in messages that the third has no
// part in: they do not wait for its description.
func TestExplainWithoutWhoIsDone(t *testing.T) {
	links := openAll(t, 3, nil)
	start := time.Now()
	each(t, 3, func(i int) error {
		l := links[i]
		if i < 2 {
			l.Begin(transport.Stamp{Seq: 1, Print: uint64(i)}, time.Time{})
			if err := l.Exchange(1-i, []byte("x"), 1-i, make([]byte, 1)); !errors.As(err,
				new(*transport.MismatchError)) {
				return fmt.Errorf("got %v", err)
			}
			texts, err := l.Explain([]byte{'a' + byte(i)})
			if err != nil || string(texts[1-i]) != string([]byte{'b' - byte(i)}) || texts[2] != nil {
				return fmt.Errorf("explain: %q %v", texts, err)
			}
		}
		return barrier(l, 2)
	})
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestBufferAfterSomebodyLeft asks for memory that a rank will never agree to.
func TestBufferAfterSomebodyLeft(t *testing.T) {
	for leaver := range 3 {
		t.Run(fmt.Sprint(leaver), func(t *testing.T) {
			links := openAll(t, 3, nil)
			each(t, 3, func(i int) error {
				if i == leaver {
					return links[i].Close()
				}
				for range 2 {
					if _, err := links[i].Buffer(t.Context(), 100); err == nil {
						return errors.New("a buffer without one of the ranks")
					}
				}
				return nil
			})
		})
	}
}
