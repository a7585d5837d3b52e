package dataset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"hora/dataset/plan"
)

// ErrNotYet is Next's answer when its time was too short.
var ErrNotYet = errors.New("the next batch is not there yet")

// Walk says which part of the data a Reader reads. Batch counts the rows of a step of
// all ranks together.
type Walk struct {
	Epoch      uint64
	Position   int64
	Rank, Size int
	Batch      int64
	Last       plan.Last
	// Blocks, where there are any, are read instead: each becomes one batch, its rows in
	// their order, for whoever asks.
	Blocks []int
}

// Reader walks the rest of an epoch.
type Reader struct {
	set    *Set
	walk   Walk
	out    chan *Batch
	cancel context.CancelFunc
	done   sync.WaitGroup
	stages *stages
	more   []*stages // of a mixture's other members
	fields []Field
	fixed  int // bytes of a slot before texts
	most   int // rows of a slot
	last   *Batch
	timer  *time.Timer
	after  place // where the gatherer's steps end; the caller's from the last answer on
}

// place is where data stand.
type place struct {
	epoch    uint64
	position int64
}

// queued is how many batches wait for a caller.
const queued = 3

// Read begins to read.
func (s *Set) Read(w Walk) (*Reader, error) {
	if w.Size < 1 || w.Rank < 0 || w.Rank >= w.Size {
		return nil, fmt.Errorf("read data: rank %d of %d", w.Rank, w.Size)
	}
	if w.Batch < 1 || w.Batch/int64(w.Size) > 1<<30 {
		return nil, fmt.Errorf("read data: a batch of %d rows; give a positive number", w.Batch)
	}
	for _, b := range w.Blocks {
		if b < 0 || b >= len(s.blocks) {
			return nil, fmt.Errorf("read data: row group %d of %d", b, len(s.blocks))
		}
		w.Batch = max(w.Batch, int64(s.blocks[b].rows)*int64(w.Size))
	}
	if w.Position < 0 || w.Position > s.rows {
		return nil, fmt.Errorf("read data: row %d of %d", w.Position, s.rows)
	}
	r := &Reader{set: s, walk: w, out: make(chan *Batch, queued), after: place{w.Epoch, w.Position}}
	r.most = int((min(w.Batch, 2*s.rows)+int64(w.Size)-1)/int64(w.Size)) + 1
	r.fields, r.fixed = s.layout(r.most)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.stages = s.begin(ctx)
	g, err := newGatherer(r, ctx)
	if err != nil {
		cancel()
		r.stages.close()
		return nil, err
	}
	if len(w.Blocks) > 0 {
		r.end(ctx, g.runBlocks)
	} else {
		r.end(ctx, g.run)
	}
	return r, nil
}

// begin starts the stages that read from where the files lie.
func (s *Set) begin(ctx context.Context) *stages {
	fetchers := 2
	if _, local := s.files[0].store.(interface{ Local() }); !local {
		fetchers = 16
	}
	return s.start(ctx, fetchers, 2*(fetchers+s.cfg.Threads))
}

// end lets the gatherer run; what it ends with is the reader's last answer.
func (r *Reader) end(ctx context.Context, run func() error) {
	r.done.Go(func() {
		err := run()
		for _, st := range append(r.more[:len(r.more):len(r.more)], r.stages) {
			st.close()
		}
		if err == nil {
			err = io.EOF
		}
		select {
		case r.out <- &Batch{err: err}:
		case <-ctx.Done():
		}
	})
}

// Layout says where a batch's arrays lie in its memory.
func (r *Reader) Layout() []Field { return r.fields }

// After is where the data stand when Next has answered io.EOF. The last batch says it too, but to a rank that has no
// rows in the last step nothing else does.
func (r *Reader) After() (epoch uint64, position int64) { return r.after.epoch, r.after.position }

// Next answers the next batch, ErrNotYet after a while, or io.EOF at the epoch's end.
func (r *Reader) Next(wait time.Duration) (*Batch, error) {
	if r.last != nil {
		return nil, r.last.err
	}
	select {
	case b := <-r.out:
		return r.take(b)
	default:
	}
	if wait <= 0 {
		return nil, ErrNotYet
	}
	begin := time.Now()
	defer since(&r.stages.times.caller, begin)
	if r.timer == nil {
		r.timer = time.NewTimer(wait)
	} else {
		r.timer.Reset(wait)
	}
	defer r.timer.Stop()
	select {
	case b := <-r.out:
		return r.take(b)
	case <-r.timer.C:
		return nil, ErrNotYet
	}
}

func (r *Reader) take(b *Batch) (*Batch, error) {
	if b.err != nil {
		r.last = b
		return nil, b.err
	}
	b.slot.header()[hHeld] = int64(r.set.slots.hand())
	return b, nil
}

// Close ends the reader. Batches that are held stay what they are.
func (r *Reader) Close() {
	r.cancel()
	r.done.Wait()
	for {
		select {
		case b := <-r.out:
			if b.slot != nil {
				r.set.slots.give(b.slot, false)
			}
			continue
		default:
		}
		break
	}
	if r.last == nil {
		r.last = &Batch{err: errors.New("read data: the reader was closed; begin to iterate again")}
	}
}

// Times says who waited for whom, in seconds of all goroutines together: reading bytes,
// decoding, copying rows; the caller for a batch, the copying for blocks and for the
// caller.
type Times struct {
	Fetch  float64 `json:"fetch"`
	Decode float64 `json:"decode"`
	Gather float64 `json:"gather"`
	Caller float64 `json:"caller_waited"`
	Blocks float64 `json:"blocks_awaited"`
	Full   float64 `json:"caller_awaited"`
	// Read is how many blocks were read and decoded here: not those that were there already, or came from another rank.
	Read int64 `json:"blocks_read"`
}

// Times are those since Read.
func (r *Reader) Times() Times {
	var all Times
	for _, st := range append(r.more[:len(r.more):len(r.more)], r.stages) {
		t := &st.times
		all.Read += t.read.Load()
		for to, n := range map[*float64]*atomic.Int64{
			&all.Fetch: &t.fetch, &all.Decode: &t.decode, &all.Gather: &t.gather, &all.Caller: &t.caller,
			&all.Blocks: &t.blocks, &all.Full: &t.full,
		} {
			*to += float64(n.Load()) / 1e9
		}
	}
	return all
}

// Close gives back what no batch holds.
func (s *Set) Close() {
	s.slots.drain()
	s.forget()
}
