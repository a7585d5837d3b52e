package demo

import "math"

// Optimizer changes parameters by their gradients. State is everything that a
// replacement needs beside the parameters to go on bit for bit: views, not copies.
type Optimizer interface {
	Step(params, grads []float32)
	State() [][]float32
}

// Optimizers are the kinds to choose from, by name, with a rate that suits the digits.
var Optimizers = map[string]struct {
	Rate float32
	New  func(params int, rate float32) Optimizer
}{
	"adam": {5e-3, func(n int, rate float32) Optimizer { return NewAdam(n, rate) }},
	"sgd":  {0.1, func(n int, rate float32) Optimizer { return NewSGD(n, rate, 0.9) }},
}

// SGD is stochastic gradient descent with momentum.
type SGD struct {
	Rate, Momentum float32
	velocity       []float32
}

// NewSGD makes one for n parameters.
func NewSGD(n int, rate, momentum float32) *SGD {
	return &SGD{Rate: rate, Momentum: momentum, velocity: make([]float32, n)}
}

// Step moves params along the accumulated gradient.
func (o *SGD) Step(params, grads []float32) {
	for i, g := range grads {
		v := o.Momentum*o.velocity[i] + g
		o.velocity[i] = v
		params[i] -= o.Rate * v
	}
}

// State is the velocity.
func (o *SGD) State() [][]float32 { return [][]float32{o.velocity} }

// Adam keeps running means of the gradients and of their squares (Kingma & Ba, 2015).
type Adam struct {
	Rate         float32
	mean, square []float32
	steps        []float32 // one value, kept with the state so that a replacement has it
}

const (
	adamBeta1 = 0.9
	adamBeta2 = 0.999
	adamFloor = 1e-8
)

// NewAdam makes one for n parameters.
func NewAdam(n int, rate float32) *Adam {
	return &Adam{Rate: rate, mean: make([]float32, n), square: make([]float32, n), steps: make([]float32, 1)}
}

// Step moves params by the corrected mean over the root of the corrected square.
func (o *Adam) Step(params, grads []float32) {
	o.steps[0]++
	t := float64(o.steps[0])
	rate := float64(o.Rate) * math.Sqrt(1-math.Pow(adamBeta2, t)) / (1 - math.Pow(adamBeta1, t))
	r := float32(rate)
	mean, square := o.mean[:len(grads)], o.square[:len(grads)]
	params = params[:len(grads)]
	for i, g := range grads {
		m := adamBeta1*mean[i] + (1-adamBeta1)*g
		s := adamBeta2*square[i] + (1-adamBeta2)*g*g
		mean[i], square[i] = m, s
		params[i] -= r * m / (float32(math.Sqrt(float64(s))) + adamFloor)
	}
}

// State is both means and the step count.
func (o *Adam) State() [][]float32 { return [][]float32{o.mean, o.square, o.steps} }
