// Command 02-trainer is data-parallel training in a hundred lines: every rank takes its
// share of each batch, the gradients are summed, all make the same step. The model is
// logistic regression on the demo's digits, so that nothing hides the four calls of
// package hora that make it distributed: Join, Buffer, Allreduce and Leave.
//
//	go build -o /tmp/trainer ./examples/02-trainer && hora run -np 2 /tmp/trainer
//
// It runs in one goroutine.
package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"unsafe"

	"hora"
	"hora/demo/digits"
)

const (
	inputs  = digits.Pixels + 1 // a last input that is always one: the bias
	weights = inputs * digits.Classes
	batch   = 64
	epochs  = 15
	rate    = 0.5
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
	memory, err := g.Buffer(ctx, 4*weights)
	if err != nil {
		return err
	}
	grad := unsafe.Slice((*float32)(unsafe.Pointer(&memory[0])), weights)
	w := make([]float32, weights)

	for epoch := range epochs {
		// The order depends on the epoch alone: any number of ranks sees the same batches.
		order := rand.New(rand.NewPCG(1, uint64(epoch))).Perm(images.Len())
		for first := 0; first < len(order); first += batch {
			b := order[first:min(first+batch, len(order))]
			clear(grad)
			for _, i := range b[len(b)*g.Rank()/g.Size() : len(b)*(g.Rank()+1)/g.Size()] {
				addGradient(grad, w, pixels(images, i), images.Labels[i], 1/float32(len(b)))
			}
			if err := hora.Allreduce(ctx, g, grad, hora.Sum); err != nil {
				return err
			}
			for i, d := range grad {
				w[i] -= rate * d
			}
		}
		if g.Rank() == 0 {
			fmt.Printf("epoch %2d: %.2f %% of the test images read right\n", epoch+1, 100*accuracy(w, test))
		}
	}
	return world.Leave(ctx)
}

func pixels(s digits.Set, i int) []float32 { return s.Pixels[i*digits.Pixels : (i+1)*digits.Pixels] }

// scores are the classes' logits for one image.
func scores(w, image []float32) (z [digits.Classes]float32) {
	for c := range z {
		row := w[c*inputs : (c+1)*inputs]
		z[c] = row[digits.Pixels]
		for p, v := range image {
			z[c] += row[p] * v
		}
	}
	return z
}

// addGradient adds one image's gradient of the cross-entropy, times weight.
func addGradient(grad, w, image []float32, label uint8, weight float32) {
	z := scores(w, image)
	var total float64
	for _, v := range z {
		total += math.Exp(float64(v))
	}
	for c, v := range z {
		d := float32(math.Exp(float64(v)) / total)
		if c == int(label) {
			d--
		}
		d *= weight
		row := grad[c*inputs : (c+1)*inputs]
		for p, x := range image {
			row[p] += d * x
		}
		row[digits.Pixels] += d
	}
}

func accuracy(w []float32, s digits.Set) float64 {
	right := 0
	for i, label := range s.Labels {
		z := scores(w, pixels(s, i))
		best := 0
		for c, v := range z {
			if v > z[best] {
				best = c
			}
		}
		if best == int(label) {
			right++
		}
	}
	return float64(right) / float64(s.Len())
}
