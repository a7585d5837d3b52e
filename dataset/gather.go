package dataset

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"hora/dataset/plan"
)

// gatherer owns the order: it walks the plan, asks for blocks and fills slots.
type gatherer struct {
	r      *Reader
	set    *Set
	stages *stages
	ctx    context.Context

	main      *stream
	other     *stream // of the rows that fill the last step
	ahead     int64   // position up to which blocks have been asked for
	early     []int64 // where the steps begin that blocks were asked for ahead of
	counts    []int64
	runs      []plan.Run
	refs      []plan.Ref
	stretches []plan.Stretch
	perm      []uint32
	from      []source
	spans     []rowSpan // of the same rows: those that lie one after the other
}

// rowSpan is so many rows of a block that follow each other.
type rowSpan struct {
	block  *loaded
	row, n int
}

// source is a row: its block, and its place there.
type source struct {
	block *loaded
	row   int
}

// stream is one walk along an epoch, with the blocks that it has open.
type stream struct {
	plan   *plan.Plan
	order  plan.Order
	walker *plan.Walker
	lanes  []openLane
}

// openLane is a lane's blocks from first on.
type openLane struct {
	first int
	open  []*loaded
}

func (s *Set) stream(epoch uint64) (*stream, error) {
	p, err := s.plan(epoch)
	if err != nil {
		return nil, err
	}
	st := s.State(epoch, 0)
	return &stream{plan: p, order: st.Order(), walker: p.Walk(), lanes: make([]openLane, p.Lanes())}, nil
}

func newGatherer(r *Reader, ctx context.Context) (*gatherer, error) {
	g := &gatherer{r: r, set: r.set, stages: r.stages, ctx: ctx, ahead: r.walk.Position}
	var err error
	if g.main, err = r.set.stream(r.walk.Epoch); err != nil {
		return nil, err
	}
	g.counts = make([]int64, g.main.plan.Counts())
	return g, nil
}

// run walks to the end of the epoch.
func (g *gatherer) run() error {
	w := &g.r.walk
	for pos := w.Position; ; {
		step := plan.Next(w.Epoch, pos, g.set.rows, w.Batch, w.Last)
		g.r.after = place{step.Epoch, step.After}
		if step.N == 0 {
			return nil
		}
		if err := g.step(&step); err != nil {
			return err
		}
		if pos = step.After; step.Epoch != w.Epoch {
			return nil
		}
	}
}

// runBlocks makes a batch of each block that the walk names.
func (g *gatherer) runBlocks() error {
	list := g.r.walk.Blocks
	var open []*loaded
	for n := range list {
		for len(open) < cap(g.stages.fetch) && n+len(open) < len(list) {
			open = append(open, g.stages.ask(list[n+len(open)]))
		}
		l := open[0]
		open = open[:copy(open, open[1:])]
		select {
		case <-l.ready:
		case <-g.ctx.Done():
			return g.ctx.Err()
		}
		rows := g.set.blocks[l.block].rows
		if l.err != nil {
			if !g.set.skip(l.block, l.err) {
				return l.err
			}
			rows = 0
		}
		g.from = g.from[:0]
		for row := range rows {
			g.from = append(g.from, source{l, row})
		}
		b, err := g.batch(rows)
		if err != nil {
			return err
		}
		g.stages.drop(l)
		b.Rows, b.Epoch, b.Position = rows, g.r.walk.Epoch, int64(n)+1
		h := b.slot.header()
		h[hRows], h[hPadded], h[hEpoch], h[hPosition] = int64(rows), 0, int64(b.Epoch), b.Position
		if err := g.send(b); err != nil {
			return err
		}
	}
	return nil
}

// send hands a batch out.
func (g *gatherer) send(b *Batch) error {
	begun := time.Now()
	defer since(&g.stages.times.full, begun)
	select {
	case g.r.out <- b:
		return nil
	case <-g.ctx.Done():
		g.set.slots.give(b.slot, false)
		return g.ctx.Err()
	}
}

