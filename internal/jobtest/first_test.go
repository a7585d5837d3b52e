package jobtest_test

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

// TestFirstCallIsAMessage has jobs whose first call is a send and a receive, in the world's group
// and in one made for it, after which the sender leaves at once.
func TestFirstCallIsAMessage(t *testing.T) {
	job := func(links string, turn int) {
		s := hora.NewSecret()
		addr := "127.0.0.1:" + strconv.Itoa(jobtest.FreePort(t))
		jobtest.Ranks(t, 3, func(rank int) (err error) {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			w, err := hora.Join(ctx, hora.Config{Rank: rank, Size: 3, Addr: addr, Serve: true, Secret: s, Links: links})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, w.Leave(ctx)) }()
			pass := func(g *hora.Group) error {
				x := make([]int64, []int{1, 70_000}[turn%2])
				if from := turn % 3; rank != from {
					if err := hora.Recv(ctx, g, x, from); err != nil || x[0] != int64(turn+1) {
						return fmt.Errorf("turn %d: received %d: %w", turn, x[0], err)
					}
					return nil
				}
				x[0] = int64(turn + 1)
				for _, to := range []int{(rank + 1) % 3, (rank + 2) % 3} {
					if err := hora.Send(ctx, g, x, to); err != nil {
						return err
					}
				}
				return nil
			}
			if err := pass(w.Group()); err != nil {
				return err
			}
			g, err := w.NewGroup(ctx, nil, hora.Called("pass"))
			if err != nil {
				return err
			}
			return pass(g)
		})
	}
	for _, links := range []string{"auto", "tcp"} {
		t.Run(links, func(t *testing.T) {
			for turn := range 12 {
				job(links, turn)
			}
		})
	}
}
