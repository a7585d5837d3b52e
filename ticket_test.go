package hora_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"hora"
	"hora/internal/jobtest"
)

// twoRanks makes a world of two in this process and runs f on both.
func twoRanks(t *testing.T, change func(rank int, c *hora.Config), f func(w *hora.World) error) {
	t.Helper()
	s := hora.NewSecret()
	addr := "127.0.0.1:" + strconv.Itoa(jobtest.FreePort(t))
	jobtest.Ranks(t, 2, func(rank int) error {
		c := hora.Config{Rank: rank, Size: 2, Addr: addr, Serve: true, Secret: s, OpTimeout: 30 * time.Second}
		if change != nil {
			change(rank, &c)
		}
		w, err := hora.Join(context.Background(), c)
		if err != nil {
			return err
		}
		return errors.Join(f(w), w.Leave(context.Background()))
	})
}

// polled looks at tk until it is done.
func polled(g *hora.Group, tk hora.Ticket) error {
	late := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := g.Poll(tk); done {
			return err
		}
		select {
		case <-tick.C:
		case <-late:
			return errors.New("poll says for 20 s that it is pending")
		}
	}
}

func TestPoll(t *testing.T) {
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprintf("named=%v", named), func(t *testing.T) {
			looked := make(chan struct{})
			twoRanks(t, nil, func(w *hora.World) error {
				g := w.Group()
				if named {
					var err error
					if g, err = w.NewGroup(context.Background(), nil, hora.Named()); err != nil {
						return err
					}
				}
				if done, err := g.Poll(0); !done || err != nil {
					return fmt.Errorf("poll of nothing: %v %w", done, err)
				}
				x := []float32{1}
				rs := []hora.Request{hora.AllreduceRequest("x", x, hora.Sum)}
				if w.Rank() == 1 {
					<-looked
					_, _, err := g.Run(&rs[0], -1)
					return err
				}
				var tk [1]hora.Ticket
				err := g.Submit(rs, tk[:])
				for range 3 {
					if done, err := g.Poll(tk[0]); done || err != nil {
						close(looked)
						return fmt.Errorf("poll before the other rank came: %v %w", done, err)
					}
				}
				close(looked)
				if err = errors.Join(err, polled(g, tk[0])); err != nil {
					return err
				}
				if x[0] != 2 {
					return fmt.Errorf("poll says done, the sum is %v", x)
				}
				for range 2 { // it keeps the ticket
					if done, err := g.Poll(tk[0]); !done || err != nil {
						return fmt.Errorf("poll again: %v %w", done, err)
					}
				}
				if done, err := g.Wait(tk[0], 0); !done || err != nil {
					return fmt.Errorf("wait after poll: %v %w", done, err)
				}
				if done, err := g.Poll(tk[0]); !done || err == nil {
					return fmt.Errorf("poll of a released ticket: %v %v", done, err)
				}
				return nil
			})
		})
	}
}

// TestCancelTakesBackWhatHasNotBegun: what has begun goes on, what is queued behind it is
// taken back and ends with ErrCancelled, what is done cannot be taken back.
func TestCancelTakesBackWhatHasNotBegun(t *testing.T) {
	tried := make(chan struct{})
	twoRanks(t, nil, func(w *hora.World) error {
		g := w.Group()
		x := []float32{1}
		begun := hora.AllreduceRequest("begun", x, hora.Sum)
		if w.Rank() == 1 {
			<-tried
			_, _, err := g.Run(&begun, -1)
			return errors.Join(err, hora.Barrier(context.Background(), g))
		}
		first, done, err := g.Run(&begun, time.Millisecond)
		if done || err != nil {
			close(tried)
			return fmt.Errorf("run alone: %v %w", done, err)
		}
		y := []float32{7}
		var queued [1]hora.Ticket
		err = g.Submit([]hora.Request{hora.AllreduceRequest("queued", y, hora.Sum)}, queued[:])
		took, kept := g.Cancel(queued[0]), !g.Cancel(first)
		close(tried)
		if err != nil || !took || !kept {
			return fmt.Errorf("submit %v; cancel of what is queued %v; what has begun was kept %v", err, took, kept)
		}
		if done, err := g.Wait(queued[0], -1); !done || !errors.Is(err, hora.ErrCancelled) || y[0] != 7 {
			return fmt.Errorf("what was cancelled: %v %v %w", y, done, err)
		}
		if err := polled(g, first); err != nil || x[0] != 2 {
			return fmt.Errorf("what had begun: %v %w", x, err)
		}
		if g.Cancel(first) {
			return errors.New("an operation that is done was cancelled")
		}
		g.Release(first)
		return hora.Barrier(context.Background(), g)
	})
}
