// Command 02-trainer is the demo's training in a page: every rank takes its share of
// each batch, the gradients are summed, all make the same step. The network is the
// demo's (network.go), in plain loops instead of matrix products, so that nothing hides the
// four calls of package hora that make it distributed: Join, Buffer, Allreduce and Leave.
//
//	go build -o /tmp/trainer ./examples/02-trainer && hora run -np 2 /tmp/trainer
//
// It runs in one goroutine.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

	"hora"
	"hora/demo/digits"
)

const (
	batch    = 64
	epochs   = 20
	rate     = 0.1
	momentum = 0.9
)

func main() {
	if err := train(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func train(ctx context.Context) error {
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
	images, test, err := digits.Load()
	if err != nil {
		return err
	}

	// Gradients live in memory that the other ranks of this host read in place.
	grad, err := hora.BufferOf[float32](ctx, g, parameters())
	if err != nil {
		return err
	}
	weights, velocity := make([]float32, len(grad)), make([]float32, len(grad))
	net := newNetwork(weights, grad)

	for epoch := range epochs {
		// The order depends on the epoch alone: any number of ranks sees the same batches.
		order := rand.New(rand.NewPCG(1, uint64(epoch))).Perm(images.Len())
		for b := range slices.Chunk(order, batch) {
			clear(grad)
			for _, i := range b[len(b)*g.Rank()/g.Size() : len(b)*(g.Rank()+1)/g.Size()] {
				net.addGradient(pixels(images, i), images.Labels[i], 1/float32(len(b)))
			}
			if err := hora.Allreduce(ctx, g, grad, hora.Sum); err != nil {
				return err
			}
			for i, d := range grad {
				velocity[i] = momentum*velocity[i] + d
				weights[i] -= rate * velocity[i]
			}
		}
		if g.Rank() == 0 {
			fmt.Printf("epoch %2d: %.2f %% of the test images read right\n", epoch+1, 100*net.accuracy(test))
		}
	}
	return world.Leave(ctx)
}
