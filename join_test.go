package hora_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"hora"
	"hora/event"
	"hora/internal/jobtest"
)

func TestWorldOfOne(t *testing.T) {
	ctx := t.Context()
	w, err := hora.Join(ctx, hora.Config{})
	if err != nil {
		t.Fatal(err)
	}
	x := []float64{3}
	if err := hora.Allreduce(ctx, w.Group(), x, hora.Average); err != nil || x[0] != 3 {
		t.Errorf("%v %v", x, err)
	}
	all, err := hora.Allgather(ctx, w.Group(), []int8{1, 2})
	if err != nil || len(all) != 2 {
		t.Errorf("%v %v", all, err)
	}
	named, err := w.NewGroup(ctx, nil, hora.Named())
	if err != nil {
		t.Fatal(err)
	}
	if err := hora.Barrier(ctx, named); err != nil {
		t.Error(err)
	}
	if last, done, err := named.Join(-1); last != 0 || !done || err != nil {
		t.Errorf("join: %d %v %v", last, done, err)
	}
	if err := w.Leave(ctx); err != nil {
		t.Error(err)
	}
	if err := w.Leave(ctx); err != nil {
		t.Errorf("leave again: %v", err)
	}
	if err := hora.Barrier(ctx, w.Group()); !errors.Is(err, hora.ErrClosed) {
		t.Errorf("after leaving: %v", err)
	}
}

func TestJoinFailsClearly(t *testing.T) {
	ctx := t.Context()
	s := hora.NewSecret()
	free := "127.0.0.1:" + strconv.Itoa(jobtest.FreePort(t))
	for _, test := range []struct {
		name string
		cfg  hora.Config
		want string
	}{
		{"rank outside", hora.Config{Rank: 2, Size: 2}, "rank 2 is not in a world of 2"},
		{"no address", hora.Config{Size: 2, Secret: s}, "set HORA_ADDR"},
		{"no secret", hora.Config{Size: 2, Addr: free}, "HORA_SECRET_FILE"},
		{"too few peers", hora.Config{Size: 2, Peers: []string{"a:1"}, Secret: s}, "1 peers for a world of 2"},
		{"links", hora.Config{Links: "rdma"}, "use auto, tcp or shm"},
		{"alone", hora.Config{Size: 2, Addr: free, Serve: true, Secret: s, StartTimeout: 300 * time.Millisecond}, "start all 2 ranks"},
		{"nobody there", hora.Config{Rank: 1, Size: 2, Addr: free, Secret: s, StartTimeout: 300 * time.Millisecond}, free},
	} {
		t.Run(test.name, func(t *testing.T) {
			began := time.Now()
			w, err := hora.Join(ctx, test.cfg)
			if err == nil {
				w.Close()
				t.Fatal("joined")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v\ndoes not say %q", err, test.want)
			}
			if d := time.Since(began); d > 5*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

func TestContextEndsAnOperation(t *testing.T) {
	s := hora.NewSecret()
	addr := "127.0.0.1:" + strconv.Itoa(jobtest.FreePort(t))
	tried := make(chan struct{})
	jobtest.Ranks(t, 2, func(rank int) error {
		w, err := hora.Join(context.Background(), hora.Config{Rank: rank, Size: 2, Addr: addr, Serve: true, Secret: s})
		if err != nil {
			return err
		}
		defer w.Close()
		if rank == 1 {
			<-tried
			return nil
		}
		defer close(tried)
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if err := hora.Barrier(ctx, w.Group()); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("barrier alone: %v", err)
		}
		return nil
	})
}

func TestOpTimeoutNamesWhoIsMissing(t *testing.T) {
	s := hora.NewSecret()
	addr := "127.0.0.1:" + strconv.Itoa(jobtest.FreePort(t))
	tried := make(chan struct{})
	jobtest.Ranks(t, 2, func(rank int) error {
		w, err := hora.Join(context.Background(), hora.Config{
			Rank: rank, Size: 2, Addr: addr, Serve: true, Secret: s,
			OpTimeout: 100 * time.Millisecond,
		})
		if err != nil {
			return err
		}
		defer w.Close()
		if rank == 1 {
			<-tried
			return nil
		}
		defer close(tried)
		err = hora.Barrier(context.Background(), w.Group())
		var late *hora.DeadlineError
		if !errors.As(err, &late) || late.Rank != 1 {
			return fmt.Errorf("barrier alone: %v", err)
		}
		return nil
	})
}

// TestEventsSayWhatHappened follows one operation by its four times.
func TestEventsSayWhatHappened(t *testing.T) {
	s := hora.NewSecret()
	addr := "127.0.0.1:" + strconv.Itoa(jobtest.FreePort(t))
	ring := event.NewRing(16)
	jobtest.Ranks(t, 2, func(rank int) error {
		cfg := hora.Config{Rank: rank, Size: 2, Addr: addr, Serve: true, Secret: s}
		if rank == 0 {
			cfg.Events = new(hora.Sink)
			cfg.Events.Add(ring)
		}
		ctx := context.Background()
		w, err := hora.Join(ctx, cfg)
		if err != nil {
			return err
		}
		err = hora.Allreduce(ctx, w.Group(), make([]float32, 100), hora.Max)
		return errors.Join(err, w.Leave(ctx))
	})
	ops := make([]event.Operation, 4)
	n, _, missed := ring.Drain(ops, 0)
	if n != 1 || missed != 0 {
		t.Fatalf("%d operations, %d missed", n, missed)
	}
	o := ops[0]
	if o.Kind != "allreduce" || o.Op != "max" || o.Type != "float32" || o.Bytes != 400 || o.Group != "world" {
		t.Errorf("%+v", o)
	}
	if o.Submitted == 0 || o.Started < o.Submitted || o.Arrived < o.Started || o.Done < o.Arrived {
		t.Errorf("times %d %d %d %d", o.Submitted, o.Started, o.Arrived, o.Done)
	}
}

// TestManyLives has ranks leave and join again at once, at one address that rank 0
// serves anew each time: whoever is early meets the coordinator of the life before.
func TestManyLives(t *testing.T) {
	const n, lives = 4, 8
	s := hora.NewSecret()
	addr := "127.0.0.1:" + strconv.Itoa(jobtest.FreePort(t))
	jobtest.Ranks(t, n, func(rank int) error {
		ctx := context.Background()
		for life := range lives {
			w, err := hora.Join(ctx, hora.Config{
				Rank: rank, Size: n, Addr: addr, Serve: true, Secret: s,
				StartTimeout: 10 * time.Second,
			})
			if err != nil {
				return fmt.Errorf("life %d: %w", life, err)
			}
			x := []float32{1}
			if err := hora.Allreduce(ctx, w.Group(), x, hora.Sum); err != nil || x[0] != n {
				return fmt.Errorf("life %d: %v %w", life, x, err)
			}
			if rank == 0 && life == 0 {
				<-time.After(2500 * time.Millisecond) // the others are in the next life already
			}
			if err := w.Leave(ctx); err != nil {
				return fmt.Errorf("life %d: %w", life, err)
			}
		}
		return nil
	})
}
