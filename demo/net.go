package demo

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
)

// dense is one fully connected layer: out = in · weightᵀ + bias. Weights, biases and
// their gradients are views into the network's two flat buffers, so that one
// allreduce carries every gradient without packing.
type dense struct {
	in, out    int
	weight     []float32 // out × in, row by row
	bias       []float32 // out
	gradWeight []float32
	gradBias   []float32
}

// Net is a stack of dense layers with ReLU between them. Params and Grads are flat
// and laid out alike; a rank's whole state is Params and the optimizer's moments.
// It is used by one goroutine.
type Net struct {
	Params []float32
	Grads  []float32
	layers []dense
	acts   []blas32.General // acts[0] is the input, acts[i] the output of layer i-1
	deltas []blas32.General // gradient of the loss by acts[i+1]
	rows   int              // images that acts and deltas have room for
}

// ParamCount is the number of parameters of a network with these layer widths.
func ParamCount(widths []int) int {
	n := 0
	for i := 1; i < len(widths); i++ {
		n += widths[i-1]*widths[i] + widths[i]
	}
	return n
}

// NewNet builds a network over grads, which must hold ParamCount(widths) values: the
// caller chooses the memory (registered, so that peers read it in place, or plain).
// rows is the largest batch. Weights are drawn from seed, alike on every rank.
func NewNet(widths []int, grads []float32, rows int, seed uint64) (*Net, error) {
	if len(widths) < 2 {
		return nil, fmt.Errorf("build network: %d layer widths, want at least input and output", len(widths))
	}
	n := &Net{Params: make([]float32, ParamCount(widths)), Grads: grads, rows: rows}
	if len(grads) != len(n.Params) {
		return nil, fmt.Errorf("build network: room for %d gradients, want %d", len(grads), len(n.Params))
	}
	draw := rand.New(rand.NewPCG(seed, 0x686f7261))
	at := 0
	take := func(count int) []float32 {
		at += count
		return n.Params[at-count : at : at]
	}
	for i := 1; i < len(widths); i++ {
		l := dense{in: widths[i-1], out: widths[i]}
		l.weight, l.bias = take(l.in*l.out), take(l.out)
		scale := math.Sqrt(2 / float64(l.in)) // He: keeps the variance through ReLU
		for j := range l.weight {
			l.weight[j] = float32(draw.NormFloat64() * scale)
		}
		n.layers = append(n.layers, l)
	}
	n.UseGrads(grads)
	n.acts = make([]blas32.General, len(widths))
	n.deltas = make([]blas32.General, len(n.layers))
	for i, w := range widths {
		n.acts[i] = blas32.General{Cols: w, Stride: w}
		if i > 0 {
			n.acts[i].Data = make([]float32, rows*w)
			n.deltas[i-1] = blas32.General{Cols: w, Stride: w, Data: make([]float32, rows*w)}
		}
	}
	return n, nil
}

// UseGrads changes the memory that the gradients lie in; it has room for as many as
// there are Params.
func (n *Net) UseGrads(grads []float32) {
	n.Grads = grads
	at := 0
	for i := range n.layers {
		l := &n.layers[i]
		l.gradWeight = grads[at : at+len(l.weight)]
		at += len(l.weight)
		l.gradBias = grads[at : at+len(l.bias)]
		at += len(l.bias)
	}
}

// Forward computes the logits of rows images; the result is valid until the next call.
func (n *Net) Forward(images []float32, rows int) []float32 {
	if rows > n.rows {
		panic(fmt.Sprintf("demo: batch of %d images in a network built for %d", rows, n.rows))
	}
	n.acts[0].Data = images
	for i := range n.acts {
		n.acts[i].Rows = rows
	}
	for i := range n.layers {
		l, out := &n.layers[i], n.acts[i+1]
		blas32.Gemm(blas.NoTrans, blas.Trans, 1, n.acts[i], l.matrix(l.weight), 0, out)
		last := i == len(n.layers)-1
		for r := range rows {
			addBias(out.Data[r*l.out:(r+1)*l.out], l.bias, !last)
		}
	}
	return n.acts[len(n.layers)].Data[:rows*n.layers[len(n.layers)-1].out]
}

func (l *dense) matrix(data []float32) blas32.General {
	return blas32.General{Rows: l.out, Cols: l.in, Stride: l.in, Data: data}
}

func addBias(row, bias []float32, relu bool) {
	for j, b := range bias {
		v := row[j] + b
		if relu && v < 0 {
			v = 0
		}
		row[j] = v
	}
}

// Backward fills Grads with the gradient of the loss, given its gradient by the
// logits of the last Forward. It overwrites: nothing has to be zeroed.
func (n *Net) Backward(byLogits []float32) {
	rows := n.acts[0].Rows
	last := len(n.layers) - 1
	copy(n.deltas[last].Data, byLogits)
	for i := last; i >= 0; i-- {
		l := &n.layers[i]
		delta := n.deltas[i]
		delta.Rows = rows
		blas32.Gemm(blas.Trans, blas.NoTrans, 1, delta, n.acts[i], 0, l.matrix(l.gradWeight))
		clear(l.gradBias)
		for r := range rows {
			for j, d := range delta.Data[r*l.out : (r+1)*l.out] {
				l.gradBias[j] += d
			}
		}
		if i == 0 {
			return
		}
		below := n.deltas[i-1]
		below.Rows = rows
		blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, delta, l.matrix(l.weight), 0, below)
		for j, a := range n.acts[i].Data[:rows*l.in] {
			if a <= 0 { // where ReLU was closed nothing flows back
				below.Data[j] = 0
			}
		}
	}
}
