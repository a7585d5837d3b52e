package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// A server that was stopped, or whose machine stands still, keeps its connections open and says nothing: the kernel
// still takes what is sent. A call may take as long as it likes, and content too; but while nothing comes, the server
// is asked for something small, and when it does not answer that either it counts as away.

// silentFor is how long a server may say nothing: three of the beats with which it says that it lives.
const silentFor = 45 * time.Second

// errSilent is for a server that has stopped answering.
var errSilent = errors.New("it has stopped answering, though it has not closed the connection: its process may be stopped, or its machine busy or away")

func (c *Client) silence() time.Duration {
	if c.Silence > 0 {
		return c.Silence
	}
	return silentFor
}

// patience is how long a follower waits for a server that has gone away: a minute.
func (c *Client) patience() time.Duration { return c.silence() * 4 / 3 }

// watch ends a context when a server has been silent for too long. What it returns is told of each sign of life, and
// stopped at the end, which waits for its goroutine.
func (c *Client) watch(ctx context.Context) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{cancel: cancel, heard: make(chan struct{}, 1)}
	w.wg.Go(func() {
		within := c.silence() / 2 // silent for one half, and asked for the other
		quiet := time.NewTimer(within)
		defer quiet.Stop()
		for {
			select {
			case <-w.heard:
				quiet.Reset(within)
			case <-quiet.C:
				if !c.lives(ctx, within) {
					cancel(errSilent)
					return
				}
				quiet.Reset(within)
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, w
}

type watch struct {
	cancel context.CancelCauseFunc
	heard  chan struct{}
	wg     sync.WaitGroup
	once   sync.Once
}

func (w *watch) hears() {
	select {
	case w.heard <- struct{}{}:
	default:
	}
}

func (w *watch) stop() {
	w.once.Do(func() { w.cancel(nil) })
	w.wg.Wait()
}

// lives asks a server for something small, and says whether it answers anything in time.
func (c *Client) lives(ctx context.Context, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/api/v1/about", nil)
	if err != nil {
		return false
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	r, err := c.HTTP.Do(req)
	if err != nil {
		return false
	}
	defer r.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(r.Body, 1<<16))
	return err == nil
}

// heardBody is an answer whose reading is watched.
type heardBody struct {
	io.ReadCloser
	ctx context.Context
	w   *watch
}

func (b *heardBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.w.hears()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = silentOr(b.ctx, err)
	}
	return n, err
}

func (b *heardBody) Close() error {
	err := b.ReadCloser.Close()
	b.w.stop()
	return err
}

// silentOr is why a context ended, where that is a server's silence; err otherwise.
func silentOr(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return err
}