// step makes this rank's batch of a step, if it has one.
func (g *gatherer) step(step *plan.Step) error {
	w := &g.r.walk
	begin, end := plan.Share(step.Rows(), w.Rank, w.Size)
	due, padded := int(end-begin), 0
	g.from = g.from[:0]
	first := step.Ranges[0]
	n := first.End - first.Begin // rows of the step that lie in it; the rest fill it up
	if err := g.rows(g.main, first, min(begin, n), min(end, n)); err != nil {
		return err
	}
	if step.N > 1 && end > n {
		before := len(g.from)
		if err := g.fill(step.Ranges[1], max(begin, n)-n, end-n); err != nil {
			return err
		}
		if w.Last == plan.Pad {
			padded = len(g.from) - before
		}
	}
	own := len(g.from)
	if due == 0 {
		return nil
	}
	b, err := g.batch(own)
	if err != nil {
		return err
	}
	b.Rows, b.Padded, b.Epoch, b.Position = own, padded, step.Epoch, step.After
	h := b.slot.header()
	h[hRows], h[hPadded], h[hEpoch], h[hPosition] = int64(own), int64(padded), int64(step.Epoch), step.After
	if step.N == 1 {
		g.release(g.main)
	}
	return g.send(b)
}

// fill adds rows of the range that fills a step up.
func (g *gatherer) fill(r plan.Range, from, to int64) error {
	if g.other == nil {
		var err error
		if g.other, err = g.set.stream(r.Epoch); err != nil {
			return err
		}
	}
	return g.rows(g.other, r, from, to)
}

// rows adds the rows of a range, from one to another of them, in the order of the batch.
func (g *gatherer) rows(s *stream, r plan.Range, from, to int64) error {
	if from >= to {
		return nil
	}
	g.runs = s.plan.Slice(g.runs[:0], r.Begin, r.End, from, to, g.counts)
	for _, run := range g.runs {
		first, end := s.plan.Need(run)
		g.open(s, run.Lane, first, end)
	}
	if s == g.main {
		g.lookAhead(r.End)
		g.runs = s.plan.Slice(g.runs[:0], r.Begin, r.End, from, to, g.counts)
	}
	for _, run := range g.runs {
		if err := g.await(s, run); err != nil {
			return err
		}
	}
	begun := time.Now()
	defer since(&g.stages.times.gather, begun)
	at := len(g.from)
	if s.order.Window == 0 {
		g.straight(s)
	} else {
		g.shuffled(s, r, from)
	}
	if n := len(g.from) - at; int64(n) != to-from {
		return fmt.Errorf("internal fault of hora: %d rows where %d are due; please report it", n, to-from)
	}
	g.holes(at)
	return nil
}

// straight adds the rows of the runs as they lie in the files.
func (g *gatherer) straight(s *stream) {
	g.stretches = g.stretches[:0]
	for _, run := range g.runs {
		g.stretches = s.plan.Stretches(g.stretches, run)
	}
	for _, st := range g.stretches {
		l := &s.lanes[st.Lane]
		block, at := l.open[int(st.Block)-l.first], len(g.from)
		g.from = grow2(g.from, at+int(st.N))
		for i := range g.from[at:] {
			g.from[at+i] = source{block, int(st.Row) + i}
		}
	}
}

// shuffled adds the rows of the runs in the order of the step, whose row from is the first.
func (g *gatherer) shuffled(s *stream, r plan.Range, from int64) {
	g.refs = g.refs[:0]
	for _, run := range g.runs {
		g.refs = s.walker.Rows(g.refs, run)
	}
	n, at := len(g.refs), len(g.from)
	g.from = grow2(g.from, at+n)
	into := g.from[at:]
	g.perm = grow(g.perm, n)
	plan.Permute(g.perm, plan.StepKey(s.order, r.Begin, from))
	for i, ref := range g.refs {
		l := &s.lanes[ref.Lane]
		into[g.perm[i]] = source{l.open[int(ref.Block)-l.first], int(ref.Row)}
	}
}

