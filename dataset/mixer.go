package dataset

import (
	"context"
	"fmt"
	"slices"
	"unsafe"

	"hora/dataset/plan"
)

// mixer is a mixture's gatherer: it walks the sequence, has each member's gatherer find
// the rows that are due of it, and copies all of them to one slot.
type mixer struct {
	gatherer // its set is the first member's, whose batches all others' are like
	shares
	members []*member
	rows    int64 // of an epoch
	seed    uint64
	origin  int     // where that array lies in a slot; 0: it is not asked for
	whence  []int32 // of each row in from: its member
	mixed   []source
	marks   []int32
	before  []int64 // rows of each member before a step, and after it
	after   []int64
}

// member walks one of the data.
type member struct {
	gatherer
	epoch uint64
	walk  *stream
	used  []used
	early []int64 // rows of the mixture before which blocks were asked for ahead
	next  int64   // row of the mixture up to which blocks were asked for
}

// used is a stream that rows of the present step lie in, with their runs.
type used struct {
	stream *stream
	runs   []plan.Run
}

// Read begins to read.
func (m *Mixed) Read(w Walk) (*Reader, error) {
	if w.Size < 1 || w.Rank < 0 || w.Rank >= w.Size {
		return nil, fmt.Errorf("read a mixture: rank %d of %d", w.Rank, w.Size)
	}
	if w.Batch < 1 || w.Batch/int64(w.Size) > 1<<30 {
		return nil, fmt.Errorf("read a mixture: a batch of %d rows; give a positive number", w.Batch)
	}
	if w.Last == plan.Pad || len(w.Blocks) > 0 {
		return nil, fmt.Errorf(`read a mixture: last="pad" and single row groups are for data that have an end; use last="short", "drop" or "wrap"`)
	}
	begin, err := m.place(w.Epoch, w.Position)
	if err != nil {
		return nil, err
	}
	x := &mixer{
		shares: m.shares, rows: m.rows, seed: m.seed, before: make([]int64, len(m.sets)),
		after: make([]int64, len(m.sets)),
	}
	if err := x.draws(begin, x.before); err != nil {
		return nil, err
	}
	r := &Reader{set: m.sets[0], walk: w, out: make(chan *Batch, queued), after: place{w.Epoch, w.Position}}
	r.most = int((min(w.Batch, 2*m.rows)+int64(w.Size)-1)/int64(w.Size)) + 1
	r.fields, r.fixed = r.set.layout(r.most)
	if m.origin != "" {
		f := m.originField()
		f.At, x.origin = r.fixed, r.fixed
		r.fixed = up(r.fixed + f.Width*r.most)
		r.fields = append(r.fields, f)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	for i, s := range m.sets {
		st := s.begin(ctx)
		if i == 0 {
			r.stages = st
		} else {
			r.more = append(r.more, st)
		}
		x.members = append(x.members, &member{gatherer: gatherer{r: r, set: s, stages: st, ctx: ctx}, next: begin})
	}
	x.gatherer = gatherer{r: r, set: m.sets[0], stages: r.stages, ctx: ctx}
	r.end(ctx, x.run)
	return r, nil
}

// run walks to the end of the epoch.
func (x *mixer) run() error {
	w := &x.r.walk
	for pos := w.Position; ; {
		step := plan.Next(w.Epoch, pos, x.rows, w.Batch, w.Last)
		x.r.after = place{step.Epoch, step.After}
		if step.N == 0 {
			return nil
		}
		if err := x.step(&step); err != nil {
			return err
		}
		if pos = step.After; step.Epoch != w.Epoch {
			return nil
		}
	}
}

// step makes this rank's batch of a step, if it has one.
func (x *mixer) step(step *plan.Step) error {
	w := &x.r.walk
	begin := int64(step.Ranges[0].Epoch)*x.rows + step.Ranges[0].Begin
	if err := x.turn(begin, begin+step.Rows()); err != nil {
		return err
	}
	x.mixed, x.marks = x.mixed[:0], x.marks[:0]
	due, at := int64(0), int64(0)
	for i, m := range x.members {
		n := x.after[i] - x.before[i]
		from, to := plan.Cut(at, n, w.Rank, w.Size)
		at += n
		due += to - from
		m.from = m.from[:0]
		if err := m.take(x.before[i], n, from, to, x.each[i]); err != nil {
			return err
		}
		x.mixed = append(x.mixed, m.from...)
		for range m.from {
			x.marks = append(x.marks, int32(i))
		}
		if err := x.lookAhead(i, begin+step.Rows()); err != nil {
			return err
		}
	}
	if due == 0 {
		return nil
	}
	x.order(begin)
	b, err := x.batch(len(x.from))
	if err != nil {
		return err
	}
	if x.origin > 0 && len(x.whence) > 0 {
		copy(unsafe.Slice((*int32)(unsafe.Pointer(&b.slot.mem[x.origin])), len(x.whence)), x.whence)
	}
	b.Rows, b.Epoch, b.Position = len(x.from), step.Epoch, step.After
	h := b.slot.header()
	h[hRows], h[hPadded], h[hEpoch], h[hPosition] = int64(b.Rows), 0, int64(step.Epoch), step.After
	for _, m := range x.members {
		m.letGo()
	}
	return x.send(b)
}

// turn finds how many rows of each member lie before a step and after it.
func (x *mixer) turn(begin, end int64) error {
	if err := x.draws(begin, x.before); err != nil {
		return err
	}
	return x.draws(end, x.after)
}

// order mixes the members' rows, where rows are mixed at all.
func (x *mixer) order(begin int64) {
	if x.set.cfg.Shuffle == None {
		x.from, x.whence = append(x.from[:0], x.mixed...), append(x.whence[:0], x.marks...)
		return
	}
	n := len(x.mixed)
	x.perm, x.from, x.whence = grow(x.perm, n), grow(x.from, n), grow(x.whence, n)
	plan.Permute(x.perm, plan.MixKey(x.seed, begin, x.r.walk.Rank))
	for i, to := range x.perm {
		x.from[to], x.whence[to] = x.mixed[i], x.marks[i]
	}
}

// take finds the rows from one to another of the n that a step has of the member after
// its row first; each is rows of an epoch.
func (m *member) take(first, n, from, to, each int64) error {
	m.used = m.used[:0]
	for from < to {
		epoch, whole := (first+from)/each, plan.Range{}
		low, high := max(first, epoch*each), min(first+n, (epoch+1)*each)
		whole = plan.Range{Epoch: uint64(epoch), Begin: low - epoch*each, End: high - epoch*each}
		if err := m.enter(uint64(epoch)); err != nil {
			return err
		}
		end := min(to, high-first)
		if err := m.rows(m.walk, whole, first+from-low, first+end-low); err != nil {
			return err
		}
		m.used = append(m.used, used{m.walk, slices.Clone(m.runs)})
		from = end
	}
	return nil
}

// enter makes an epoch of the member the present one. Its last one stays where the
// present step has rows of it.
func (m *member) enter(epoch uint64) error {
	if m.walk != nil && m.epoch == epoch {
		return nil
	}
	s, err := m.set.stream(epoch)
	if err != nil {
		return err
	}
	if m.walk != nil && !slices.ContainsFunc(m.used, func(u used) bool { return u.stream == m.walk }) {
		m.used = append(m.used, used{stream: m.walk})
	}
	m.walk, m.epoch, m.early = s, epoch, m.early[:0]
	m.counts = make([]int64, s.plan.Counts())
	return nil
}

// letGo gives back the blocks that no later step takes rows from.
func (m *member) letGo() {
	for _, u := range m.used {
		if u.stream == m.walk {
			m.runs = append(m.runs[:0], u.runs...)
			m.release(u.stream)
			continue
		}
		for i := range u.stream.lanes {
			l := &u.stream.lanes[i]
			for _, b := range l.open {
				select {
				case <-b.ready:
					m.stages.drop(b)
				default: // nobody waited for it, and a worker still has it
				}
			}
			l.open = nil
		}
	}
	m.used = m.used[:0]
}

// lookAhead asks for what the next steps need of a member's present epoch, as far as its
// workers keep up.
func (x *mixer) lookAhead(i int, from int64) error {
	m, w := x.members[i], &x.r.walk
	if m.walk == nil {
		return nil
	}
	for len(m.early) > 0 && m.early[0] < from {
		m.early = m.early[:copy(m.early, m.early[1:])]
	}
	m.next = max(m.next, from)
	var low, high [plan.MaxMembers]int64
	k := len(x.members)
	stop := int64(w.Epoch+1) * x.rows
	for steps := 0; len(m.early) < cap(m.stages.fetch) && steps < 64 && m.next < stop; steps++ {
		end := min(m.next+w.Batch, stop)
		if err := x.draws(m.next, low[:k]); err != nil {
			return err
		}
		if err := x.draws(end, high[:k]); err != nil {
			return err
		}
		var at int64
		for j := range i {
			at += high[j] - low[j]
		}
		a, b := plan.Cut(at, high[i]-low[i], w.Rank, w.Size)
		begin := int64(m.epoch) * x.each[i]
		if high[i] > begin+x.each[i] {
			return nil // its epoch ends there
		}
		m.runs = m.walk.plan.Slice(m.runs[:0], low[i]-begin, high[i]-begin, a, b, m.counts)
		for _, run := range m.runs {
			first, last := m.walk.plan.Need(run)
			l := &m.walk.lanes[run.Lane]
			for have := len(l.open); have < len(m.open(m.walk, run.Lane, first, last)); have++ {
				m.early = append(m.early, m.next)
			}
		}
		m.next = end
	}
	return nil
}
