// Command 03-elastic is 02-trainer for a world in which processes die, with a network of
// one layer to keep it short. What must not be lost is registered with a State; the
// training starts from where that stands, and commits. Everything else, the survivors'
// return to the last commit, the replacement, the copy of the state to it, is RunElastic's.
//
//	go build -o /tmp/elastic ./examples/03-elastic && hora run -np 2 --restarts 1 /tmp/elastic 5
//
// The argument has rank 1 kill itself in that pass over the images, once. With
// --on-loss continue --min-np 1 instead of --restarts the other rank goes on alone.
// It runs in one goroutine.
package main

import (
	"context"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"

	"hora"
	"hora/demo/digits"
)

const (
	inputs  = digits.Pixels + 1 // a last input that is always one: the bias
	weights = inputs * digits.Classes
	batch   = 64
	passes  = 15
	rate    = 0.5
)

// model is what a lost worker must not take along, and the data.
type model struct {
	weights []float32
	step    int
	state   *hora.State

	images, test digits.Set
	dieIn        int // the pass that rank 1 does not survive; 0 for none
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	cfg, err := hora.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	m := &model{weights: make([]float32, weights), state: hora.NewState()}
	if m.images, m.test, err = digits.Load(); err != nil {
		return err
	}
	if len(os.Args) > 1 {
		if m.dieIn, err = strconv.Atoi(os.Args[1]); err != nil {
			return fmt.Errorf("%q is not the number of a pass: give one from 1 to %d, or nothing", os.Args[1], passes)
		}
	}
	hora.Track(m.state, "weights", m.weights)
	m.state.Int("step", &m.step)
	return hora.RunElastic(ctx, cfg, m.state, m.train)
}

// train goes on from m.step, whoever did the steps before. It is called again after a
// loss, with the world that is there then.
func (m *model) train(ctx context.Context, world *hora.World) error {
	g := world.Group()
	if world.Epoch() > 1 {
		fmt.Printf("rank %d of %d goes on from step %d\n", g.Rank(), g.Size(), m.step)
	}
	grad, err := hora.BufferOf[float32](ctx, g, weights) // of this world: the next one has its own
	if err != nil {
		return err
	}
	steps := m.images.Len() / batch
	for m.step < passes*steps {
		pass := m.step / steps
		if g.Rank() == 1 && pass+1 == m.dieIn && world.Epoch() == 1 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		order := rand.New(rand.NewPCG(1, uint64(pass))).Perm(m.images.Len())
		first := m.step % steps * batch
		from, to := batch*g.Rank()/g.Size(), batch*(g.Rank()+1)/g.Size()
		clear(grad)
		for _, i := range order[first+from : first+to] {
			backward(grad, m.weights, m.images.Pixels[i*digits.Pixels:(i+1)*digits.Pixels], m.images.Labels[i])
		}
		if err := hora.Allreduce(ctx, g, grad, hora.Sum); err != nil {
			return err
		}
		for j := range m.weights {
			m.weights[j] -= rate / batch * grad[j]
		}
		m.step++
		if err := m.state.Commit(); err != nil {
			return err
		}
	}
	if g.Rank() == 0 {
		sum := crc32.ChecksumIEEE(hora.BytesOf(m.weights))
		fmt.Printf("%.2f %% of the test images read right, weights %08x\n", 100*m.accuracy(), sum)
	}
	return nil
}

// scores are the logits of one image.
func scores(w, image []float32) (out [digits.Classes]float64) {
	for c := range out {
		row := w[c*inputs : (c+1)*inputs]
		sum := row[digits.Pixels]
		for i, x := range image {
			sum += row[i] * x
		}
		out[c] = float64(sum)
	}
	return out
}

// backward adds the gradient of one image's loss.
func backward(grad, w, image []float32, label uint8) {
	s := scores(w, image)
	var total float64
	for c, v := range s {
		s[c] = math.Exp(v)
		total += s[c]
	}
	for c, e := range s {
		d := float32(e / total)
		if c == int(label) {
			d--
		}
		row := grad[c*inputs : (c+1)*inputs]
		for i, x := range image {
			row[i] += d * x
		}
		row[digits.Pixels] += d
	}
}

func (m *model) accuracy() float64 {
	right := 0
	for i, label := range m.test.Labels {
		s := scores(m.weights, m.test.Pixels[i*digits.Pixels:(i+1)*digits.Pixels])
		best := 0
		for c, v := range s {
			if v > s[best] {
				best = c
			}
		}
		if best == int(label) {
			right++
		}
	}
	return float64(right) / float64(m.test.Len())
}
