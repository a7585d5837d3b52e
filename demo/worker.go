package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unsafe"

	"hora"
	"hora/demo/digits"
)

// Work is one worker of the demo from its first to its last line: it joins the world
// that cfg names, trains its share and reports to out.
func Work(ctx context.Context, cfg hora.Config, c Training, out io.Writer) error {
	train, test, err := digits.Load()
	if err != nil {
		return err
	}
	world, err := hora.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer world.Close()
	group := world.Group()
	grads, note, err := gradientMemory(ctx, group, ParamCount(c.WithDefaults().Widths))
	if err != nil {
		return err
	}
	t, err := NewTrainer(c, group.Rank(), group.Size(), train, grads)
	if err != nil {
		return err
	}
	w := &worker{ctx: ctx, world: world, group: group, trainer: t, test: test, out: out}
	start := Report{Kind: "start", Rank: group.Rank(), Size: group.Size(), Epochs: t.Epochs, Note: note}
	if err := start.Write(out); err != nil {
		return err
	}
	if err := w.train(); err != nil {
		return err
	}
	if err := w.finish(); err != nil {
		return err
	}
	return world.Leave(ctx)
}

// gradientMemory asks for memory that every rank of the host maps, so that the
// allreduce reads gradients where the backward pass left them. Where the system gives
// none, plain memory does, at the price of a copy.
func gradientMemory(ctx context.Context, g *hora.Group, n int) (grads []float32, note string, err error) {
	shared, err := g.Buffer(ctx, 4*n)
	if err != nil {
		if ctx.Err() != nil {
			return nil, "", err
		}
		return make([]float32, n), "gradients are copied: " + err.Error(), nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(shared))), n), "", nil
}

// links says how this rank's bytes really went, by the counters.
func links(w *hora.World) string {
	c := w.Counters()
	var used []string
	if c.SHM.BytesSent+c.SHM.BytesReceived > 0 {
		used = append(used, "shared memory")
	}
	if c.TCP.BytesSent+c.TCP.BytesReceived > 0 {
		used = append(used, "TCP")
	}
	if len(used) == 0 {
		return "none needed"
	}
	return strings.Join(used, " and ")
}

// worker is the state of one rank's run; one goroutine uses it.
type worker struct {
	ctx     context.Context
	world   *hora.World
	group   *hora.Group
	trainer *Trainer
	test    digits.Set
	out     io.Writer

	samples          int
	busy, talk, wait float64 // seconds so far
	trained          time.Duration
	reduces          []float64 // of this epoch's steps: seconds inside the allreduce
	loss             float64   // summed over this epoch's steps
}

func (w *worker) train() error {
	t := w.trainer
	perEpoch := t.StepsPerEpoch()
	for epoch := range t.Epochs {
		began := time.Now()
		w.reduces, w.loss = w.reduces[:0], 0
		for s := range perEpoch {
			if err := t.Step(epoch*perEpoch+s, w.sum); err != nil {
				return fmt.Errorf("train epoch %d, step %d: %w", epoch+1, s+1, err)
			}
			w.busy += t.Compute.Seconds()
			w.reduces = append(w.reduces, t.Reduce.Seconds())
			w.loss += t.Loss
			w.samples += t.Rows
		}
		w.trained += time.Since(began)
		if err := w.endEpoch(epoch + 1); err != nil {
			return err
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
	fastest := slices.Clone(w.reduces)
	if err := hora.Allreduce(w.ctx, w.group, fastest, hora.Min); err != nil {
		return err
	}
	for i, talk := range fastest {
		w.talk += talk
		w.wait += w.reduces[i] - talk
	}
	loss := []float64{w.loss / float64(len(w.reduces))}
	if err := hora.Allreduce(w.ctx, w.group, loss, hora.Average); err != nil {
		return err
	}
	r := Report{
		Kind: "epoch", Rank: w.group.Rank(), Size: w.group.Size(), Epoch: epoch, Epochs: w.trainer.Epochs,
		Loss: loss[0], Seconds: w.trained.Seconds(), Samples: w.samples, Busy: w.busy, Talk: w.talk, Wait: w.wait,
		Accuracy: w.trainer.Accuracy(w.test),
	}
	return r.Write(w.out)
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
		Kind: "done", Rank: w.group.Rank(), Size: w.group.Size(), Epochs: w.trainer.Epochs,
		Accuracy: w.trainer.Accuracy(w.test), Agree: agree, Digest: hex.EncodeToString(digest[:8]),
		Links: links(w.world),
		Steps: w.trainer.Steps(), Seconds: w.trained.Seconds(), Samples: w.samples, Busy: w.busy, Talk: w.talk, Wait: w.wait,
	}
	if err := r.Write(w.out); err != nil {
		return err
	}
	if !agree {
		return fmt.Errorf("compare replicas: the ranks' parameters differ in bits; this is a bug of hora, please report it with the output of hora doctor")
	}
	return nil
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
