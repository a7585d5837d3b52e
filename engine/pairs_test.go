package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"hora/collective"
	"hora/tensor"
	"hora/transport"
)

type unsafePointer = unsafe.Pointer

func pointer[T tensor.Element](s []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }

func send(to, tag int, x []int32) Request {
	v := tensor.Of(x)
	return Request{Call: collective.Call{Kind: collective.SendTo, Type: v.Type, Peer: to, Send: v}, Tag: tag}
}

func receive(from, tag int, x []int32) Request {
	v := tensor.Of(x)
	return Request{Call: collective.Call{Kind: collective.RecvFrom, Type: v.Type, Peer: from, Recv: v}, Tag: tag}
}

// TestPairsNeverBlockEachOther sends both ways at once, large and small, in the order
// that deadlocks blocking sends, while a collective waits.
func TestPairsNeverBlockEachOther(t *testing.T) {
	hosts(t, func(t *testing.T, one bool) {
		c := newCluster(t, 2, one, Config{})
		c.must(c.each(func(rank int, g *Group) error {
			other := 1 - rank
			wait := []float32{1}
			var coll [1]Ticket
			if rank == 0 {
				if err := g.Submit([]Request{sum(wait, "early")}, coll[:]); err != nil {
					return err
				}
			}
			for _, n := range []int{0, 1, 1000, 300_000} {
				out, in := make([]int32, n), make([]int32, n)
				for i := range out {
					out[i] = int32(rank*1000 + i)
				}
				var tk [2]Ticket
				if err := g.Submit([]Request{send(other, n, out), receive(other, n, in)}, tk[:]); err != nil {
					return err
				}
				for _, k := range tk {
					if done, err := g.Wait(k, 10*time.Second); !done || err != nil {
						return fmt.Errorf("%d elements: done %v: %v", n, done, err)
					}
				}
				for i := range in {
					if in[i] != int32(other*1000+i) {
						return fmt.Errorf("element %d of %d is %d", i, n, in[i])
					}
				}
			}
			if rank == 1 {
				r := sum(wait, "early")
				_, _, err := g.Run(&r, -1)
				return err
			}
			_, err := g.Wait(coll[0], -1)
			return err
		}))
	})
}

func TestPairTagsAndAnySource(t *testing.T) {
	c := newCluster(t, 3, true, Config{})
	c.must(c.each(func(rank int, g *Group) error {
		if rank != 0 {
			for _, tag := range []int{5, 6} {
				r := send(0, tag, []int32{int32(10*rank + tag)})
				if _, _, err := g.Run(&r, -1); err != nil {
					return err
				}
			}
			return nil
		}
		from := map[int]bool{}
		for range 2 {
			x := make([]int32, 1)
			var tk [1]Ticket
			if err := g.Submit([]Request{receive(AnyRank, 6, x)}, tk[:]); err != nil {
				return err
			}
			if err := g.Await(tk[0]); err != nil {
				return err
			}
			s := g.Source(tk[0])
			g.Release(tk[0])
			if x[0] != int32(10*s+6) {
				return fmt.Errorf("got %v from %d", x, s)
			}
			from[s] = true
		}
		for _, s := range []int{2, 1} {
			x := make([]int32, 1)
			r := receive(s, 5, x)
			if _, _, err := g.Run(&r, -1); err != nil || x[0] != int32(10*s+5) {
				return fmt.Errorf("got %v from %d: %v", x, s, err)
			}
		}
		if len(from) != 2 {
			return fmt.Errorf("sources %v", from)
		}
		return nil
	}))
}

func TestPairMismatch(t *testing.T) {
	c := newCluster(t, 2, true, Config{})
	errs := c.each(func(rank int, g *Group) error {
		if rank == 0 {
			r := send(1, 0, make([]int32, 5000))
			_, _, err := g.Run(&r, -1)
			return err
		}
		r := receive(0, 0, make([]int32, 4000))
		_, _, err := g.Run(&r, -1)
		return err
	})
	for r, err := range errs {
		if err == nil || err.Error() != errs[0].Error() || !strings.HasPrefix(err.Error(), "Mismatched operations:") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestReceiveThatTimesOutHarmsNothingElse gives up on one receive and goes on.
func TestReceiveThatTimesOutHarmsNothingElse(t *testing.T) {
	c := newCluster(t, 2, true, Config{})
	x := make([]int32, 1)
	r := receive(1, 0, x)
	r.Timeout = 20 * time.Millisecond
	_, _, err := c.groups[0].Run(&r, -1)
	var late *transport.DeadlineError
	if !errors.As(err, &late) || late.Rank != 1 {
		t.Fatalf("nobody sent: %v", err)
	}
	c.must(c.each(func(rank int, g *Group) error {
		if rank == 1 {
			r := send(0, 0, []int32{9})
			_, _, err := g.Run(&r, -1)
			return err
		}
		r := receive(1, 0, x)
		if _, _, err := g.Run(&r, -1); err != nil || x[0] != 9 {
			return fmt.Errorf("later receive: %v %v", x, err)
		}
		return nil
	}))
}
