package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"syscall"
	"time"

	"hora"
	"hora/demo/digits"
)

// commitEvery is how many steps a lost worker can cost.
const commitEvery = 5

// worker is the state of one rank's run; one goroutine uses it.
type worker struct {
	trainer *Trainer
	test    digits.Set
	out     io.Writer
	victim  Victim
	step    int // steps done of the whole training
	tally   tally

	ctx   context.Context // of the present life of the job, as what follows
	world *hora.World
	group *hora.Group
	cpu   time.Duration // of this process, when it began
	busy  float64       // of the tally, when it began
}

// tally is what a rank adds up for its reports. It is part of the state, so that steps
// which are done again count once.
type tally struct {
	Samples                   int
	Busy, Talk, Wait, Trained float64   // seconds so far
	Reduces                   []float64 // of this epoch's steps: seconds inside the allreduce
	Loss                      float64   // of all ranks, summed over this epoch's steps
}

// Victim is a rank that is to be killed in the middle of an epoch, counted from 1; no rank where that is 0.
type Victim struct{ Rank, Epoch int }

// fallsWithin is how long a victim awaits its end. On a busy machine the others would have finished before it comes.
const fallsWithin = 5 * time.Second

// Work is one worker of the demo from its first to its last line: it joins the world
// that cfg names, trains its share and reports to out. When a worker is lost and the
// launcher replaces it, all go on from the last commit.
func Work(ctx context.Context, cfg hora.Config, c Training, victim Victim, out io.Writer) error {
	train, test, err := digits.Load()
	if err != nil {
		return err
	}
	t, err := NewTrainer(c, cfg.Rank, max(cfg.Size, 1), train, make([]float32, c.SharedCount()))
	if err != nil {
		return err
	}
	w := &worker{trainer: t, test: test, out: out, victim: victim}
	w.tally.Reduces = make([]float64, t.StepsPerEpoch())
	cfg.Log = noteTo(func(note string) {
		_ = Report{Kind: Note, Rank: t.Rank, Size: t.Size, Epochs: t.Epochs, Note: note}.Write(out)
	})
	state := hora.NewState()
	hora.Track(state, "parameters", t.Net.Params)
	for i, x := range t.update.State() {
		hora.Track(state, fmt.Sprintf("optimizer %d", i), x)
	}
	state.Int("step", &w.step)
	state.Custom("tally",
		func() ([]byte, error) { return json.Marshal(&w.tally) },
		func(b []byte) error { return json.Unmarshal(b, &w.tally) })
	return hora.RunElastic(ctx, cfg, state, func(ctx context.Context, world *hora.World) error {
		err := w.enter(ctx, world)
		if err == nil {
			err = w.train(state)
		}
		if err == nil {
			err = w.finish()
		}
		if err != nil {
			// The front end shows how long a loss took to be known; the error itself
			// says the rest.
			_ = w.report(Report{Kind: Broken, Note: err.Error(), Moment: time.Now().UnixNano()})
		}
		return err
	})
}

// enter takes a place among the ranks of one life of the job.
func (w *worker) enter(ctx context.Context, world *hora.World) error {
	w.ctx, w.world, w.group = ctx, world, world.Group()
	w.cpu, w.busy = cpuTime(), w.tally.Busy
	t := w.trainer
	if w.group.Size() != t.Size {
		return fmt.Errorf("train: %d ranks instead of %d: start the demo again", w.group.Size(), t.Size)
	}
	t.Rank = w.group.Rank()
	shared, err := w.sharedMemory(t.SharedCount())
	if err != nil {
		return err
	}
	t.UseShared(shared)
	return w.report(Report{Kind: Joined, Life: world.Epoch(), Moment: time.Now().UnixNano()})
}

// report writes r with what all reports of this rank have in common.
func (w *worker) report(r Report) error {
	r.Rank, r.Size, r.Epochs, r.Steps = w.group.Rank(), w.group.Size(), w.trainer.Epochs, w.step
	return r.Write(w.out)
}

// sharedMemory asks for memory that every rank of the host maps, so that the
// allreduce reads gradients where the backward pass left them. Where the system gives
// none, plain memory does, at the price of a copy.
func (w *worker) sharedMemory(n int) ([]float32, error) {
	shared, err := hora.BufferOf[float32](w.ctx, w.group, n)
	if err != nil {
		if w.ctx.Err() != nil || w.group.Err() != nil {
			return nil, err
		}
		return make([]float32, n), w.report(Report{Kind: Note, Note: "gradients are copied: " + err.Error()})
	}
	return shared, nil
}

// links says how this rank's bytes really went, by the counters.
func links(w *hora.World) (used []string) {
	c := w.Counters()
	if c.SHM.BytesSent+c.SHM.BytesReceived > 0 {
		used = append(used, "shared memory")
	}
	if c.TCP.BytesSent+c.TCP.BytesReceived > 0 {
		used = append(used, "TCP")
	}
	return used
}

