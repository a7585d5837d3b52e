// Command 02-trainer is the demo's training in one page: every rank takes its share of
// each batch, the gradients are summed, all make the same step. The network is the
// demo's, in plain loops instead of matrix products, so that nothing hides the four calls
// of package hora that make it distributed: Join, Buffer, Allreduce and Leave.
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
	"slices"
	"unsafe"

	"hora"
	"hora/demo/digits"
)

// widths are the layers' widths, input first.
var widths = []int{digits.Pixels, 128, 64, digits.Classes}

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
	memory, err := g.Buffer(ctx, 4*parameters())
	if err != nil {
		return err
	}
	grad := unsafe.Slice((*float32)(unsafe.Pointer(&memory[0])), parameters())
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

func pixels(s digits.Set, i int) []float32 { return s.Pixels[i*digits.Pixels : (i+1)*digits.Pixels] }

// network is a stack of layers; between them stands ReLU.
type network []layer

// layer has a row of weights for each output, one for each input and then the bias. Its
// weights and their gradients are views into what all layers share.
type layer struct {
	weights, grad []float32
	out, delta    []float32 // of one image: the outputs, and the loss's gradient by them
}

func parameters() (n int) {
	for l, out := range widths[1:] {
		n += out * (widths[l] + 1)
	}
	return n
}

func newNetwork(weights, grad []float32) (n network) {
	draw := rand.New(rand.NewPCG(1, 1)) // alike on every rank
	at := 0
	for l, out := range widths[1:] {
		in, first := widths[l], at
		for range out {
			for range in {
				weights[at] = float32(draw.NormFloat64() * math.Sqrt(2/float64(in)))
				at++
			}
			at++ // the bias stays 0
		}
		n = append(n, layer{weights[first:at], grad[first:at], make([]float32, out), make([]float32, out)})
	}
	return n
}

// forward computes the logits of one image.
func (n network) forward(image []float32) []float32 {
	in := image
	for l, this := range n {
		for o := range this.out {
			row := this.weights[o*(len(in)+1):]
			sum := row[len(in)]
			for i, v := range in {
				sum += row[i] * v
			}
			if l < len(n)-1 {
				sum = max(sum, 0)
			}
			this.out[o] = sum
		}
		in = this.out
	}
	return in
}

// addGradient adds the gradient of one image's cross-entropy, times share.
func (n network) addGradient(image []float32, label uint8, share float32) {
	last := n[len(n)-1]
	var total float64
	for _, v := range n.forward(image) {
		total += math.Exp(float64(v))
	}
	for c, v := range last.out {
		last.delta[c] = share * float32(math.Exp(float64(v))/total)
	}
	last.delta[label] -= share
	for l := len(n) - 1; l >= 0; l-- {
		in, below := image, []float32(nil) // nobody asks for the gradient by the pixels
		if l > 0 {
			in, below = n[l-1].out, n[l-1].delta
			clear(below)
		}
		for o, d := range n[l].delta {
			first := o * (len(in) + 1)
			row, grad := n[l].weights[first:], n[l].grad[first:]
			for i, v := range in {
				grad[i] += d * v
				if l > 0 && v > 0 { // where ReLU is closed nothing flows back
					below[i] += d * row[i]
				}
			}
			grad[len(in)] += d
		}
	}
}

func (n network) accuracy(s digits.Set) float64 {
	right := 0
	for i, label := range s.Labels {
		z := n.forward(pixels(s, i))
		if slices.Index(z, slices.Max(z)) == int(label) {
			right++
		}
	}
	return float64(right) / float64(s.Len())
}
