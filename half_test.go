package hora_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"hora"
)

// TestEveryGroupHasTwoHalves makes the other half of groups of either kind, asked for by several goroutines at once.
func TestEveryGroupHasTwoHalves(t *testing.T) {
	for _, links := range []string{"shm", "tcp"} {
		twoRanks(t, func(_ int, c *hora.Config) { c.Links = links }, func(w *hora.World) error {
			named, err := w.NewGroup(t.Context(), nil, hora.Named(), hora.Called("mine"))
			if err != nil {
				return err
			}
			plain, err := w.NewGroup(t.Context(), nil, hora.Called("mine"))
			if err != nil {
				return err
			}
			groups := []*hora.Group{w.Group(), named, plain}
			if w.Rank() == 1 { // nobody needs to ask in one order
				slices.Reverse(groups)
			}
			faults := make([]error, 9)
			var all sync.WaitGroup
			for i := range faults {
				all.Go(func() { faults[i] = halves(t.Context(), groups[i%3]) })
			}
			all.Wait()
			if err := errors.Join(faults...); err != nil {
				return err
			}
			for _, g := range []*hora.Group{w.Group(), named, plain} {
				if err := inBothHalves(t.Context(), g); err != nil {
					return fmt.Errorf("%s over %s: %w", g.Name(), links, err)
				}
			}
			return closedWith(t.Context(), plain)
		})
	}
}

// halves expects both halves to know each other.
func halves(ctx context.Context, g *hora.Group) error {
	byName, err := g.ByName(ctx)
	if err != nil {
		return err
	}
	inOrder, err := g.InOrder(ctx)
	if err != nil {
		return err
	}
	back, err := byName.InOrder(ctx)
	there, err2 := inOrder.ByName(ctx)
	if err != nil || err2 != nil || back != inOrder || there != byName || g != byName && g != inOrder ||
		!byName.Named() || inOrder.Named() {
		return fmt.Errorf("%s: halves %q and %q do not know each other: %w", g.Name(), byName.Name(), inOrder.Name(), errors.Join(err, err2))
	}
	return nil
}

// inBothHalves has the ranks ask for two sums in different orders by name, and for one in order.
func inBothHalves(ctx context.Context, g *hora.Group) error {
	byName, err := g.ByName(ctx)
	if err != nil {
		return err
	}
	a, b, c := []int32{1}, []int32{10}, []int32{100}
	rs := []hora.Request{hora.AllreduceRequest("a", a, hora.Sum), hora.AllreduceRequest("b", b, hora.Sum)}
	if g.Rank() == 1 {
		slices.Reverse(rs)
	}
	tickets := make([]hora.Ticket, 2)
	for i := range rs {
		if err := byName.Submit(rs[i:i+1], tickets[i:i+1]); err != nil {
			return err
		}
	}
	inOrder, err := g.InOrder(ctx)
	if err != nil {
		return err
	}
	if err := hora.Allreduce(ctx, inOrder, c, hora.Sum); err != nil {
		return err
	}
	for _, tk := range tickets {
		if _, err := byName.Wait(tk, -1); err != nil {
			return err
		}
	}
	if a[0] != 2 || b[0] != 20 || c[0] != 200 {
		return fmt.Errorf("sums %v %v %v", a, b, c)
	}
	return nil
}

// closedWith closes g and expects its half to be closed too.
func closedWith(ctx context.Context, g *hora.Group) error {
	byName, err := g.ByName(ctx)
	if err != nil {
		return err
	}
	if err := hora.Barrier(ctx, g); err != nil {
		return err
	}
	if err := g.Close(); err != nil {
		return err
	}
	if err := hora.Barrier(ctx, byName); !errors.Is(err, hora.ErrClosed) {
		return fmt.Errorf("the half of a closed group: %v", err)
	}
	return nil
}

// TestAHalfThatIsNotMade has one rank ask alone: for as long as its context lasts, and until the group is closed.
func TestAHalfThatIsNotMade(t *testing.T) {
	asked := make(chan struct{})
	twoRanks(t, nil, func(w *hora.World) error {
		if w.Rank() == 1 {
			<-asked
			return nil
		}
		defer close(asked)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := w.Group().ByName(ctx)
		_, again := w.Group().ByName(t.Context())
		if !errors.Is(err, context.DeadlineExceeded) || again == nil || again.Error() != err.Error() {
			return fmt.Errorf("asked alone: %v; asked again: %v", err, again)
		}
		return nil
	})
	done := make(chan error, 1)
	closed := make(chan struct{})
	twoRanks(t, nil, func(w *hora.World) error {
		if w.Rank() == 1 {
			<-closed
			return nil
		}
		defer close(closed)
		g := w.Group()
		begun := make(chan struct{})
		go func() {
			close(begun)
			_, err := g.ByName(t.Context())
			done <- err
		}()
		<-begun
		began := time.Now()
		if err := g.Close(); err != nil {
			return err
		}
		if err := <-done; err == nil {
			return errors.New("a half was made that one rank asked for")
		}
		if _, err := g.ByName(t.Context()); err == nil {
			return errors.New("a closed group has a half")
		}
		if took := time.Since(began); took > 5*time.Second {
			return fmt.Errorf("closing took %v", took)
		}
		return nil
	})
}

// TestAHalfHasItsGroupsTimeout waits in vain in a half.
func TestAHalfHasItsGroupsTimeout(t *testing.T) {
	tried := make(chan struct{})
	twoRanks(t, nil, func(w *hora.World) error {
		g, err := w.NewGroup(t.Context(), nil, hora.Timeout(100*time.Millisecond))
		if err != nil {
			return err
		}
		half, err := g.ByName(t.Context())
		if err != nil {
			return err
		}
		r := hora.AllreduceRequest("x", []float32{1}, hora.Sum)
		if w.Rank() == 1 {
			<-tried
			_, _, _ = half.Run(&r, -1) // ranks that leave have made as many calls
			return nil
		}
		defer close(tried)
		var late *hora.DeadlineError
		if _, _, err := half.Run(&r, -1); !errors.As(err, &late) {
			return fmt.Errorf("alone in a half: %v", err)
		}
		return nil
	})
}