// holes leaves the rows of blocks out that are skipped. Their positions stay in the
// order, so all ranks take as many steps as before: this batch is shorter.
func (g *gatherer) holes(at int) {
	if g.set.cfg.Skip {
		g.from = append(
			g.from[:at], slices.DeleteFunc(g.from[at:], func(s source) bool { return s.block.err != nil })...,
		)
	}
}

// grow2 keeps what is there.
func grow2(s []source, n int) []source {
	for cap(s) < n {
		s = append(s[:cap(s)], source{})
	}
	return s[:n]
}

// open asks for a lane's blocks up to end and forgets those before first.
func (g *gatherer) open(s *stream, lane, first, end int) []*loaded {
	l := &s.lanes[lane]
	if len(l.open) == 0 {
		l.first = max(l.first, first)
	}
	for l.first+len(l.open) < end {
		l.open = append(l.open, g.stages.ask(s.plan.Blocks(lane)[l.first+len(l.open)]))
	}
	return l.open
}

// lookAhead asks for what the next steps need, as far as the workers keep up.
func (g *gatherer) lookAhead(from int64) {
	w, p := &g.r.walk, g.main.plan
	for len(g.early) > 0 && g.early[0] < from {
		g.early = g.early[:copy(g.early, g.early[1:])]
	}
	g.ahead = max(g.ahead, from)
	limit := cap(g.stages.fetch)
	for steps := 0; len(g.early) < limit && steps < 64 && g.ahead < g.set.rows; steps++ {
		end := min(g.ahead+w.Batch, g.set.rows)
		g.runs = p.Part(g.runs[:0], g.ahead, end, w.Rank, w.Size, g.counts)
		for _, run := range g.runs {
			first, end := p.Need(run)
			l := &g.main.lanes[run.Lane]
			for have := len(l.open); have < len(g.open(g.main, run.Lane, first, end)); have++ {
				g.early = append(g.early, g.ahead)
			}
		}
		g.ahead = end
	}
}

// await waits for the blocks of a run.
func (g *gatherer) await(s *stream, run plan.Run) error {
	first, end := s.plan.Need(run)
	l := &s.lanes[run.Lane]
	for n := max(first, l.first); n < end; n++ {
		b := l.open[n-l.first]
		select {
		case <-b.ready:
		default:
			begun := time.Now()
			select {
			case <-b.ready:
			case <-g.ctx.Done():
				return g.ctx.Err()
			}
			since(&g.stages.times.blocks, begun)
		}
		if b.err != nil && !g.set.skip(b.block, b.err) {
			return b.err
		}
	}
	return nil
}

// release lets blocks go that no later step takes rows from. The runs are the last
// step's.
func (g *gatherer) release(s *stream) {
	for _, run := range g.runs {
		first, _ := s.plan.Need(plan.Run{
			Lane: run.Lane, Begin: min(run.End, s.plan.LaneRows(run.Lane)-1), End: run.End,
		})
		if run.End == s.plan.LaneRows(run.Lane) {
			first = len(s.plan.Blocks(run.Lane))
		}
		l := &s.lanes[run.Lane]
		n := min(first-l.first, len(l.open))
		if n <= 0 {
			continue
		}
		for _, b := range l.open[:n] {
			select {
			case <-b.ready:
				g.stages.drop(b)
			default: // nobody waited for it, and a worker still has it
			}
		}
		l.open = l.open[:copy(l.open, l.open[n:])]
		l.first += n
	}
}

// batch copies the rows in from to a slot.
func (g *gatherer) batch(n int) (*Batch, error) {
	if n > g.r.most {
		return nil, fmt.Errorf("internal fault of hora: a batch of %d rows where %d have room; please report it", n, g.r.most)
	}
	begun := time.Now()
	defer since(&g.stages.times.gather, begun)
	g.join()
	bytes := g.r.fixed
	for i := range g.set.fields {
		if g.set.fields[i].text {
			for _, s := range g.spans {
				bytes += int(s.block.ends[i][s.row+s.n] - s.block.ends[i][s.row])
			}
			bytes = up(bytes)
		}
	}
	sl, err := g.set.slots.take(bytes, g.set.hold)
	if err != nil {
		return nil, err
	}
	at := g.r.fixed
	for i := range g.set.fields {
		at = g.copy(sl, i, at)
	}
	return &Batch{slot: sl, slots: &g.set.slots}, nil
}

