package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hora"
	"hora/tensor"
)

// RankJob is what one rank of hora measures. A Link that is none of AllLinks leaves it to
// the world's configuration.
type RankJob struct {
	Op    string
	Link  string
	Sizes []int
}

// MeasureRank joins the world of cfg, times the job's sizes and prints a line each, in
// the peers' form: result OP BYTES CALLS MICROSECONDS ok|wrong.
func MeasureRank(ctx context.Context, cfg hora.Config, job RankJob, out io.Writer) error {
	switch job.Link {
	case "tcp":
		cfg.Links = "tcp"
	case "shm", "registered":
		cfg.Links = "shm"
	}
	world, err := hora.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer world.Close()
	for _, size := range job.Sizes {
		m, err := newMeasurement(ctx, world, job, size)
		if err != nil {
			return err
		}
		if err := m.run(out); err != nil {
			return err
		}
	}
	return world.Leave(ctx)
}

// measurement is one size on one rank. in and out are what the operation works on.
type measurement struct {
	ctx         context.Context
	g           *hora.Group
	op          string
	bytes       int
	in, out     []float32
	total       int // elements of the whole
	share       int // elements of one rank's part
	rank, ranks int
	together    hora.Request // a barrier
	call        func() error
}

func newMeasurement(ctx context.Context, w *hora.World, job RankJob, bytes int) (*measurement, error) {
	g := w.Group()
	m := &measurement{
		ctx: ctx, g: g, op: job.Op, bytes: bytes, rank: g.Rank(), ranks: g.Size(),
		together: hora.Request{Call: hora.Call{Kind: hora.KindBarrier}},
	}
	m.total = bytes / 4
	m.share = max(m.total/m.ranks, 1)
	if slices.Contains([]string{"allgather", "alltoall", "reducescatter"}, m.op) {
		m.total = m.share * m.ranks
	}
	var err error
	if m.in, err = m.memory(job.Link); err != nil {
		return nil, err
	}
	if m.out, err = m.memory(job.Link); err != nil {
		return nil, err
	}
	m.call, err = m.operation(w)
	return m, err
}

func (m *measurement) memory(link string) ([]float32, error) {
	if link != "registered" {
		return make([]float32, m.total), nil
	}
	return hora.BufferOf[float32](m.ctx, m.g, m.total)
}

// operation prepares the call that is timed: a request made once and run again and
// again, which is what a training loop does.
func (m *measurement) operation(w *hora.World) (func() error, error) {
	in, out := tensor.Of(m.in), tensor.Of(m.out)
	part := in.Slice(0, m.share)
	r := hora.Request{}
	switch m.op {
	case "allreduce", "waiting", "memory":
		r.Call = hora.Call{Kind: hora.KindAllreduce, Op: tensor.Sum, Type: tensor.Float32, Send: in, Recv: in}
	case "reduce":
		r.Call = hora.Call{Kind: hora.KindReduce, Op: tensor.Sum, Type: tensor.Float32, Send: in, Recv: out}
	case "broadcast":
		r.Call = hora.Call{Kind: hora.KindBroadcast, Type: tensor.Float32, Send: in, Recv: in}
	case "allgather":
		r.Call = hora.Call{Kind: hora.KindAllgather, Type: tensor.Float32, Send: part, Recv: out}
	case "reducescatter":
		r.Call = hora.Call{
			Kind: hora.KindReduceScatter, Op: tensor.Sum, Type: tensor.Float32, Send: in,
			Recv: out.Slice(0, m.share),
		}
	case "alltoall":
		r.Call = hora.Call{Kind: hora.KindAlltoall, Type: tensor.Float32, Send: in, Recv: out}
	case "barrier":
		r.Call = hora.Call{Kind: hora.KindBarrier}
	case "named", "plan", "ordered":
		return m.apart(w)
	default:
		return nil, fmt.Errorf("measure %s: hora's ranks have no such operation", m.op)
	}
	return func() error {
		_, _, err := m.g.Run(&r, -1)
		return err
	}, nil
}

// apart prepares an allreduce in a group of its own beside the world's, whose barrier
// brings the ranks together. In "ordered" its operations come in the caller's order; the
// others' members may name operations in any order. "plan" repeats one name, so that
// after a few rounds nothing has to be agreed; "named" draws known names in an order that
// never repeats long enough for a plan.
func (m *measurement) apart(w *hora.World) (func() error, error) {
	ranks := make([]int, m.ranks)
	for i := range ranks {
		ranks[i] = i
	}
	opts := []hora.GroupOption{hora.Called("bench-" + m.op)}
	if m.op != "ordered" {
		opts = append(opts, hora.Named())
	}
	g, err := w.NewGroup(m.ctx, ranks, opts...)
	if err != nil {
		return nil, err
	}
	in := tensor.Of(m.in)
	requests := make([]hora.Request, 1)
	if m.op == "named" {
		requests = make([]hora.Request, 64)
	}
	for i := range requests {
		if m.op != "ordered" {
			requests[i].Name = fmt.Sprintf("gradient.%d", i)
		}
		requests[i].Call = hora.Call{Kind: hora.KindAllreduce, Op: tensor.Sum, Type: tensor.Float32, Send: in, Recv: in}
	}
	if len(requests) == 1 { // the draw takes 20 ns, of which a plan is allowed 50
		return func() error {
			_, _, err := g.Run(&requests[0], -1)
			return err
		}, nil
	}
	draw := rand.New(rand.NewPCG(7, 7)) // alike on all ranks
	return func() error {
		_, _, err := g.Run(&requests[draw.IntN(len(requests))], -1)
		return err
	}, nil
}

