// Command 01-tour calls each collective operation once and prints what every rank
// gets, in rank order.
//
//	hora run -np 3 --no-tag go run ./examples/01-tour
//
// It runs in one goroutine.
package main

import (
	"context"
	"fmt"
	"os"

	"hora"
)

func main() {
	if err := tour(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func tour(ctx context.Context) error {
	cfg, err := hora.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	world, err := hora.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer world.Close()
	g := world.Group()
	rank, size := g.Rank(), g.Size()
	mine := []float32{float32(rank), float32(10 * rank)}

	show := func(what string, got any, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		// Everybody's line is gathered on rank 0, which prints them in order.
		lines, err := hora.Gather(ctx, g, []byte(fmt.Sprintf("  rank %d: %v\n", rank, got)), 0)
		if err == nil && rank == 0 {
			fmt.Printf("%s\n%s", what, lines)
		}
		return err
	}

	sum := append([]float32(nil), mine...)
	err = hora.Allreduce(ctx, g, sum, hora.Sum)
	if err := show("allreduce: everyone has the sum", sum, err); err != nil {
		return err
	}
	top := append([]float32(nil), mine...)
	err = hora.Reduce(ctx, g, top, hora.Max, 0)
	if rank != 0 {
		top = nil
	}
	if err := show("reduce: rank 0 has the maximum", top, err); err != nil {
		return err
	}
	first := append([]float32(nil), mine...)
	err = hora.Broadcast(ctx, g, first, size-1)
	if err := show("broadcast: everyone has the last rank's values", first, err); err != nil {
		return err
	}
	all, err := hora.Allgather(ctx, g, mine[:1])
	if err := show("allgather: everyone has everyone's first value", all, err); err != nil {
		return err
	}
	share, err := hora.ReduceScatter(ctx, g, ramp(size), hora.Sum)
	if err := show("reduce-scatter: each has its share of the sum", share, err); err != nil {
		return err
	}
	swapped, _, err := hora.Alltoall(ctx, g, scaled(ramp(size), rank), nil)
	if err := show("alltoall: row r of each goes to rank r", swapped, err); err != nil {
		return err
	}
	part := make([]float32, 1)
	err = hora.Scatter(ctx, g, part, ramp(size), 0)
	if err := show("scatter: each has its part of rank 0's", part, err); err != nil {
		return err
	}
	if err := ring(ctx, g, mine); err != nil {
		return err
	}
	if err := show("send and receive: each has its left neighbour's values", mine, nil); err != nil {
		return err
	}
	if err := hora.Barrier(ctx, g); err != nil {
		return err
	}
	return world.Leave(ctx)
}

// ring passes x to the right; even ranks send first, so that nobody waits for a
// receiver that itself is sending.
func ring(ctx context.Context, g *hora.Group, x []float32) error {
	if g.Size() == 1 {
		return nil
	}
	right, left := (g.Rank()+1)%g.Size(), (g.Rank()+g.Size()-1)%g.Size()
	in := make([]float32, len(x))
	send := func() error { return hora.Send(ctx, g, x, right) }
	recv := func() error { return hora.Recv(ctx, g, in, left) }
	steps := []func() error{send, recv}
	if g.Rank()%2 == 1 {
		steps = []func() error{recv, send}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	copy(x, in)
	return nil
}

func ramp(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i + 1)
	}
	return x
}

func scaled(x []float32, by int) []float32 {
	for i := range x {
		x[i] *= float32(by + 1)
	}
	return x
}
