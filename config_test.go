package hora_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"hora"
	"hora/internal/jobtest"
)

// TestAConfigIsItsCallers has ranks join with one list of peers and one sink, which are as they were afterwards, and
// again with what the first world says it was joined with.
func TestAConfigIsItsCallers(t *testing.T) {
	for f := range reflect.TypeFor[hora.Config]().Fields() {
		if !f.IsExported() {
			t.Errorf("hora.Config has %s, which a copy shares with the world", f.Name)
		}
	}
	secret, events := hora.NewSecret(), new(hora.Sink)
	life := func(cfg hora.Config) (again hora.Config, err error) {
		w, err := hora.Join(t.Context(), cfg)
		if err != nil {
			return again, err
		}
		defer w.Close()
		again = w.Config()
		if len(cfg.Peers) > 0 {
			again.Peers[0], cfg.Peers[0] = "nowhere:1", "nobody:2"
			if w.Config().Peers[0] == "nowhere:1" || w.Config().Peers[0] == "nobody:2" {
				return again, fmt.Errorf("the world's peers are now %v", w.Config().Peers)
			}
			again.Peers = w.Config().Peers
		}
		if again.Events != cfg.Events {
			return again, errors.New("Config() has a sink that nobody gave")
		}
		if err := hora.Barrier(t.Context(), w.Group()); err != nil {
			return again, err
		}
		return again, w.Leave(t.Context())
	}
	peers := []string{"127.0.0.1:" + strconv.Itoa(jobtest.FreePort(t)), "127.0.0.1:" + strconv.Itoa(jobtest.FreePort(t))}
	var again [2]hora.Config
	jobtest.Ranks(t, 2, func(rank int) (err error) {
		cfg := hora.Config{
			Rank: rank, Size: 2, Peers: append([]string(nil), peers...), Secret: secret, Links: "tcp",
			Progress: true,
		}
		if rank == 0 {
			cfg.Events = events
		}
		again[rank], err = life(cfg)
		return err
	})
	jobtest.Ranks(t, 2, func(rank int) error {
		_, err := life(again[rank])
		return err
	})
	if events.On() {
		t.Error("a world that has ended still listens at the caller's sink")
	}
	if _, err := life(hora.Config{Timeline: filepath.Join(t.TempDir(), "tl.json")}); err != nil {
		t.Error(err)
	}
}

func TestBuffersOfATypeHoldWhatTheyAreAskedFor(t *testing.T) {
	for _, links := range []string{"shm", "tcp"} {
		twoRanks(t, func(_ int, c *hora.Config) { c.Links = links }, func(w *hora.World) error {
			g := w.Group()
			x, err := hora.BufferOf[float64](t.Context(), g, 1000)
			if err != nil {
				return err
			}
			for i := range x {
				x[i] = float64(i)
			}
			if err := hora.Allreduce(t.Context(), g, x, hora.Sum); err != nil {
				return err
			}
			if len(x) != 1000 || x[999] != 1998 {
				return fmt.Errorf("%d elements, the last %v", len(x), x[999])
			}
			if b := hora.BytesOf(x); len(b) != 8000 || b[7] != 0 || b[8*999+7] != 0x40 {
				return fmt.Errorf("%d bytes: % x", len(b), b[8*999:])
			}
			if err := hora.Barrier(t.Context(), g); err != nil {
				return err
			}
			if err := g.Free(hora.BytesOf(x)); err != nil {
				return err
			}
			for _, n := range []int{0, -1, 1 << 60} {
				var invalid *hora.InvalidError
				if _, err := hora.BufferOf[float64](t.Context(), g, n); !errors.As(err, &invalid) ||
					!strings.Contains(err.Error(), strconv.Itoa(n)+" elements") {
					return fmt.Errorf("%d elements: %v", n, err)
				}
			}
			return nil
		})
	}
}