func (m *measurement) run(out io.Writer) error {
	measure := m.timed
	if m.op == "waiting" {
		measure = m.waiting
	}
	figure, calls, wrong, err := measure()
	if err != nil {
		return err
	}
	if m.op == "memory" {
		if figure, err = ownKiB(4 * m.total); err != nil {
			return err
		}
	}
	verdict := "ok"
	if wrong > 0 {
		verdict = "wrong"
	}
	_, err = fmt.Fprintf(out, "result %s %d %d %.4f %s\n", m.op, m.bytes, calls, figure, verdict)
	return err
}

// timed is the median of the calls, in microseconds, and how many gave a wrong result.
func (m *measurement) timed() (figure float64, calls, wrong int, err error) {
	calls = callsFor(m.bytes)
	times := make([]time.Duration, 0, calls)
	// Since reads the monotonic clock alone: half the cost of Now.
	base := time.Now()
	for turn := -warmCalls(calls); turn < calls; turn++ {
		if err := m.begin(turn); err != nil {
			return 0, 0, 0, err
		}
		began := time.Since(base)
		if err := m.call(); err != nil {
			return 0, 0, 0, err
		}
		took := time.Since(base) - began
		if turn >= 0 {
			times = append(times, took)
		}
		if !m.verify(turn, calls) {
			wrong++
		}
	}
	slices.Sort(times)
	return float64(times[len(times)/2]) / 1e3, calls, wrong, nil
}

// begin rewrites the inputs of a turn and brings the ranks together.
func (m *measurement) begin(turn int) error {
	inputs := m.in
	if m.op == "allgather" {
		inputs = m.in[:m.share]
	}
	fill(inputs, m.rank, turn)
	_, _, err := m.g.Run(&m.together, -1)
	return err
}

// What rank 0 is kept waiting by the others, and how often; peers/measure.h has the same.
const (
	waits   = 3
	waitFor = 500 * time.Millisecond
)

// waiting is the processor time, in microseconds, that rank 0 takes for a second of waiting
// in an allreduce to which the others come late.
func (m *measurement) waiting() (figure float64, calls, wrong int, err error) {
	used := make([]float64, 0, waits)
	for turn := -1; turn < waits; turn++ {
		if err := m.begin(turn); err != nil {
			return 0, 0, 0, err
		}
		if m.rank > 0 && turn >= 0 {
			select {
			case <-time.After(waitFor):
			case <-m.ctx.Done():
				return 0, 0, 0, m.ctx.Err()
			}
		}
		before, err := processorTime()
		if err != nil {
			return 0, 0, 0, err
		}
		if err := m.call(); err != nil {
			return 0, 0, 0, err
		}
		after, err := processorTime()
		if err != nil {
			return 0, 0, 0, err
		}
		if turn >= 0 {
			used = append(used, float64(after-before)/1e3*float64(time.Second/waitFor))
		}
		if !m.verify(turn, waits) {
			wrong++
		}
	}
	if m.rank > 0 {
		return 0.001, waits, wrong, nil
	}
	return max(median(used), 0.001), waits, wrong, nil
}

func processorTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read the processor time of this rank: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// ownKiB is this process's memory in KiB less that of the arrays it has touched; what ranks share counts
// once, a part at each.
func ownKiB(arrays int) (float64, error) {
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		return 0, fmt.Errorf("read the memory of this rank: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			kib, err := strconv.ParseFloat(f[1], 64)
			return max(kib-float64(arrays)/1024, 1), err
		}
	}
	return 0, errors.New("read the memory of this rank: /proc/self/smaps_rollup has no Pss")
}

// period is that of the data, a prime: no block of a power of two, which is how data are
// cut, holds what another one should.
const period = 251

// pattern is peers/measure.h's: whole numbers, other ones at each rank, index and turn,
// whose sums are exact.
func pattern(rank, i, turn int) float32 {
	return float32((i*7+(turn+1000)*13+rank*101)%period + 1)
}

func fill(x []float32, rank, turn int) {
	// One period is computed, and copied front to back, as the peers' loops write. One large
	// copy would not do: from 1 MiB on the runtime's goes past the cache, which the peers'
	// stores do not.
	n := min(len(x), period)
	for i := range x[:n] {
		x[i] = pattern(rank, i, turn)
	}
	for done := n; done < len(x); done += n {
		copy(x[done:], x[:n])
	}
}

func (m *measurement) sum(i, turn int) (s float32) {
	for r := range m.ranks {
		s += pattern(r, i, turn)
	}
	return s
}

// verify looks at some sixty elements, and at every one in the first and last turns: a
// long check would let the ranks drift apart.
func (m *measurement) verify(turn, calls int) bool {
	got := m.out
	var want func(i int) float32
	switch m.op {
	case "barrier":
		return true
	case "reduce":
		if m.rank != 0 {
			return true
		}
		want = func(i int) float32 { return m.sum(i, turn) }
	case "allreduce", "named", "plan", "ordered", "waiting", "memory":
		got, want = m.in, func(i int) float32 { return m.sum(i, turn) }
	case "broadcast":
		got, want = m.in, func(i int) float32 { return pattern(0, i, turn) }
	case "allgather":
		want = func(i int) float32 { return pattern(i/m.share, i%m.share, turn) }
	case "alltoall":
		want = func(i int) float32 { return pattern(i/m.share, m.rank*m.share+i%m.share, turn) }
	case "reducescatter":
		got, want = m.out[:m.share], func(i int) float32 { return m.sum(m.rank*m.share+i, turn) }
	}
	step := 1
	if turn > 0 && turn < calls-1 && len(got) > 64 {
		step = len(got) / 61
	}
	for i := 0; i < len(got); i += step {
		if got[i] != want(i) {
			return false
		}
	}
	return true
}