// join finds the rows of from that lie one after the other.
func (g *gatherer) join() {
	g.spans = g.spans[:0]
	for k := 0; k < len(g.from); {
		s, n := g.from[k], 1
		for k+n < len(g.from) && g.from[k+n].block == s.block && g.from[k+n].row == s.row+n {
			n++
		}
		g.spans = append(g.spans, rowSpan{s.block, s.row, n})
		k += n
	}
}

// place copies a field's rows of a width: spans where they are long, else row by row.
func (g *gatherer) place(to []byte, width int, of func(*loaded) []byte) {
	const long = 8
	if len(g.spans)*long > len(g.from) {
		rows(to, g.from, width, of)
		return
	}
	for _, s := range g.spans {
		to = to[copy(to, of(s.block)[s.row*width:(s.row+s.n)*width]):]
	}
}

// copy copies a field's rows; texts begin at a byte of the slot, and it answers where
// the next ones do.
func (g *gatherer) copy(sl *slot, i, at int) int {
	f, lay := &g.set.fields[i], &g.r.fields[i]
	if f.Mask {
		width := max(1, f.Count)
		g.place(sl.mem[lay.MaskAt:], width, func(l *loaded) []byte { return l.mask[i] })
	}
	if !f.text {
		g.place(sl.mem[lay.At:], f.Width, func(l *loaded) []byte { return l.data[i] })
		return at
	}
	ends := unsafe.Slice((*int64)(unsafe.Pointer(&sl.mem[lay.At])), len(g.from)+1)
	begin := at
	ends[0] = 0
	k := 0
	for _, s := range g.spans {
		from := s.block.ends[i][s.row : s.row+s.n+1]
		shift := int64(at-begin) - from[0]
		at += copy(sl.mem[at:], s.block.data[i][from[0]:from[s.n]])
		for _, end := range from[1:] {
			k++
			ends[k] = end + shift
		}
	}
	h := sl.header()
	h[lay.Text], h[lay.Text+1] = int64(begin), int64(at-begin)
	return up(at)
}

// ahead is how many rows are touched before they are copied: their memory then comes
// at the same time, and not one after the other.
const ahead = 32

// touch reads a little of each row; what it answers keeps the reads from being left out.
//
//go:noinline
func touch(from []source, width int, of func(*loaded) []byte) byte {
	var block *loaded
	var data []byte
	sum := byte(0)
	for _, s := range from {
		if s.block != block {
			block, data = s.block, of(s.block)
		}
		sum |= data[s.row*width] | data[(s.row+1)*width-1]
	}
	return sum
}

// rows copies rows of a width, those that lie together at once.
func rows(to []byte, from []source, width int, of func(*loaded) []byte) {
	var block *loaded
	var data []byte
	touched := 0
	for k := 0; k < len(from); {
		if k == touched {
			touched = min(k+ahead, len(from))
			_ = touch(from[k:touched], width, of)
		}
		s := from[k]
		if s.block != block {
			block, data = s.block, of(s.block)
		}
		n := 1
		for k+n < touched && from[k+n].block == block && from[k+n].row == s.row+n {
			n++
		}
		part := data[s.row*width : (s.row+n)*width]
		at := to[k*width : (k+n)*width]
		k += n
		switch {
		case len(part) == 4:
			*(*[4]byte)(at) = [4]byte(part)
		case len(part) == 8:
			*(*[8]byte)(at) = [8]byte(part)
		case len(part)&15 == 0 && len(part) <= 256:
			for len(part) >= 16 && len(at) >= 16 {
				*(*[16]byte)(at) = [16]byte(part)
				part, at = part[16:], at[16:]
			}
		default:
			copy(at, part)
		}
	}
}
