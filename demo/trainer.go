package demo

import (
	"fmt"
	"time"

	"hora/demo/digits"
)

// Training says what is trained and how. The zero value of a field means its default.
type Training struct {
	Widths    []int  // layer widths, input first
	Batch     int    // images per step on all ranks together
	Epochs    int    // passes over the training images
	Optimizer string // a name of Optimizers
	Rate      float32
	Seed      uint64 // of the weights and of the sample order
}

// WithDefaults fills in what the caller left at zero.
func (c Training) WithDefaults() Training {
	if len(c.Widths) == 0 {
		c.Widths = []int{digits.Pixels, 128, 64, digits.Classes}
	}
	if c.Batch == 0 {
		c.Batch = 64
	}
	if c.Epochs == 0 {
		c.Epochs = 20
	}
	if c.Optimizer == "" {
		c.Optimizer = "adam"
	}
	if c.Rate == 0 {
		c.Rate = Optimizers[c.Optimizer].Rate
	}
	if c.Seed == 0 {
		c.Seed = 1
	}
	return c
}

// Sum adds up x over all ranks in place; with one rank it does nothing. It is all
// that the trainer asks of the library.
type Sum func(x []float32) error

// Trainer is one rank's replica: network, optimizer and its part of every batch.
// It is used by one goroutine.
type Trainer struct {
	Training
	Net  *Net
	Rank int
	Size int

	shared   []float32 // what the ranks add up: Net's gradients, and the step's loss
	update   Optimizer
	train    digits.Set
	order    []int // of the current epoch
	epoch    int   // that order belongs to; -1 before the first
	images   []float32
	labels   []uint8
	byLogits []float32

	// What the last step was: the mean loss of its images on all ranks, how many of them
	// were this rank's, and how long it computed and stood in the allreduce.
	Loss            float64
	Rows            int
	Compute, Reduce time.Duration
}

// SharedCount is how many values the ranks add up in a step.
func (c Training) SharedCount() int { return ParamCount(c.WithDefaults().Widths) + 1 }

// NewTrainer builds the replica of one rank over shared, which must have room for
// c.SharedCount() values: the caller chooses the memory.
func NewTrainer(c Training, rank, size int, train digits.Set, shared []float32) (*Trainer, error) {
	c = c.WithDefaults()
	if c.Batch < size {
		return nil, fmt.Errorf("train: a batch of %d images cannot be shared by %d ranks; use a larger batch", c.Batch, size)
	}
	rows := (c.Batch + size - 1) / size
	if len(shared) != c.SharedCount() {
		return nil, fmt.Errorf("train: room for %d shared values, want %d", len(shared), c.SharedCount())
	}
	net, err := NewNet(c.Widths, shared[:len(shared)-1], rows, c.Seed)
	if err != nil {
		return nil, err
	}
	kind, ok := Optimizers[c.Optimizer]
	if !ok {
		return nil, fmt.Errorf("train: there is no optimizer %q", c.Optimizer)
	}
	return &Trainer{
		Training: c, Net: net, update: kind.New(len(net.Params), c.Rate), Rank: rank, Size: size,
		shared: shared, train: train, epoch: -1,
		images:   make([]float32, rows*digits.Pixels),
		labels:   make([]uint8, rows),
		byLogits: make([]float32, rows*digits.Classes),
	}, nil
}

// UseShared changes the memory of what the ranks add up.
func (t *Trainer) UseShared(shared []float32) {
	t.shared = shared
	t.Net.UseGrads(shared[:len(shared)-1])
}

// StepsPerEpoch counts the batches of an epoch, the last of which may be smaller.
func (t *Trainer) StepsPerEpoch() int { return (t.train.Len() + t.Batch - 1) / t.Batch }

// Steps is the number of steps of the whole training.
func (t *Trainer) Steps() int { return t.Epochs * t.StepsPerEpoch() }

// Step does the training's step number n, counted from 0 over all epochs: this rank's
// share of the batch forward and backward, the gradients added up over all ranks, the
// same update everywhere. A step depends only on n and the state before it, so that a
// replacement can go on from a commit.
func (t *Trainer) Step(n int, sum Sum) error {
	began := time.Now()
	rows, batch := t.load(n)
	t.Rows = rows
	logits := t.Net.Forward(t.images[:rows*digits.Pixels], rows)
	byLogits := t.byLogits[:len(logits)]
	loss := SoftmaxLoss(byLogits, logits, t.labels[:rows], batch)
	t.Net.Backward(byLogits)
	t.shared[len(t.shared)-1] = float32(loss / float64(batch))
	computed := time.Now()
	if err := sum(t.shared); err != nil {
		return err
	}
	reduced := time.Now()
	t.Loss = float64(t.shared[len(t.shared)-1])
	t.update.Step(t.Net.Params, t.Net.Grads)
	t.Reduce = reduced.Sub(computed)
	t.Compute = time.Since(began) - t.Reduce
	return nil
}

// load copies this rank's images of step n together and returns how many they are,
// and how many the step has on all ranks.
func (t *Trainer) load(n int) (rows, batch int) {
	epoch, step := n/t.StepsPerEpoch(), n%t.StepsPerEpoch()
	if epoch != t.epoch {
		t.order, t.epoch = Order(t.Seed, epoch, t.train.Len()), epoch
	}
	first := step * t.Batch
	batch = min(t.Batch, t.train.Len()-first)
	from, to := Share(batch, t.Rank, t.Size)
	for row, i := range t.order[first+from : first+to] {
		copy(t.images[row*digits.Pixels:], t.train.Pixels[i*digits.Pixels:(i+1)*digits.Pixels])
		t.labels[row] = t.train.Labels[i]
	}
	return to - from, batch
}

// Accuracy is the share of a set's images that the network reads right.
func (t *Trainer) Accuracy(set digits.Set) float64 {
	correct := 0
	for first := 0; first < set.Len(); {
		rows := min(t.Net.rows, set.Len()-first)
		logits := t.Net.Forward(set.Pixels[first*digits.Pixels:(first+rows)*digits.Pixels], rows)
		correct += Correct(logits, set.Labels[first:first+rows])
		first += rows
	}
	return float64(correct) / float64(max(set.Len(), 1))
}
