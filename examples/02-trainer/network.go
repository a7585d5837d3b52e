package main

import (
	"math"
	"math/rand/v2"
	"slices"

	"hora/demo/digits"
)

// widths are the layers' widths, input first.
var widths = []int{digits.Pixels, 128, 64, digits.Classes}

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
