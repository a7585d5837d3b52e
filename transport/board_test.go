package transport

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// boards lays n seats over one piece of this process's memory.
func boards(t *testing.T, n int, cfg BoardConfig) []*Board {
	t.Helper()
	mem := aligned(BoardSize(n, cfg))
	out := make([]*Board, n)
	for i := range out {
		var err error
		if out[i], err = NewBoard(mem, n, i, cfg); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func aligned(n int) []byte {
	mem := make([]byte, n+64)
	skip := -int(uintptr(unsafe.Pointer(&mem[0]))) & 63
	return mem[skip : skip+n]
}

func together(t *testing.T, boards []*Board, f func(b *Board) error) {
	t.Helper()
	var all sync.WaitGroup
	for _, b := range boards {
		all.Add(1)
		go func() {
			defer all.Done()
			if err := f(b); err != nil {
				t.Errorf("seat %d: %v", b.Seat(), err)
				b.Fail(err)
			}
		}()
	}
	all.Wait()
}

func TestLayoutIsChecked(t *testing.T) {
	if n := unsafe.Sizeof(arrival{}); n != 128 {
		t.Errorf("an arrival has %d bytes; it must be two cache lines", n)
	}
	if n := unsafe.Sizeof(fragment{}); n != 40 {
		t.Errorf("a fragment's header has %d bytes", n)
	}
	mem := aligned(BoardSize(2, BoardConfig{}))
	if _, err := NewBoard(mem, 2, 1, BoardConfig{}); err == nil {
		t.Error("seat 1 came first")
	}
	if _, err := NewBoard(mem, 2, 0, BoardConfig{}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		mem         []byte
		seats, seat int
		cfg         BoardConfig
		want        string
	}{
		"other sizes": {mem, 2, 1, BoardConfig{SlotBytes: 4096}, "slot bytes is 4096 here and 65536"},
		"too short":   {mem[:4096], 2, 1, BoardConfig{}, "4096 bytes of memory"},
		"no such":     {mem, 2, 2, BoardConfig{}, "seat 2 of 2"},
		"too many":    {mem, maxSeats + 1, 0, BoardConfig{}, "at most"},
		"ranks":       {mem, 2, 1, BoardConfig{Ranks: []int{1}}, "1 ranks for 2 seats"},
		"misaligned":  {aligned(BoardSize(2, BoardConfig{}) + 8)[8:], 2, 0, BoardConfig{}, "aligned"},
	} {
		if _, err := NewBoard(c.mem, c.seats, c.seat, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPollComparesNumbersThatWrap(t *testing.T) {
	for _, word := range []uint64{0, 1, 5, 1 << 62, 1 << 63, ^uint64(0) - 3, ^uint64(0)} {
		for _, ahead := range []int64{-1 << 40, -2, -1, 0, 1, 2, 1 << 40} {
			want := word - uint64(ahead)
			for n := range 3 {
				if got := poll(&word, want, n); got != (ahead >= 0) {
					t.Errorf("poll(%d, %d, %d) = %v", word, want, n, got)
				}
			}
		}
	}
}

// TestPhasesWrap goes through the operation at which Seq no longer fits beside the
// phase.
func TestPhasesWrap(t *testing.T) {
	together(t, boards(t, 2, BoardConfig{}), func(b *Board) error {
		for seq := uint64(1<<40 - 3); seq < 1<<40+3; seq++ {
			b.Begin(Stamp{Seq: seq}, time.Time{})
			b.Arrive(nil)
			if _, _, err := b.AwaitArrival(1-b.Seat(), -1); err != nil {
				return err
			}
			for phase := uint32(1); phase < 4; phase++ {
				b.Post(phase)
				if err := b.AwaitAll(phase); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func TestBudgetIsKept(t *testing.T) {
	b := boards(t, 2, BoardConfig{})[0]
	b.Begin(Stamp{Seq: 1}, time.Time{})
	for _, budget := range []time.Duration{0, time.Microsecond, 3 * time.Millisecond} {
		start := time.Now()
		if _, ok, err := b.AwaitArrival(1, budget); ok || err != nil {
			t.Fatalf("budget %v: %v %v", budget, ok, err)
		}
		if took := time.Since(start); took < budget {
			t.Errorf("budget %v: only %v used", budget, took)
		}
	}
}

// TestLeftoversAreDropped leaves messages of an operation unread, one of them half
// sent, and reads the next operation's.
func TestLeftoversAreDropped(t *testing.T) {
	two := boards(t, 2, BoardConfig{RingBytes: 4096})
	two[0].Begin(Stamp{Seq: 1, Print: 1}, time.Now().Add(time.Hour))
	if err := two[0].Send(1, []byte("forgotten")); err != nil {
		t.Fatal(err)
	}
	two[1].Begin(Stamp{Seq: 1, Print: 2}, time.Time{})
	together(t, two, func(b *Board) error { // the long one clashes and is cut off
		err := b.Exchange(1-b.Seat(), make([]byte, 100000), 1-b.Seat(), make([]byte, 7))
		if !errors.As(err, new(*MismatchError)) {
			return fmt.Errorf("got %v", err)
		}
		_, err = b.Explain(nil)
		return err
	})
	together(t, two, func(b *Board) error {
		b.Begin(Stamp{Seq: 2}, time.Time{})
		out, in := bytes.Repeat([]byte{byte(b.Seat())}, 50000), make([]byte, 50000)
		if err := b.Exchange(1-b.Seat(), out, 1-b.Seat(), in); err != nil {
			return err
		}
		if !bytes.Equal(in, bytes.Repeat([]byte{byte(1 - b.Seat())}, 50000)) {
			return errors.New("something else came")
		}
		return nil
	})
}

// TestPairsAreInNobodysWay leaves a pair's message waiting while the group goes on.
func TestPairsAreInNobodysWay(t *testing.T) {
	two := boards(t, 2, BoardConfig{})
	two[0].Begin(Stamp{Seq: PairSeq | 1, Print: 5}, time.Time{})
	if err := two[0].Send(1, []byte("later")); err != nil {
		t.Fatal(err)
	}
	together(t, two, func(b *Board) error {
		b.Begin(Stamp{Seq: 1, Print: 1}, time.Time{})
		return b.Exchange(1-b.Seat(), []byte("group"), 1-b.Seat(), make([]byte, 5))
	})
	in := make([]byte, 5)
	two[1].Begin(Stamp{Seq: PairSeq | 1, Print: 5}, time.Time{})
	if err := two[1].Recv(0, in); err != nil || string(in) != "later" {
		t.Fatalf("%q %v", in, err)
	}
}

func TestMessageToOneself(t *testing.T) {
	b := boards(t, 1, BoardConfig{})[0]
	b.Begin(Stamp{Seq: 1}, time.Time{})
	in := make([]byte, 300000)
	if err := b.Exchange(0, bytes.Repeat([]byte("x"), len(in)), 0, in); err != nil || in[len(in)-1] != 'x' {
		t.Fatal(err)
	}
}

func TestSpinAdapts(t *testing.T) {
	var s spinner
	s.calibrate(BoardConfig{})
	if s.polls != s.most || s.least >= s.most || s.yield {
		t.Fatalf("at first: %+v", s)
	}
	for range 20 {
		s.adapt(true)
	}
	if s.polls != s.least || !s.yield {
		t.Errorf("after waits for a rank on the same processor: %+v", s)
	}
	for range 20 {
		s.adapt(false)
	}
	if s.polls != s.most || s.yield {
		t.Errorf("after waits for a rank elsewhere: %+v", s)
	}
	s.calibrate(BoardConfig{Oversubscribed: true})
	if !s.yield || !s.fixed {
		t.Errorf("told that ranks share processors: %+v", s)
	}
}

func TestErrorsSayWhoAndWhere(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&PeerLostError{Rank: 3, Host: "n1", Reason: "silent for 10s"}, "lost rank 3 on host n1: silent for 10s"},
		{&PeerLostError{Rank: 3, Reason: ReasonLeft}, "lost rank 3: it has left (its program ended or shut hora down); all ranks must make the same calls"},
		{&DeadlineError{2, 7, 1500 * time.Millisecond}, "rank 2 has not come within the timeout of 1.5s; see what it does instead, or allow more time"},
		{&MismatchError{1, Stamp{4, 10}, Stamp{4, 11}}, "match operation 4: rank 1 came with operation 4 (fingerprint 000000000000000b, here 000000000000000a)"},
		{&MismatchError{Rank: -1, Mine: Stamp{PairSeq | 4, 1}}, "match operation 4: another rank reported a mismatch"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestOperationsAllocateNothing(t *testing.T) {
	b := boards(t, 1, BoardConfig{})[0]
	p, seq := make([]byte, 100), uint64(0)
	n := testing.AllocsPerRun(1000, func() {
		seq++
		b.Begin(Stamp{Seq: seq, Print: 1}, time.Time{})
		b.Arrive(p[:4])
		b.AwaitArrival(0, -1)
		b.Post(1)
		b.AwaitAll(1)
		b.Exchange(0, p, 0, p)
		b.Count(1, 1)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