// train does the steps that are left.
func (w *worker) train(state *hora.State) error {
	t := w.trainer
	perEpoch := t.StepsPerEpoch()
	for first := true; w.step < t.Steps(); first = false {
		began := time.Now()
		epoch, at := w.step/perEpoch+1, w.step%perEpoch
		if err := t.Step(w.step, w.sum); err != nil {
			return fmt.Errorf("train epoch %d, step %d: %w", epoch, at+1, err)
		}
		if first {
			if err := w.report(Report{Kind: Going, Life: w.world.Epoch(), Moment: time.Now().UnixNano()}); err != nil {
				return err
			}
		}
		w.step++
		w.tally.add(t, at)
		w.tally.Trained += time.Since(began).Seconds()
		if err := w.tell(epoch, at+1, perEpoch); err != nil {
			return err
		}
		if w.step%commitEvery == 0 || at == perEpoch-1 {
			began = time.Now()
			if err := state.Commit(); err != nil {
				return err
			}
			w.tally.Trained += time.Since(began).Seconds()
		}
	}
	return nil
}

// add takes in the step that t has done, number at of its epoch.
func (n *tally) add(t *Trainer, at int) {
	if at == 0 {
		n.Loss = 0
	}
	n.Loss += t.Loss
	n.Samples += t.Rows
	n.Busy += t.Compute.Seconds()
	n.Reduces[at] = t.Reduce.Seconds()
}

// tell reports how far the epoch is after done of its steps, where that is of interest.
func (w *worker) tell(epoch, done, steps int) error {
	switch done {
	case steps:
		return w.endEpoch(epoch)
	case steps / 2:
		if err := w.report(Report{Kind: Halfway, Epoch: epoch}); err != nil {
			return err
		}
		if w.victim == (Victim{w.trainer.Rank, epoch}) && w.world.Epoch() == 1 {
			select {
			case <-time.After(fallsWithin):
			case <-w.ctx.Done():
			}
		}
	}
	return nil
}

func (w *worker) sum(x []float32) error {
	return hora.Allreduce(w.ctx, w.group, x, hora.Sum)
}

// endEpoch shares out what the allreduces cost. In each step the rank that came last
// waited for nobody: its time is communication, what the others stood there longer
// is waiting for it.
func (w *worker) endEpoch(epoch int) error {
	fastest := slices.Clone(w.tally.Reduces)
	if err := hora.Allreduce(w.ctx, w.group, fastest, hora.Min); err != nil {
		return err
	}
	for i, talk := range fastest {
		w.tally.Talk += talk
		w.tally.Wait += w.tally.Reduces[i] - talk
	}
	return w.report(w.figures(Report{Kind: Epoch, Epoch: epoch, Loss: w.tally.Loss / float64(len(fastest))}))
}

// figures adds what was measured so far to a report.
func (w *worker) figures(r Report) Report {
	n := &w.tally
	r.Seconds, r.Samples, r.Busy, r.Talk, r.Wait = n.Trained, n.Samples, n.Busy, n.Talk, n.Wait
	r.Accuracy = w.trainer.Accuracy(w.test)
	return r
}

// finish compares the digests of every rank's parameters: that all ranks agree is
// checked, never assumed.
func (w *worker) finish() error {
	digest := paramDigest(w.trainer.Net.Params)
	all, err := hora.Allgather(w.ctx, w.group, digest)
	if err != nil {
		return err
	}
	agree := true
	for at := 0; at < len(all); at += len(digest) {
		agree = agree && bytes.Equal(all[at:at+len(digest)], digest)
	}
	r := Report{
		Kind: Done, Agree: agree, Digest: hex.EncodeToString(digest[:8]), Links: links(w.world),
		Stalled: w.stalled(),
	}
	if err := w.report(w.figures(r)); err != nil {
		return err
	}
	if !agree {
		return errors.New("compare replicas: the ranks' parameters differ in bits; this is a bug of hora, please report it with the output of hora version")
	}
	return nil
}

// stalled is the share of the computing during which this process had no core, at the
// least: other programs had it. It tells a busy machine from a slow program.
func (w *worker) stalled() float64 {
	computed := w.tally.Busy - w.busy
	if computed <= 0 {
		return 0
	}
	return max(1-(cpuTime()-w.cpu).Seconds()/computed, 0)
}

// cpuTime is what this process has had of the cores so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// paramDigest is the SHA-256 of the parameters' bits.
func paramDigest(params []float32) []byte {
	sum := sha256.New()
	var word [4]byte
	for _, p := range params {
		b := math.Float32bits(p)
		word = [4]byte{byte(b), byte(b >> 8), byte(b >> 16), byte(b >> 24)}
		sum.Write(word[:])
	}
	return sum.Sum(nil)
}
