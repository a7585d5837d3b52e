package collective

import (
	"time"

	"hora/tensor"
	"hora/transport"
)

// tuneTime is about how long tuning takes in all.
const tuneTime = 50 * time.Millisecond

// tuneBytes is the tensor that is timed: large enough for several segments.
const tuneBytes = 1 << 20

// tuning is the operations that New runs before the group's first.
type tuning struct {
	c    *Comm
	call Call
	seq  uint64
}

// tune tries segment and part sizes on an allreduce. Rank 0's clock decides and its
// choice is broadcast. Neither size changes the order in which an element is added:
// segments cut what is sent, parts what is copied.
func (c *Comm) tune() error {
	if c.mesh.Size() == 1 {
		return nil
	}
	x := tensor.Of(make([]float32, tuneBytes/4))
	t := &tuning{c: c, call: Call{Kind: Allreduce, Type: tensor.Float32, Send: x, Recv: x}}
	segments, parts := []int{c.segment}, []int{c.part}
	if c.board == nil || len(c.topo.hosts) > 1 {
		segments = append(segments, 64<<10, 128<<10, 512<<10, 1<<20)
	}
	// Every host must take part in the same operations, whether or not it has a board.
	for _, p := range []int{32 << 10, 64 << 10} {
		parts = append(parts, min(p, c.part))
	}
	took, err := t.time(1)
	if err != nil {
		return err
	}
	each := tuneTime / time.Duration(len(segments)+len(parts))
	times, err := t.agree(int(max(1, min(8, each/max(took, time.Microsecond)))))
	if err != nil {
		return err
	}
	if err := t.choose(&c.segment, segments, times); err != nil {
		return err
	}
	if err := t.choose(&c.part, parts, times); err != nil {
		return err
	}
	c.first = t.seq + 1
	return nil
}

// choose tries each value of a knob and sets what was fastest on rank 0; the first
// value keeps its place unless another is faster by a twentieth.
func (t *tuning) choose(knob *int, values []int, times int) error {
	best, least := 0, time.Duration(0)
	for i, v := range values {
		*knob = v
		took, err := t.time(times)
		if err != nil {
			return err
		}
		if i == 0 || took < least-least/20 {
			best, least = i, took
		}
	}
	best, err := t.agree(best)
	*knob = values[best]
	return err
}

func (t *tuning) run(call *Call) error {
	t.seq++
	return t.c.Run(transport.Stamp{Seq: t.seq}, call, time.Time{})
}

// time is how long one allreduce takes, over so many after a barrier.
func (t *tuning) time(times int) (time.Duration, error) {
	if err := t.run(&Call{Kind: Barrier}); err != nil {
		return 0, err
	}
	start := time.Now()
	for range times {
		if err := t.run(&t.call); err != nil {
			return 0, err
		}
	}
	return time.Since(start) / time.Duration(times), nil
}

// agree is rank 0's number on all ranks.
func (t *tuning) agree(n int) (int, error) {
	x := []int64{int64(n)}
	v := tensor.Of(x)
	err := t.run(&Call{Kind: Broadcast, Type: tensor.Int64, Recv: v})
	return int(x[0]), err
}
