package hora_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"hora"
)

// TestCheckCalls: ranks that call at different places of a program are told both, whichever way
// they call; calls at one place, and messages, are as ever.
func TestCheckCalls(t *testing.T) {
	check := func(_ int, c *hora.Config) { c.CheckCalls = true }
	places := regexp.MustCompile(`at site_test\.go:\d+ on rank 0 and .* at site_test\.go:\d+ on rank 1`)
	twoRanks(t, check, func(w *hora.World) error {
		g, ctx := w.Group(), context.Background()
		x := []float32{1}
		apart := func(err error) error {
			var wrong *hora.MismatchError
			if !errors.As(err, &wrong) || !places.MatchString(wrong.Text) {
				return fmt.Errorf("other places gave %w", err)
			}
			return nil
		}
		for range 3 {
			if err := hora.Allreduce(ctx, g, x, hora.Sum); err != nil {
				return err
			}
		}
		var err, queued error
		r := hora.AllreduceRequest("", x, hora.Sum)
		tk := make([]hora.Ticket, 1)
		if g.Rank() == 0 {
			err = hora.Allreduce(ctx, g, x, hora.Sum)
			queued = g.Submit([]hora.Request{r}, tk)
		} else {
			_, _, err = g.Run(&r, -1)
			queued = g.Submit([]hora.Request{r}, tk)
		}
		_, late := g.Wait(tk[0], 20*time.Second)
		return errors.Join(apart(err), queued, apart(late), hora.Barrier(ctx, g))
	})
}
